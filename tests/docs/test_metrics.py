"""docs/metrics.md is what the registries say, and pages name what is measured."""

import re
from pathlib import Path
from typing import Final

import pytest

from tests.docs.metrics import certificates, controller, page, webhook
from tests.examples.shell import ROOT

PAGES: Final = sorted((ROOT / "docs").glob("*.md"))
_SUFFIXES: Final = ("_bucket", "_sum", "_count")


def test_the_page_is_up_to_date() -> None:
    written = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert written == page(), "run 'make docs'"


def test_every_metric_says_what_it_is() -> None:
    programs = (webhook(), controller(), certificates())
    for program in programs:
        assert len({family.name for family in program}) == len(program)
    families = [family for program in programs for family in program]
    assert all(family.text.endswith(".") for family in families)
    assert all(family.bounds for family in families if family.kind == "histogram")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_pages_name_metrics_that_exist(path: Path) -> None:
    families = [*webhook(), *controller(), *certificates()]
    known = {family.name for family in families}
    known |= {f.name + suffix for f in families if f.kind == "histogram" for suffix in _SUFFIXES}
    text = re.sub(r"^<!-- .*", "", path.read_text(encoding="utf-8"))
    named = set(
        re.findall(r"\b(?:usher_(?:webhook|controller|certs)_\w+|evictionrequest_\w+)", text)
    )
    # "usher_controller_…" means several.
    beginnings = {name for name in named if name.endswith("_")}
    assert named - beginnings <= known
    assert all(any(name.startswith(start) for name in known) for start in beginnings)
