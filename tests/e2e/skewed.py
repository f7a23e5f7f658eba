"""``usher`` on a machine whose clock is ahead: ``python -m tests.e2e.skewed SECONDS …``."""

import sys
from datetime import timedelta

from cluster import clock

if __name__ == "__main__":
    ahead, right = timedelta(seconds=float(sys.argv.pop(1))), clock.now
    clock.now = lambda: right() + ahead
    # After that: others take the function by its name when they are imported.
    from cli.main import main

    main()
