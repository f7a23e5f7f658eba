"""The machine's clock. Rules and plans take the instant as a value."""

from datetime import UTC, datetime


def now() -> datetime:
    """The present, by the machine's clock, in UTC. Spans are measured by ``time.monotonic``."""
    return datetime.now(UTC)  # noqa: TID251 - this is the rim, and its only clock
