"""What holds for all tests."""

from hypothesis import HealthCheck, settings

# The machine may be busy with something else: no property depends on how long an example takes.
settings.register_profile(
    "patient", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("patient")
