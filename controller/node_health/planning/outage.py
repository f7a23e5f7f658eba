"""The last total outage: a time in which no node at all was healthy, and nobody could be judged.

When it ends the grace of every node starts anew, as in the node controller, which takes its taints
back while the outage lasts (node_lifecycle_controller.go, ``handleDisruption``): nodes that come
back one after another are not to lose their pods while they do. See ADR 62.
"""

from datetime import datetime

from rules.api import ApiType, Time


class Outage(ApiType):
    """The last one that is known, in the form in which it is stored for the next leader, too."""

    seen: Time
    """When it was seen last, or, once :attr:`is_over`, when it was first seen to be over."""
    is_over: bool = False


def outage_after(before: Outage | None, now: datetime, *, is_down: bool) -> Outage | None:
    """What is known at ``now``, ``is_down`` telling whether no node is healthy.

    One that lasted when a leader before looked last is over from ``now`` on: nobody has seen when.
    """
    if is_down:
        return Outage(seen=now)
    if before is not None and not before.is_over:
        return Outage(seen=now, is_over=True)
    return before


def grace_begins(since: datetime, outage: Outage | None) -> datetime:
    """From when on tolerationSeconds count on a node that is down ``since`` then."""
    return max(since, outage.seen) if outage is not None else since
