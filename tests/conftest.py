"""What holds for all tests."""

import os
import secrets
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A failed assertion of a helper says as much as one of a test.
pytest.register_assert_rewrite(
    *(f"tests.{folder.name}" for folder in Path(__file__).parent.iterdir() if folder.is_dir())
)

# The machine may be busy with something else: no property depends on how long an example takes.
settings.register_profile(
    "patient", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("patient")

_SEED = "USHER_TEST_SEED"

_LONGEST_FIRST = (
    "chart/test_e2e_helm.py",
    "chart/test_e2e_service.py",
    "certs/test_e2e_certs.py",
    "controller/test_schedules.py",
    "controller/test_e2e_node_health.py",
    "controller/test_e2e_outage.py",
    "image/test_commands.py",
    "e2e/test_definitions.py",
    "controller/test_e2e_chaos.py",
    "chart/test_e2e_rights.py",
    "docs/test_e2e_quick_start.py",
    "e2e/test_identity.py",
    "e2e/test_case_files.py",
)
"""Files that take a minute or more, longest first: begun last, one would run on alone."""


def pytest_configure() -> None:
    """Choose one seed for all random cases of a run; the processes that share it inherit it."""
    os.environ.setdefault(_SEED, str(secrets.randbits(32)))


def pytest_report_header() -> str:
    """Say how to have the same random cases again."""
    return f"random cases: {_SEED}={os.environ[_SEED]}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest; the order within a file stays."""
    places = {Path(__file__).parent / name: place for place, name in enumerate(_LONGEST_FIRST)}
    assert all(path.exists() for path in places)
    items.sort(key=lambda item: places.get(item.path, len(places)))
