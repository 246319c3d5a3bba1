"""Replicas for a wanted load and latency, from what was measured; only their number is extrapolated."""

import math
from dataclasses import dataclass

from rayrank.capacity.records import Capacity, LoadCurve, LoadPoint
from rayrank.core.errors import ConfigError

HEADROOM = 0.3
"""The share of a replica's capacity that a plan leaves unused, for peaks and for the loss of a replica."""
FEWEST_SHARE = 0.5
"""A plan may be for fewer documents than were measured, down to this share of the fewest. Such requests cost less, so
the plan has more replicas than needed."""


@dataclass(frozen=True)
class Plan:
    """So many replicas carry the wanted load within the wanted p95."""

    replicas: int
    documents: int
    """Documents of the measured requests that the plan stands on: as many as wanted, or the next larger number."""
    point: LoadPoint
    """The highest measured load within the wanted p95."""
    planned: float
    """Requests per second of each replica, after the headroom."""
    is_highest: bool
    """Whether no higher load was measured, so that a replica may carry more."""


def per_replica(point: LoadPoint) -> float:
    """Return the requests per second of each replica."""
    return point.rps / point.replicas


def carried(curve: LoadCurve, p95: float) -> LoadPoint | None:
    """Return the highest load a replica was measured to carry: it, and all lower ones, have no failure and this p95."""
    best = None
    for point in sorted(curve.points, key=per_replica):
        if point.failures or point.p95 > p95:
            break
        best = point
    return best


def plan(capacity: Capacity, rps: float, documents: int, p95: float, headroom: float = HEADROOM) -> Plan:
    """Return the replicas for so many requests a second; raises ConfigError where the measurement does not say it."""
    curve = _curve(capacity, documents)
    point = carried(curve, p95)
    if point is None:
        lowest = min(curve.points, key=per_replica)
        raise ConfigError(
            f"--p95-ms {1000 * p95:g} cannot be reached by more replicas: at the lowest measured load, "
            f"{per_replica(lowest):.2g} requests/s of {curve.documents} documents on a replica, the p95 was "
            f"{1000 * lowest.p95:,.0f} ms with {lowest.failures} failures; send fewer documents, or use a smaller "
            f"model, int8 or a GPU, and measure again."
        )
    planned = per_replica(point) * (1 - headroom)
    highest = max(map(per_replica, curve.points))
    # A load that divides evenly must not get another replica by a rounding error.
    replicas = max(1, math.ceil(rps / planned - 1e-9))
    return Plan(replicas, curve.documents, point, planned, per_replica(point) == highest)


def _curve(capacity: Capacity, documents: int) -> LoadCurve:
    """Return the measured curve with as many documents, or the next larger number."""
    known = sorted(capacity.curves, key=lambda curve: curve.documents)
    fewest, most = known[0].documents, known[-1].documents
    if not FEWEST_SHARE * fewest <= documents <= most:
        measured = ", ".join(str(curve.documents) for curve in known)
        raise ConfigError(
            f"--documents {documents} is far outside what was measured ({measured} documents per request): measure it "
            f"with rayrank plan --measure URL --documents {documents}."
        )
    return next(curve for curve in known if curve.documents >= documents)


def sentences(found: Plan, capacity: Capacity, rps: float, documents: int, p95: float) -> list[str]:
    """Return what a plan says, and what it stands on."""
    point, on_gpu = found.point, capacity.device.startswith("cuda")
    several = "s" if found.replicas > 1 else ""
    what = "each with the GPU, or the share of one, that the measured replica had" if on_gpu else (
        "each with as many cores as the measured replica had (resources.cpus)"
    )  # fmt: skip
    lines = [
        f"{found.replicas} replica{several} of {capacity.model}, {what}, for {rps:g} requests/s of {documents} "
        f"documents within a p95 of {1000 * p95:g} ms",
        f"a replica carried {per_replica(point):.3g} requests/s of {found.documents} documents with a p95 of "
        f"{1000 * point.p95:,.0f} ms ({point.num_requests} requests, {capacity.created[:10]}); the plan loads it with "
        f"{found.planned:.3g}",
    ]
    if found.is_highest:
        lines.append("this was the highest load that was measured, so a replica may carry more")
    if found.documents != documents:
        lines.append(f"planned as for {found.documents} documents, the next larger number that was measured")
    if found.replicas > point.replicas:
        lines.append(
            f"it was measured with {point.replicas} replica{'s' if point.replicas > 1 else ''}: that more of them add "
            f"up is assumed; the ingress and the network were not measured beyond {point.rps:.3g} requests/s"
        )
    lines.append(f"serve it: scaling.max={found.replicas}, on machines like the measured one")
    return lines
