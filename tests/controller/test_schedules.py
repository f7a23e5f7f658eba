"""Random schedules of everything that can go wrong, in virtual time; see ``schedules.py``.

``USHER_SCHEDULES`` says how many; ``make soak`` lives through ten thousand.
"""

import os
import random
from typing import Final

import pytest

from tests.controller.schedules import live_through

COUNT: Final = int(os.environ.get("USHER_SCHEDULES", "500"))
CHUNK: Final = 50

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("chunk", range(max(COUNT // CHUNK, 1)))
def test_what_is_said_for_good_is_true_whatever_happens(chunk: int) -> None:
    """No live pod is called gone, no wish is lost, nobody who shows life is passed over."""
    dice = random.Random(f"{os.environ['USHER_TEST_SEED']}/{chunk}")
    for _ in range(min(CHUNK, COUNT)):
        schedule = live_through(seed := dice.randrange(2**32))
        assert not schedule.found, "\n".join((f"seed {seed}", *schedule.log))


def test_a_schedule_can_be_repeated() -> None:
    assert live_through(7).log == live_through(7).log
