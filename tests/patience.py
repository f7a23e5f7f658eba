"""How long tests wait for what should happen."""

from typing import Final

PATIENCE: Final = 120.0
"""Seconds after which a test gives up, and fails: a safety net, far above what anything takes.

No test waits so long when all is well. A program that starts in 0.7 s on a quiet machine has taken
29 s on two cores that 25 processes wanted. Not longer than this: a watch that has told something
and then nothing for 150 s is begun anew (``cluster.client``), which hides that an event was lost.
"""
