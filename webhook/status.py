"""What the server knows of itself, for those who ask whether it is ready."""

from dataclasses import dataclass


@dataclass(slots=True)
class Status:
    """How far the server is."""

    is_serving: bool = False
    """Whether it takes connections."""
    knows_time: bool = False
    """Whether the time to judge by is known."""
    is_draining: bool = False
    """Whether it has been told to end."""
