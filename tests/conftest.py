"""What holds for all tests."""

import os
import secrets

from hypothesis import HealthCheck, settings

# The machine may be busy with something else: no property depends on how long an example takes.
settings.register_profile(
    "patient", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("patient")

_SEED = "USHER_TEST_SEED"


def pytest_configure() -> None:
    """Choose one seed for all random cases of a run; the processes that share it inherit it."""
    os.environ.setdefault(_SEED, str(secrets.randbits(32)))


def pytest_report_header() -> str:
    """Say how to have the same random cases again."""
    return f"random cases: {_SEED}={os.environ[_SEED]}"
