"""The page of a report: every figure is the fact that it names, and nothing is read from elsewhere."""

import json
import re
import time
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import pytest

from rayrank.reports.page import against
from rayrank.reports.page.report import PAGE, files
from tests.unit.reports.example_facts import complete, complete_against

OPTIONS = "--preset demo --dataset demo --storage .rayrank"


class Page(HTMLParser):
    """What a browser reads from a page: its text by element, the figures that name a fact, and what it would fetch."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.figures: list[tuple[str, str]] = []
        self.fetched: list[str] = []
        self.scripts: list[tuple[str | None, str]] = []
        self._path: str | None = None
        self._script: tuple[str | None] | None = None
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.fetched += [value or "" for name, value in attrs if name in ("src", "srcset", "href", "data", "action")]
        self._path = found.get("data-path") if tag == "data" else None
        self._script = (found.get("type"),) if tag == "script" else None

    def handle_data(self, data: str) -> None:
        if self._path is not None:
            self.figures.append((self._path, data))
        if self._script is not None:
            self.scripts.append((*self._script, data))
        self._path = self._script = None


def at(facts: Any, path: str) -> Any:
    for part in path.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        facts = facts[int(name)] if isinstance(facts, list) else facts[name]
    return facts


def shown(text: str) -> tuple[float, float]:
    """Return the number that a text shows and the largest rounding error that its digits allow."""
    digits = text.replace(",", "").removesuffix("%")
    scale = 100 if text.endswith("%") else 1
    decimals = len(digits.partition("e")[0].partition(".")[2])
    exponent = int(digits.partition("e")[2] or 0)
    return float(digits) / scale, 0.51 * 10.0 ** (exponent - decimals) / scale


def check_figures(html: str, facts: Any) -> int:
    """Check every figure against the fact that it names; return how many there are."""
    page = Page(html)
    for path, text in page.figures:
        value = at(facts, path)
        if isinstance(value, str):
            assert text == value, path
        elif text.startswith("<"):
            assert value < float(text[1:]), path
        else:
            number, error = shown(text)
            assert number == pytest.approx(value, abs=error), path
    return len(page.figures)


def test_every_figure_is_the_fact_that_it_names() -> None:
    facts = complete()
    html = files(facts, OPTIONS)[PAGE].decode()

    assert check_figures(html, facts) > 200
    (embedded,) = [text for kind, text in Page(html).scripts if kind == "application/json"]
    assert json.loads(embedded) == json.loads(json.dumps(facts))


def test_points_of_charts_lie_where_their_facts_are() -> None:
    facts = complete()
    svg = ElementTree.fromstring(files(facts, OPTIONS)["recall.svg"])

    points = [each.get("d", "") for each in svg.iter("{http://www.w3.org/2000/svg}path") if each.get("class") == "f0"]
    places = [tuple(map(float, re.findall(r"[\d.]+", point)[:2])) for point in points[1:]]  # the first is the legend's
    grid = [each.get("d", "") for each in svg.iter("{http://www.w3.org/2000/svg}path") if each.get("class") == "grid"]
    heights = [float(re.findall(r"[\d.]+", line)[1]) for line in grid if "H" in line]
    bottom, top = max(heights), min(heights)
    recall = [point["recall"] for point in facts["reach"]["runs"][0]["recall"]]
    assert [(bottom - y) / (bottom - top) for _, y in places] == pytest.approx(recall, abs=0.005)


def test_a_page_fetches_nothing_and_texts_of_the_corpus_stay_text() -> None:
    facts = complete()
    html = files(facts, OPTIONS)[PAGE].decode()
    page = Page(html)

    assert all(each.startswith("#") or each == "data:," for each in page.fetched)
    assert "url(" not in html.replace("URL.", "")
    assert "@import" not in html
    assert len(page.scripts) == 2
    assert "<b>bold</b>" not in html


def test_the_comparison_of_two_storages_shows_its_facts_and_fetches_nothing() -> None:
    facts = complete_against()
    found = against.files(facts, "against-0", "rayrank report --against results")
    html = found["against-0.html"].decode()

    assert check_figures(html, facts) > 50
    assert all(each.startswith("#") or each == "data:," for each in Page(html).fetched)
    assert "<b>bold</b>" not in html
    assert {"against-0-runs.svg", "against-0-outcomes.svg", "against-0-differences.svg", "against-0-cost.svg"} < set(
        found
    )


def test_the_section_of_a_missing_result_says_what_to_run() -> None:
    names = ("reach", "comparison", "noise", "calibration", "ablations", "sweeps", "distillations", "learning_curve")
    names += ("cut_words", "capacity")
    facts = complete() | dict.fromkeys(names) | {"evaluations": [], "phases": [], "cost": [], "choice": None}
    html = files(facts, OPTIONS)[PAGE].decode()

    sections = re.findall(r'<section id="([\w-]+)">(.*?)</section>', html, re.S)
    assert len(sections) == 13
    for name, section in sections:
        assert re.search(rf"<code>rayrank .*{OPTIONS}", section), name


def test_charts_are_images_by_themselves_in_both_themes() -> None:
    for name, content in files(complete(), OPTIONS).items():
        if name != PAGE:
            root = ElementTree.fromstring(content)
            assert root.get("viewBox", "").startswith("0 0 440 ")
            assert "prefers-color-scheme:dark" in (root[0].text or "")


@pytest.mark.slow
@pytest.mark.timed
def test_a_hundred_thousand_queries_make_a_small_page_within_a_minute() -> None:
    started = time.monotonic()
    facts = complete(100_000, resamples=500)
    html = files(facts, OPTIONS)[PAGE]

    assert time.monotonic() - started < 60
    assert check_figures(html.decode(), facts)
    assert len(html) < 3_000_000
