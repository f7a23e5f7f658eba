"""Flag > environment > configuration file > default, and typos in the file."""

from pathlib import Path

import pytest

from cli.options import common_options
from tests.cli.conftest import Usher

CLEAN = "{apiVersion: v1, kind: Pod}"


def _config(text: str) -> str:
    Path("config.yaml").write_text(text, encoding="utf-8")
    return "config.yaml"


def _format(usher: Usher, *arguments: str, **env: str) -> str:
    Path("pod.yaml").write_text(CLEAN, encoding="utf-8")
    run = usher("validate", *arguments, "pod.yaml", env=env)
    assert run.exit_code == 0, run.stderr
    return {"{": "json", "<": "junit", "1": "text"}[run.stdout[0]]


def test_precedence(usher: Usher) -> None:
    config = _config("output: junit\n")
    assert _format(usher) == "text"
    assert _format(usher, "--config", config) == "junit"
    assert _format(usher, USHER_CONFIG=config) == "junit"
    assert _format(usher, "--config", config, USHER_OUTPUT="json") == "json"
    assert _format(usher, "--config", config, "-o", "text", USHER_OUTPUT="json") == "text"


SIX = f"""\
apiVersion: v1
kind: Pod
spec:
  evictionResponders: [{", ".join(f"{{name: a.io/x{i}, priority: 1000}}" for i in range(6))}]
"""


@pytest.mark.parametrize(
    ("config", "severity"),
    [
        ("", "warning"),
        ("# nothing\n", "warning"),
        ("guards: off\n", None),
        ("response-budget: 6\n", None),
        ("enforce: {response-budget: deny}\n", "error"),
        ("enforce: [response-budget=deny, first-sync=off]\n", "error"),
        ("enforce: response-budget=deny\n", "error"),
        ("audit-only: true\n", "note"),
        ("audit-only: yes\n", "note"),
        ("as: alice\nas-group: [a, b]\nport: 9443\n", "warning"),
    ],
)
def test_every_flag_can_stand_in_the_file(usher: Usher, config: str, severity: str | None) -> None:
    run = usher("validate", "--config", _config(config), "-", stdin=SIX)
    assert run.exit_code == (1 if severity == "error" else 0), run.stderr
    assert (f" {severity}: " in run.stdout) == (severity is not None)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("outptu: json\n", "unknown key 'outptu'; did you mean 'output'?"),
        ("--output: json\n", "unknown key '--output'; did you mean 'output'?"),
        ("config: other.yaml\n", "unknown key 'config'"),
        ("1: json\n", "unknown key '1'"),
        ("output: xml\n", "'xml' is not one of 'text', 'json'"),
        ("output: [json]\n", "'output' must have one value"),
        ("output: {a: b}\n", "'output' must have one value"),
        ("enforce: [{a: b}]\n", "'enforce' must have one value"),
        ("response-budget: many\n", "'many' is not a valid integer"),
        ("enforce: {first-sinc: deny}\n", "did you mean 'first-sync'?"),
        ("- output\n", "must be a map of flags to values"),
        ("a: [\n", "must be YAML"),
    ],
)
def test_mistakes_in_the_file(usher: Usher, config: str, message: str) -> None:
    run = usher("validate", "--config", _config(config), "-", stdin=CLEAN)
    assert run.exit_code == 2
    assert message in run.stderr


def test_a_missing_file(usher: Usher) -> None:
    run = usher("validate", "--config", "missing.yaml", "-", stdin=CLEAN)
    assert run.exit_code == 2
    assert "missing.yaml: No such file or directory" in run.stderr


def test_the_common_flags_are_those_of_the_interface() -> None:
    def command() -> None:
        pass

    common_options(command)
    flags = {flag for option in command.__click_params__ for flag in option.opts}  # type: ignore[attr-defined]
    assert flags == {"--config", "--log-format", "--log-level"}
