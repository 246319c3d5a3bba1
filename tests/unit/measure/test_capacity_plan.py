"""A plan stands on measured loads alone, and says so where they do not suffice."""

from pathlib import Path

import pytest

from rayrank.capacity.planning import carried, plan, sentences
from rayrank.capacity.records import Capacity, LoadCurve, LoadPoint, read_capacity
from rayrank.core.errors import ConfigError


def point(rps: float, p95: float, replicas: int = 1, failures: int = 0) -> LoadPoint:
    figures = {"achieved": rps, "p50": p95 / 2, "p99": 2 * p95, "num_requests": 100}
    return LoadPoint(rps=rps, p95=p95, replicas=replicas, failures=failures, **figures)


FEW = LoadCurve(documents=10, points=(point(10, 0.05), point(40, 0.15), point(50, 0.5)))
MANY = LoadCurve(documents=25, points=(point(5, 0.1), point(20, 0.19), point(25, 0.3)))
CAPACITY = Capacity(
    model="m", device="cuda", backend="torch", dtype="bfloat16", created="2026-11-19T00:00+00:00", texts="texts",
    words=60, curves=(MANY, FEW),
)  # fmt: skip


def test_replicas_carry_the_wanted_load_with_headroom() -> None:
    found = plan(CAPACITY, rps=40, documents=25, p95=0.2, headroom=0.3)

    # 20 requests a second are within 200 ms, of which 14 are planned: two replicas carry 28, three 42.
    assert (found.point.rps, found.planned, found.replicas) == (20, pytest.approx(14), 3)
    assert plan(CAPACITY, rps=42, documents=25, p95=0.2, headroom=0.3).replicas == 3
    assert plan(CAPACITY, rps=43, documents=25, p95=0.2, headroom=0.3).replicas == 4
    assert plan(CAPACITY, rps=0.1, documents=25, p95=0.2).replicas == 1


def test_a_measurement_of_two_replicas_counts_half_for_each() -> None:
    curve = LoadCurve(documents=25, points=(point(20, 0.1, replicas=2), point(40, 0.19, replicas=2)))
    found = plan(CAPACITY.model_copy(update={"curves": (curve,)}), rps=40, documents=25, p95=0.2, headroom=0)

    assert found.replicas == 2


def test_a_load_with_failures_or_above_one_that_is_too_slow_is_not_carried() -> None:
    lucky = LoadCurve(documents=25, points=(point(5, 0.1), point(10, 0.3), point(20, 0.1)))
    failed = LoadCurve(documents=25, points=(point(5, 0.1), point(10, 0.1, failures=1)))

    assert [found and found.rps for found in (carried(lucky, 0.2), carried(failed, 0.2), carried(failed, 0.05))] == [
        5, 5, None,
    ]  # fmt: skip


def test_numbers_of_documents_between_two_measured_ones_are_planned_as_the_larger() -> None:
    found = plan(CAPACITY, rps=40, documents=12, p95=0.2)

    assert found.documents == 25
    text = " ".join(sentences(found, CAPACITY, 40, 12, 0.2))
    assert "planned as for 25 documents" in text
    assert "that more of them add up is assumed" in text


@pytest.mark.parametrize("documents", [4, 26, 1000])
def test_nothing_is_extrapolated_to_other_numbers_of_documents(documents: int) -> None:
    with pytest.raises(ConfigError, match=f"--documents {documents} is far outside what was measured"):
        plan(CAPACITY, rps=40, documents=documents, p95=0.2)


def test_a_latency_that_one_client_does_not_get_is_not_promised_by_more_replicas() -> None:
    with pytest.raises(ConfigError, match=r"--p95-ms 50 cannot be reached by more replicas.*100 ms"):
        plan(CAPACITY, rps=40, documents=25, p95=0.05)


def test_a_file_that_is_no_measurement_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "capacity.json"
    CAPACITY.write(str(file))
    assert read_capacity("--file", str(file)) == CAPACITY
    file.write_text("{}")
    with pytest.raises(ConfigError, match="is not a measurement of an endpoint: make one with rayrank plan --measure"):
        read_capacity("--file", str(file))
    with pytest.raises(ConfigError, match="cannot be read"):
        read_capacity("--file", str(tmp_path / "none.json"))
