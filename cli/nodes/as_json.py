"""The outlook for programs: one JSON object with camelCase keys (docs/node-health.md)."""

import json
from typing import Any

from cli.nodes.outlook import Outlook
from controller.node_health.planning.budget import Waiting
from controller.node_health.planning.simulation import Course, Departure
from controller.node_health.planning.zones import Zone, ZoneStatus
from rules.times import format_time


def render(outlook: Outlook) -> str:
    """The object, indented."""
    plan, budgets = outlook.plan, outlook.budgets
    heads = {turn.node.zone: turn.node.name for turn in plan.turns}
    document = {
        "now": format_time(outlook.now),
        "until": format_time(outlook.course.end),
        "isDown": plan.status.is_down,
        "podsKnown": outlook.knows_pods,
        "zones": [
            {
                **_zone(zone),
                **_status(status),
                "budget": round(budgets[zone], 4) if budgets is not None else None,
                "next": heads.get(zone),
                "waiting": [_waiting(item) for item in plan.queues[zone]],
            }
            for zone, status in plan.status.zones.items()
        ],
        "refusedByBudgets": None
        if outlook.refusals is None
        else [
            {**each.pod._asdict(), "node": each.node, "budget": each.budget, "reason": each.reason}
            for each in outlook.refusals
        ],
        **_course(outlook.course),
    }
    return json.dumps(document, indent=2)


def _course(course: Course) -> dict[str, Any]:
    return {
        "zoneChanges": [
            {"time": format_time(change.time), **_zone(change.zone), **_status(change.status)}
            for change in course.zone_changes
        ],
        "evictions": [_departure(item) for item in course.departures],
        "withdrawals": [_departure(item) for item in course.withdrawals],
    }


def _zone(zone: Zone) -> dict[str, Any]:
    return {"region": zone.region, "zone": zone.name}


def _status(status: ZoneStatus) -> dict[str, Any]:
    return {
        "state": str(status.state),
        "nodes": status.nodes,
        "unhealthyNodes": status.unhealthy,
        "unhealthyFraction": round(status.unhealthy_fraction, 4),
        "evictionRate": status.rate,
    }


def _waiting(item: Waiting) -> dict[str, Any]:
    return {"node": item.node, "since": format_time(item.since)}


def _departure(item: Departure) -> dict[str, Any]:
    return {
        "time": format_time(item.time),
        **_zone(item.zone),
        "node": item.node,
        "pods": item.pods,
    }
