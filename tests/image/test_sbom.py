"""`make sbom`: every package of the image is in it, with the hashes that it is installed by."""

import json
import re
import shlex
import subprocess
from typing import Any, Final

import pytest

from tests.image.dockerfile import ROOT

pytestmark = pytest.mark.slow

LOCKED: Final = (ROOT / "requirements" / "runtime.txt").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def bill(tmp_path_factory: pytest.TempPathFactory) -> Any:
    printed = subprocess.run(
        ["make", "--dry-run", "--no-print-directory", "sbom"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.replace("\\\n", " ")
    (command,) = re.findall(r"^\S*cyclonedx-py .*$", printed, re.MULTILINE)
    path = tmp_path_factory.mktemp("sbom") / "sbom.json"
    words = [str(path) if word.startswith("build/") else word for word in shlex.split(command)]
    subprocess.run(words, cwd=ROOT, capture_output=True, check=True)
    return json.loads(path.read_bytes())


def test_it_names_every_package_in_its_version(bill: Any) -> None:
    named = {(each["name"], each["version"]) for each in bill["components"]}
    assert named == set(re.findall(r"^([\w.-]+)==([\w.+!-]+)", LOCKED, re.MULTILINE))


def test_it_has_every_hash(bill: Any) -> None:
    hashes = {
        digest["content"]
        for each in bill["components"]
        for reference in each["externalReferences"]
        for digest in reference.get("hashes", ())
    }
    assert hashes == set(re.findall(r"sha256:([0-9a-f]{64})", LOCKED))


def test_it_is_about_usher_and_the_same_each_time(bill: Any) -> None:
    assert bill["bomFormat"] == "CycloneDX"
    assert bill["metadata"]["component"]["name"] == "usher"
    assert "serialNumber" not in bill
    assert "timestamp" not in bill["metadata"]
