"""What there is to show: how the zones stand, and what would happen from now on."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from cli.nodes.budgets import Refusal
from controller.node_health.planning.plan import NodeHealthPlan
from controller.node_health.planning.simulation import Course
from controller.node_health.planning.zones import Zone


@dataclass(frozen=True, slots=True)
class Outlook:
    """The answer of ``usher nodes``."""

    now: datetime
    plan: NodeHealthPlan
    """At :attr:`now`."""
    course: Course
    knows_pods: bool
    is_simulated: bool
    """Whether a timeline says what happens to nodes; else nothing more happens to them."""
    budgets: Mapping[Zone, float] | None = None
    """What each zone has saved up at :attr:`now`, from 0 to 1 node, as a controller has told; None:
    that is not known, and each zone is taken to be good for one."""
    refusals: tuple[Refusal, ...] | None = None
    """The pods that PodDisruptionBudgets would keep on failed nodes; None: these are not known."""
