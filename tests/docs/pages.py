"""What the site has beside docs/: the changelog, the examples that pages link to, a list of ADRs.

MkDocs calls these functions by their names (``hooks`` in mkdocs.yml).
"""

import re
from pathlib import Path
from typing import Any, Final

from markdown import Extension, Markdown
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

_ROOT: Final = Path(__file__).parents[2]
_EXAMPLES: Final = _ROOT / "examples"
_TITLE: Final = re.compile(r"^# (.*)", re.MULTILINE)


class _Nesting(Extension):
    """Lists nest by two spaces, as repositories show them; by itself Markdown wants four."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 - its name
        md.tab_length = 2
        for name in ("indent", "code", "olist", "ulist"):
            processor = md.parser.blockprocessors[name]
            # They have taken note of the old length already.
            type(processor).__init__(processor, md.parser)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Read Markdown as repositories do."""
    config.markdown_extensions.append(_Nesting())  # type: ignore[arg-type]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add pages and files that live elsewhere."""
    changelog = (_ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    files.append(File.generated(config, "changelog.md", content=changelog))
    files.append(File.generated(config, "adr/index.md", content=_decisions(files)))
    for path in sorted(_EXAMPLES.iterdir()):
        if path.is_file() and path.name != "__init__.py":
            uri = f"examples/{path.name}"
            files.append(File.generated(config, uri, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Lead links to where things are in the site: examples lie beside docs/, ADRs have a list."""
    return markdown.replace("](../examples/", "](examples/").replace("](adr/)", "](adr/index.md)")


def _decisions(files: Files) -> str:
    pages = sorted(files.documentation_pages(), key=lambda file: file.src_uri)
    titles = (
        f"- [{title[1]}]({file.name}.md)"
        for file in pages
        if re.match(r"adr/\d", file.src_uri) and (title := _TITLE.search(file.content_string))
    )
    return "\n".join(["# Decisions", "", "What was decided, and why.", "", *titles, ""])
