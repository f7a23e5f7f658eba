"""What there is to show: how the zones stand, and what would happen from now on."""

from dataclasses import dataclass
from datetime import datetime

from controller.planning.node_health import NodeHealthPlan
from controller.simulation import Course


@dataclass(frozen=True, slots=True)
class Outlook:
    """The answer of ``usher nodes``."""

    now: datetime
    plan: NodeHealthPlan
    """At :attr:`now`, with full budgets."""
    course: Course
    knows_pods: bool
    is_simulated: bool
    """Whether a timeline says what happens to nodes; else nothing more happens to them."""
