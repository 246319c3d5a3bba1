"""The dashboard for Grafana: its form, and that the endpoint or this version of Ray exports every metric in it."""

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import ray.dashboard.modules.metrics.dashboards as of_ray
from prometheus_client.parser import text_string_to_metric_families

from rayrank.serve.metrics import Metrics

FILE = Path(__file__).resolve().parents[2] / "deploy" / "grafana" / "rayrank.json"
NAME = re.compile(r"\b(?:rayrank|ray|autoscaler)_[a-z_]+")


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))["panels"]
    return found


def used(prefix: str) -> set[str]:
    text = " ".join(target["expr"] for panel in panels() for target in panel.get("targets", []))
    return {name for name in NAME.findall(text) if name.startswith(prefix)}


def test_panels_have_numbers_of_their_own_a_data_source_and_do_not_overlap() -> None:
    found = panels()
    assert len({panel["id"] for panel in found}) == len(found)
    for panel in found:
        if panel["type"] != "row":
            assert panel["datasource"]["uid"] == "${datasource}"
            assert panel["targets"]
    places = sorted((panel["gridPos"]["y"], panel["gridPos"]["x"], panel["gridPos"]["w"]) for panel in found)
    for (y, x, width), (next_y, next_x, _) in pairwise(places):
        assert next_y > y or next_x >= x + width
    assert json.loads(FILE.read_text(encoding="utf-8"))["templating"]["list"][0]["name"] == "datasource"


def test_every_metric_of_the_endpoint_is_one_that_it_exports() -> None:
    metrics = Metrics()
    metrics.request("/rerank", 200, 0.1)
    metrics.client("shop", 200, 3)
    families = list(text_string_to_metric_families(metrics.text([], {}).decode()))
    shown = used("rayrank_")
    exported = {sample.name for family in families for sample in family.samples}
    # A histogram without observations has no samples, but its family is listed.
    exported |= {f"{family.name}_bucket" for family in families if family.type == "histogram"}
    exported |= {f"{family.name}_total" for family in families if family.type == "counter"}
    assert len(shown) == 6
    assert shown <= exported


def test_every_metric_of_ray_is_one_that_its_own_dashboards_show() -> None:
    folder = Path(of_ray.__file__).parent
    known = set(NAME.findall(" ".join(file.read_text(encoding="utf-8") for file in folder.glob("*.py"))))
    shown = used("ray_") | used("autoscaler_")
    assert len(shown) > 10
    assert shown <= known
