"""The verdict oracle: what an API server of the pinned release would say to a write.

The program beside this file (Go) runs the API server's own validation; ``Oracle`` talks to it.
"""

from tests.oracle.client import Oracle, OracleError

__all__ = ["Oracle", "OracleError"]
