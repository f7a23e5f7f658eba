"""What a test does when the programs that it needs can't be had. A pytest plugin.

PYTEST_DONT_REWRITE: it asserts nothing, and fixtures import it before pytest registers it.
"""

import os
from typing import NoReturn

import pytest

_reasons: set[str] = set()


def skip_or_fail(reason: str) -> NoReturn:
    """Skip the test; under CI fail it, where a silent skip would hide a broken set-up."""
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(reason, pytrace=False)
    _reasons.add(reason)
    pytest.skip(reason)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say once why tests were skipped; by itself pytest only counts them."""
    for reason in sorted(_reasons):
        terminalreporter.write_line(f"end-to-end tests were skipped: {reason}", yellow=True)
