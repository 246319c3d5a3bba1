"""The pages in a real browser, against the HTTP API with a scorer whose scores can be computed by hand."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rayrank.serve.config import ServeConfig
from rayrank.serve.records import Answer, Ask, Info
from tests.unit.serve_api.conftest import WordScorer

playwright = pytest.importorskip("playwright.sync_api", reason="the pages are driven by the package playwright")
Browser, Route, expect = playwright.Browser, playwright.Route, playwright.expect
# The default of five seconds would fail on a busy machine, not on a slow page.
expect.set_options(timeout=30_000)


def test_a_key_that_is_typed_while_the_page_of_the_routes_loads_is_sent(
    browser: Browser, start: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "keys").write_text("sesame\n")
    url = start(ServeConfig(name="words", keys_file=str(tmp_path / "keys")))
    page, held = browser.new_page(), list[Route]()
    page.route("**/openapi.json", lambda route: held.append(route))
    with page.expect_request("**/openapi.json"):
        page.goto(f"{url}/docs")
    page.get_by_label("API key").fill("sesame")
    held[0].continue_()
    route = page.locator('[id="POST/v1/rerank"]')
    route.locator("summary").click()
    route.get_by_role("button", name="Send").click()
    expect(route.locator("pre")).to_contain_text('"relevance_score"')

    # The other page finds the key in the session.
    page.goto(url)
    expect(page.locator("#model")).to_contain_text("words")
    expect(page.get_by_role("alert")).to_be_hidden()
    page.close()


def test_the_page_offers_the_models_of_a_server_that_has_several(browser: Browser, start: Callable[..., str]) -> None:
    large, small = WordScorer("large"), WordScorer("small")
    page = browser.new_page()
    page.goto(start(ServeConfig(name="large"), large, small))
    expect(page.locator("#model")).to_contain_text("large")
    page.get_by_label("Model", exact=True).select_option("small")
    expect(page.locator("#model")).to_contain_text("small")
    page.get_by_label("Query", exact=True).fill("whales")
    page.get_by_label("Passages, in any order").fill("bread\n\nwhales")
    page.get_by_role("button", name="Re-rank").click()
    expect(page.locator(".card .text")).to_have_text(["whales", "bread"])
    assert not large.asks
    assert len(small.asks) == 2
    page.close()


@pytest.mark.parametrize("fuses", [True, False])
def test_the_page_says_what_decides_the_order_of_retrieved_passages(
    browser: Browser, start: Callable[..., str], fuses: bool
) -> None:
    class Weighted(WordScorer):
        async def info(self) -> Info:
            return replace(await super().info(), first_stage_weight=0.4)

        async def rerank(self, ask: Ask) -> Answer:
            answer = await super().rerank(ask)
            return replace(answer, fused=dict.fromkeys(answer.order, 1.0) if fuses else {})

    page = browser.new_page()
    config = ServeConfig.model_validate({"name": "words", "search": {"run": "there", "depth": 3}})
    page.goto(start(config, Weighted()))
    expect(page.locator("#model")).to_contain_text("words")
    page.get_by_label("Query", exact=True).fill("whales breathe")
    page.get_by_label("retrieve them from the index").check()
    page.get_by_label("How many to retrieve").fill("3")
    page.get_by_role("button", name="Re-rank").click()
    expect(page.locator("#status")).to_contain_text("3 passages scored")
    fused, weighted = "The order is by fused scores", "The first stage has a weight of 0.4, the model 0.6."
    expect(page.locator("#status")).to_contain_text(fused if fuses else weighted)
    expect(page.locator("#status")).not_to_contain_text(weighted if fuses else fused)
    page.close()


def test_the_page_of_a_single_model_offers_no_choice(browser: Browser, api: str) -> None:
    page = browser.new_page()
    page.goto(api)
    expect(page.locator("#model")).to_contain_text("words")
    expect(page.get_by_label("Model", exact=True)).to_be_hidden()
    page.close()
