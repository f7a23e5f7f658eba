"""``usher`` runs the executable inside the test's process, as for the other commands."""

from tests.cli.conftest import usher

__all__ = ["usher"]
