"""The page of a report in a real browser: narrow and wide, light and dark."""

from pathlib import Path

import pytest

from rayrank.reports.page import against
from rayrank.reports.page.report import files
from tests.unit.reports.example_facts import complete, complete_against
from tests.unit.reports.test_report_page import OPTIONS

playwright = pytest.importorskip("playwright.sync_api", reason="the page is opened by the package playwright")
Browser = playwright.Browser

FAULTS = """() => {
  const faults = []
  for (const svg of document.querySelectorAll("svg")) {
    const name = svg.getAttribute("aria-label"), frame = svg.getBoundingClientRect()
    const texts = [...svg.querySelectorAll("text")].map(text => [text.textContent, text.getBoundingClientRect()])
    texts.forEach(([text, box], place) => {
      if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.bottom > frame.bottom + 1)
        faults.push(`${name}: ${text} is cut off`)
      for (const [other, its] of texts.slice(place + 1))
        if (Math.min(box.right, its.right) - Math.max(box.left, its.left) > 1 &&
            Math.min(box.bottom, its.bottom) - Math.max(box.top, its.top) > 3)
          faults.push(`${name}: ${text} is over ${other}`)
    })
  }
  return faults
}"""
"""Texts of charts that are cut off or overlap."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    pages = files(complete(), OPTIONS) | against.files(complete_against(), "against", "rayrank report")
    for name, content in pages.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", ["report.html", "against.html"])
def test_the_page_opens_without_faults_or_requests_and_no_text_overlaps(
    browser: Browser, folder: Path, name: str, width: int, theme: str
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=theme)
    said: list[str] = []
    requested: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: requested.append(request.url))
    url = (folder / name).as_uri()
    page.goto(url)

    assert page.evaluate(FAULTS) == []
    assert (said, requested) == ([], [url])
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (theme == "light")
    page.close()


def test_a_chart_is_saved_as_the_file_that_lies_beside_the_page(browser: Browser, folder: Path) -> None:
    page = browser.new_page(accept_downloads=True)
    page.goto((folder / "report.html").as_uri())
    with page.expect_download() as download:
        page.get_by_role("button").first.click()

    saved = Path(download.value.path()).read_text()
    beside = (folder / download.value.suggested_filename).read_text()
    assert saved.startswith("<svg")
    assert "prefers-color-scheme" in saved
    assert saved.count("<path") == beside.count("<path")
    page.close()
