"""What pages tell their readers to type exists, and what they quote is said."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click
import pytest
import yaml

from cli.main import usher
from rules.catalog import GUARDS, RULES
from tests.examples.shell import ROOT, blocks, page

PAGES: Final = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"]
VALUES: Final[dict[str, Any]] = yaml.safe_load((ROOT / "charts/usher/values.yaml").read_bytes())
MAKEFILE: Final = (ROOT / "Makefile").read_text(encoding="utf-8")
_CONTEXT: Final = click.Context(usher)
# Values that pages name with a dot.
_GROUPS: Final = {name for name, value in VALUES.items() if isinstance(value, dict)}


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _value(path: str) -> bool:
    """Whether the chart has a value of this path; GUARD stands for any."""
    found: Any = VALUES
    for name in path.split("."):
        if not isinstance(found, dict) or (name not in found and name != "GUARD"):
            return False
        found = found.get(name, "")
    return True


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_values_of_the_chart_exist(path: Path) -> None:
    text = _text(path)
    named = set(re.findall(r"--set ([\w.]+)=", text))
    spans = re.findall(r"`([A-Za-z]+\.[A-Za-z.]+)(?:=[^`]*)?`", text)
    named |= {span for span in spans if span.partition(".")[0] in _GROUPS}
    assert {name for name in named if not _value(name)} == set()


def test_pages_name_values_at_all() -> None:
    assert "--set audit=true" in page("quick-start.md")
    assert "`webhook.breakGlass`" in page("security.md")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_targets_of_make_exist(path: Path) -> None:
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", MAKEFILE, re.MULTILINE))
    lines = "\n".join(re.findall(r"`make [^`]+`|^(?:\$ )?make .*", _text(path), re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z][a-z0-9-]*)", lines)) <= targets


@pytest.mark.parametrize("name", ["operations.md", "security.md", "troubleshooting.md"])
def test_flags_of_usher_exist(name: str) -> None:
    text = page(name)
    commands = re.findall(
        r"(?:-- |`)usher ((?:certs )?[a-z]+)((?: --?[a-z-]+(?: [^-`\s]\S*)?)+)", text
    )
    checked = 0
    for words, flags in commands:
        known = _options(words.split())
        for flag in re.findall(r"--[a-z-]+", flags):
            assert flag in known, (words, flag)
            checked += 1
    assert checked or name == "security.md"


def _registered() -> set[tuple[str, str]]:
    """Kind and name of the configurations that the chart has by default."""
    text = (ROOT / "charts" / "kustomize" / "webhooks.yaml").read_text(encoding="utf-8")
    found = [each for each in yaml.safe_load_all(text) if each]
    return {(each["kind"].lower(), each["metadata"]["name"]) for each in found}


def test_commands_about_certificates_name_all_configurations_of_the_chart() -> None:
    commands = re.findall(r"^kubectl .* usher certs .*", page("operations.md"), re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        named = set(re.findall(r"--(validating|mutating) (\S+)", command))
        assert {(f"{kind}webhookconfiguration", name) for kind, name in named} == _registered()


def test_the_page_of_the_webhook_names_what_is_registered_for_it() -> None:
    rows = re.findall(
        r"^\| `([a-z-]+)` \| (?:CREATE|UPDATE|DELETE) ", page("serve.md"), re.MULTILINE
    )
    kind = "validatingwebhookconfiguration"
    assert {(kind, name) for name in rows} == {each for each in _registered() if each[0] == kind}


def _options(words: list[str]) -> set[str]:
    command: click.Command = usher
    for word in words:
        if isinstance(command, click.Group) and word in command.list_commands(_CONTEXT):
            found = command.get_command(_CONTEXT, word)
            assert found is not None
            command = found
    return {option for parameter in command.params for option in parameter.opts}


def test_guards_that_pages_name_exist() -> None:
    named = set(
        re.findall(
            r"`([a-z]+-(?:identity|right|truth|fields|budget|exists))`", " ".join(map(_text, PAGES))
        )
    )
    assert named
    assert named <= set(RULES)
    assert named & set(GUARDS)


@pytest.mark.parametrize("block", blocks(page("quick-start.md"), "yaml"))
def test_manifests_of_the_quick_start_are_kubernetes_objects(block: str) -> None:
    manifest = yaml.safe_load(block)
    assert {"apiVersion", "kind", "metadata", "spec"} <= set(manifest)
    assert manifest["metadata"]["namespace"] == "default"


def test_refusals_are_in_the_words_of_the_program() -> None:
    sources = "\n".join(_sources())
    for text in _quoted():
        for fragment in filter(None, (part.strip(" '\"`:;") for part in text.split("…"))):
            assert fragment in sources or fragment in _FOREIGN, fragment


_FOREIGN: Final = {
    # API servers; test_e2e_troubleshooting.py hears them, or can't bring them about.
    'failed calling webhook "validate.usher.dev',
    'failed calling webhook "withdrawals.validate.usher.dev',
    "NamespaceDeletionContentFailure",
    'no endpoints available for service "usher',
    "connect: connection refused",
    'service "usher" not found',
    "context deadline exceeded",
    "x509: certificate signed by unknown authority",
    "x509: certificate is valid for",
    ", not",
    "x509: certificate has expired or is not yet valid",
    "is invalid",
    "The EvictionRequest",
    'violates PodSecurity "restricted',
    'field manager "usher-certs": .webhooks[',
    "conflict",
    "].clientConfig.caBundle",
    "admission webhook",
    "denied the request",
    "ValidatingAdmissionPolicy",
    "exceeded quota",
    # OpenSSL and aiohttp
    "certificate verify failed: unable to get local issuer certificate",
    "self-signed certificate in certificate chain",
    "IP address mismatch",
    "Hostname mismatch",
    "Cannot connect to host",
    # kubelets, and kubectl that shows them
    "ImagePullBackOff",
    "Init:0/1",
    "OOMKilled",
    "MountVolume.SetUp failed",
    "secret",
    "not found",
    # helm
    "invalid ownership metadata",
}


def _quoted() -> Iterator[str]:
    """What stands in code in the first column of the tables: things that are seen.

    Names of metrics are left to test_metrics.py.
    """
    for line in page("troubleshooting.md").splitlines():
        if line.startswith("| "):
            for text in line.split(" | ")[0].split("`")[1::2]:
                if not text.startswith("usher_"):
                    yield text


def _sources() -> Iterator[str]:
    for package in ("rules", "webhook", "controller", "certs", "cluster", "cli"):
        for path in (ROOT / package).rglob("*.py"):
            # Texts may go on in the next line.
            yield re.sub(r'"\s*\n\s*f?"', "", path.read_text(encoding="utf-8"))
