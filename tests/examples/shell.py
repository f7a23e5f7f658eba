"""Runs what a page of the documentation tells its readers to type."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
_PROGRAMS: Final = {"usher": "-m cli.main", "python": ""}


def page(name: str) -> str:
    """The text of a page in docs/."""
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    """The blocks of a page in ``language``."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def run_shell(
    script: str, folder: Path, programs: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run ``script`` in ``folder``, with ``usher``, ``python`` and ``programs`` on the path."""
    own = folder / "programs"
    own.mkdir(parents=True)
    for name, arguments in _PROGRAMS.items():
        (own / name).write_text(f'#!/bin/sh\nexec {sys.executable} {arguments} "$@"\n')
        (own / name).chmod(0o755)
    path = ":".join(map(str, filter(None, (own, programs, os.environ["PATH"]))))
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env=os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
