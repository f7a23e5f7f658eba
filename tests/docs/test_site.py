"""The site: built strictly, whole, and read without asking other hosts for anything."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree as ET

import pytest
import yaml

from tests.examples.shell import ROOT

pytestmark = pytest.mark.slow

# Element → the attribute by which a browser fetches something, without being asked to.
_FETCHED: Final = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
# Kinds of <link> that only say something.
_TOLD: Final = {"canonical", "next", "prev", "alternate"}


class _Page(HTMLParser):
    """What a page fetches, and where it leads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.links: list[str] = []
        self.names: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.names |= {found["id"]} if "id" in found else set()
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        address = found.get(_FETCHED.get(tag, ""))
        if address and not set(found.get("rel", "").split()) & _TOLD:
            self.fetched.append(address)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert build.returncode == 0, build.stdout + build.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, _Page]:
    return {path: _Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}


def test_every_page_of_docs_is_in_it(site: Path) -> None:
    written = {path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")}
    assert len(written) > 20
    assert all((site / path.with_suffix(".html")).exists() for path in written)


def test_nothing_is_fetched_from_other_hosts(site: Path, pages: dict[Path, _Page]) -> None:
    fetched = {address for page in pages.values() for address in page.fetched}
    assert {address for address in fetched if urlsplit(address).netloc} == set()
    for style in site.rglob("*.css"):
        text = style.read_text(encoding="utf-8")
        assert not re.search(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", text), style


def test_everything_that_is_fetched_is_there(site: Path, pages: dict[Path, _Page]) -> None:
    for path, page in pages.items():
        for address in page.fetched:
            target = unquote(urlsplit(address).path)
            base = site if target.startswith("/") else path.parent
            assert (base / target.lstrip("/")).is_file(), (path, address)


def test_links_lead_to_places_that_exist(site: Path, pages: dict[Path, _Page]) -> None:
    checked = 0
    for path, page in pages.items():
        if path.name == "404.html":
            continue
        for address in page.links:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc or not (parts.path or parts.fragment):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            assert target.is_file(), (path, address)
            if parts.fragment and target in pages:
                names = pages[target].names
                assert unquote(parts.fragment) in names | {"__codelineno"}, (path, address)
            checked += 1
    assert checked > 100


def test_blocks_and_lists_are_what_repositories_show(site: Path) -> None:
    for path in (ROOT / "docs").rglob("*.md"):
        source = path.read_text(encoding="utf-8")
        made = (site / path.relative_to(ROOT / "docs").with_suffix(".html")).read_text("utf-8")
        fences = len(re.findall(r"^ *```", source, re.MULTILINE))
        assert made.count("<pre") * 2 == fences, path
    assert re.search(r"<li>[^\n]*<ul>\n<li>", (site / "rules.html").read_text(encoding="utf-8"))


def test_the_navigation_names_every_page_once() -> None:
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    named = re.findall(r"^ +- [^:\n]+: (\S+\.md)$", config, re.MULTILINE)
    assert len(named) == len(set(named))
    assert {path.name for path in (ROOT / "docs").glob("*.md")} <= set(named)
    assert yaml.safe_load(config)["theme"]["font"] is False


def test_the_picture_is_drawn_for_light_and_dark_and_described() -> None:
    text = (ROOT / "docs" / "architecture.svg").read_text(encoding="utf-8")
    root = ET.fromstring(text)
    assert root.find("{*}title") is not None
    assert root.find("{*}desc") is not None
    assert "prefers-color-scheme: dark" in text
    assert not re.search(r"(?:href|src)=|url\((?!#)", text)
