"""The web page in a real browser, against the real application."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from ray import serve

from rayrank.serve.app import build

playwright = pytest.importorskip("playwright.sync_api", reason="the page is driven by the package playwright")
Browser, Page, expect = playwright.Browser, playwright.Page, playwright.expect
# The default of five seconds would fail on a busy machine, not on a slow page.
expect.set_options(timeout=30_000)

PASSAGES = [
    "Bread is baked in the oven.",
    "A bogue is a fish.",
    "The Bogart films.\nIn a second line.",
    "Nothing <b>.</b>",
]
PHONE = {"viewport": {"width": 360, "height": 740}, "is_mobile": True, "has_touch": True}


@pytest.fixture(scope="module")
def closed(
    serving: str, model_folder: Path, run_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The URL of an endpoint with a first stage, an API key and a route prefix."""
    keys = tmp_path_factory.mktemp("closed") / "keys"
    keys.write_text("sesame\n")
    settings = {"model": str(model_folder), "search.run": str(run_folder), "keys_file": str(keys)}
    serve.run(build(settings), name="closed", route_prefix="/closed")
    yield f"{serving}/closed/"
    serve.delete("closed")


@pytest.fixture
def page(browser: Browser, server: str) -> Iterator[Page]:
    with opened(browser, server) as page:
        yield page


@pytest.fixture
def phone(browser: Browser, server: str) -> Iterator[Page]:
    with opened(browser, server, **PHONE) as page:
        yield page


@contextmanager
def opened(browser: Browser, url: str, **options: object) -> Iterator[Page]:
    """Open the page; a JavaScript error or a request to another server fails the test."""
    context = browser.new_context(reduced_motion="reduce", **options)
    page, faults = context.new_page(), []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("request", lambda request: None if request.url.startswith(url) else faults.append(request.url))
    page.goto(url)
    yield page
    context.close()
    assert not faults


def ask(page: Page, query: str = "what is a bogue", passages: list[str] = PASSAGES) -> None:
    page.get_by_label("Query", exact=True).fill(query)
    page.get_by_label("Passages, in any order").fill("\n\n".join(passages))
    page.get_by_role("button", name="Re-rank").click()
    expect(page.locator(".card")).to_have_count(len(passages))


def width(page: Page) -> int:
    return int(page.evaluate("document.documentElement.scrollWidth"))


def test_passages_have_the_order_and_the_scores_of_the_server(page: Page, server: str) -> None:
    request = {"query": "what is a bogue", "documents": PASSAGES}
    chances, logits = (
        httpx.post(f"{server}/v1/rerank", json={**request, "raw_scores": raw}).json() for raw in (False, True)
    )

    ask(page)

    order = [result["index"] for result in chances["results"]]
    texts = page.locator(".card .text").all_text_contents()
    assert texts == [PASSAGES[index] for index in order]
    percents = [f"{100 * result['relevance_score']:.1f} %" for result in chances["results"]]
    assert page.locator(".percent").all_text_contents() == percents
    shown = [
        float(text.removeprefix("logit ").replace("−", "-")) for text in page.locator(".logit").all_text_contents()
    ]
    assert shown == pytest.approx([result["relevance_score"] for result in logits["results"]], abs=0.006)
    assert page.locator(".moved").all_text_contents() == [
        "=" if index == place else f"{'▲' if index > place else '▼'} {abs(index - place)}"
        for place, index in enumerate(order)
    ]
    expect(page.get_by_role("status").first).to_contain_text(f"Query type: {chances['query_type']}.")


def test_a_selected_query_type_is_used(page: Page) -> None:
    page.get_by_label("Query type").select_option("location")

    ask(page)

    expect(page.get_by_role("status").first).to_contain_text("Query type: location.")


def test_words_of_the_query_and_words_of_several_pieces_are_marked(page: Page) -> None:
    ask(page)

    card = page.locator(".card", has_text="A bogue is a fish.")
    expect(card.locator("mark.several")).to_have_text(["bogue"])
    expect(card.locator("mark.exact")).to_have_text(["A", "bogue", "is", "a"])
    expect(page.locator(".card", has_text="Bogart").locator(".several")).to_have_text(["Bogart"])


def test_an_explanation_shows_words_pieces_and_attention_in_both_forms(page: Page, server: str) -> None:
    why = httpx.post(f"{server}/explain", json={"query": "what is a bogue", "document": PASSAGES[1]}).json()
    ask(page)
    card = page.locator(".card", has_text="A bogue is a fish.")

    card.get_by_role("button", name="Explain").click()

    expect(card.locator(".word")).to_have_text("what is a bogue A bogue is a fish .".split())
    expect(card.locator(".split-words li")).to_have_text(["bogue = bog + ##ue"])
    expect(card.locator(".split-words b.piece")).to_have_text(["##ue"])
    cells = card.locator(".weight")
    expect(cells).to_have_count(6 * 2 * 4)
    card.get_by_label("Layer").select_option("1")
    card.get_by_label("Head").select_option("3")
    cells.nth(8 + 7).hover()
    weight = why["attention"]["without_strm"]["weights"][0][2][3][1]
    shown = f"“bogue” gives “bogue” {100 * weight:.{2 if weight < 0.1 else 1}f} % of its attention, without STRM."
    expect(card.locator(".attention .reading")).to_have_text(shown)


def test_rare_words_of_the_query_are_marked_more_strongly_than_frequent_ones(page: Page) -> None:
    ask(page, "is the bogue a fish", ["A bogue is a fish.", "The cod is a fish.", "The hake is a fish."])

    marks = page.locator(".card", has_text="bogue").locator("mark.exact")
    strength = marks.evaluate_all(
        "marks => marks.map(mark => [mark.textContent, +mark.style.getPropertyValue('--rarity')])"
    )
    found = dict(strength)
    assert found["bogue"] == 1
    assert found["is"] == found["a"] == 0.15 < found["fish"] < 0.5


def test_lines_that_would_be_one_passage_are_pointed_out_and_can_be_separated(page: Page) -> None:
    page.get_by_label("Passages, in any order").fill("Bread is baked.\nA bogue is a fish.\n")
    expect(page.locator("#count")).to_have_text("These 2 lines are one passage, because no empty line separates them.")

    page.get_by_role("button", name="Make each line a passage").click()

    expect(page.locator("#count")).to_have_text("2 passages")
    expect(page.get_by_role("button", name="Make each line a passage")).to_be_hidden()
    expect(page.get_by_label("Passages, in any order")).to_have_value("Bread is baked.\n\nA bogue is a fish.")


def test_a_passage_that_is_not_read_to_its_end_is_named_and_marked_where_reading_stopped(page: Page) -> None:
    expect(page.get_by_text("Sorts passages by how well they answer a query.")).to_be_visible()
    expect(page.locator("#model")).to_contain_text("word pieces")
    ask(page, passages=["A bogue is a fish. " * 60, *PASSAGES])

    status, card = page.get_by_role("status").first, page.locator(".card", has_text="fish. A bogue")
    expect(status).to_be_in_viewport()
    expect(status).to_contain_text("5 passages scored")
    expect(status.locator(".warning")).to_have_text(
        "Passage 1: longer than what the model reads; the ends were not read."
    )
    expect(card.locator(".unread-end")).to_be_visible()
    card.get_by_role("button", name="Explain").click()
    expect(card.locator(".stop")).to_have_text("the model stopped reading here")
    expect(card.locator(".unread")).to_contain_text("A bogue is a fish.")
    # The picture of so many words is cut by its frame, which the page says.
    frame = card.locator(".frame")
    expect(card.locator(".more")).to_contain_text("goes on below")
    card.get_by_role("button", name="Show the whole picture").click()
    expect(card.locator(".more")).to_be_hidden()
    assert frame.evaluate("frame => frame.scrollHeight <= frame.clientHeight + 1")


def test_passages_below_the_wanted_precision_are_left_out_with_a_sentence(page: Page) -> None:
    page.get_by_text("How sure is this model?").click()
    expect(page.locator("#about tbody tr")).to_have_count(3)
    expect(page.locator("#about tbody")).to_contain_text("90 %")
    expect(page.locator("#about tbody")).to_contain_text("dev is too small")

    page.get_by_label("Show", exact=True).select_option("passages above the threshold for 50 % precision")
    ask(page)
    page.get_by_label("Show", exact=True).select_option("passages above the threshold for 90 % precision")
    page.get_by_role("button", name="Re-rank").click()

    expect(page.locator("#status .warning")).to_contain_text("No result: no passage reaches min_precision=0.9")
    expect(page.locator(".card")).to_have_count(0)


def test_an_empty_query_is_reported_until_it_is_typed(page: Page) -> None:
    page.get_by_role("button", name="Re-rank").click()
    expect(page.get_by_role("alert")).to_have_text("The query is empty. Type a question or some keywords.")
    expect(page.get_by_label("Query", exact=True)).to_be_focused()

    ask(page)

    expect(page.get_by_role("alert")).to_be_hidden()


def test_the_servers_error_message_is_shown(page: Page) -> None:
    page.get_by_label("Query", exact=True).fill("bread")
    # Typing so much text would take half a minute.
    page.get_by_label("Passages, in any order").evaluate("(field) => { field.value = 'a\\n\\n'.repeat(1001); }")
    page.get_by_role("button", name="Re-rank").click()

    expect(page.get_by_role("alert")).to_contain_text("1001 are too many; send at most 1000 per request.")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"status": 429, "headers": {"Retry-After": "7"}, "body": "{}"}, "Try again in 7 seconds."),
        ({"status": 503, "body": "no replica"}, "The model is not ready yet."),
        ({"status": 502, "body": "<html>"}, "The server answered with the error 502."),
        (None, "The server cannot be reached."),
    ],
)
def test_failures_of_the_server_are_explained(page: Page, answer: dict | None, message: str) -> None:
    page.route("**/v1/rerank", lambda route: route.fulfill(**answer) if answer else route.abort())

    page.get_by_label("Query", exact=True).fill("bread")
    page.get_by_label("Passages, in any order").fill("a loaf")
    page.get_by_role("button", name="Re-rank").click()

    expect(page.get_by_role("alert")).to_contain_text(message)


def test_what_the_server_does_not_offer_is_not_shown(page: Page, server: str) -> None:
    info = {**httpx.get(f"{server}/info").json(), "explain": False, "docs": False}
    page.route("**/info", lambda route: route.fulfill(json=info))
    page.reload()

    expect(page.get_by_role("link", name="The API behind this page")).to_be_hidden()
    ask(page)
    expect(page.locator(".card .explain").first).to_be_hidden()


@pytest.mark.slow
def test_the_page_asks_for_an_api_key_if_the_server_requires_one(browser: Browser, closed: str) -> None:
    with opened(browser, closed) as page:
        expect(page.get_by_role("alert")).to_contain_text("The server requires an API key.")
        page.get_by_label("API key").fill("wrong")
        page.get_by_role("button", name="Show me an example").click()
        expect(page.get_by_role("alert")).to_contain_text("The server does not know this API key.")
        expect(page.get_by_label("API key")).to_be_focused()

        page.get_by_label("API key").fill("sesame")
        page.keyboard.press("Enter")

        expect(page.locator(".card")).to_have_count(6)
        expect(page.get_by_role("alert")).to_be_hidden()
        expect(page.get_by_label("retrieve them from the index")).to_be_visible()


@pytest.mark.slow
def test_retrieved_passages_move_from_the_order_of_the_first_stage(browser: Browser, closed: str) -> None:
    request = {"query": "where is the lighthouse", "depth": 7}
    found = httpx.post(f"{closed}search", json=request, headers={"Authorization": "Bearer sesame"}).json()["results"]
    with opened(browser, closed) as page:
        page.get_by_label("API key").fill("sesame")
        page.get_by_role("button", name="Show me an example").click()
        page.get_by_label("retrieve them from the index").check()
        page.get_by_label("How many to retrieve").fill("7")
        page.get_by_label("Query", exact=True).fill("where is the lighthouse")
        page.keyboard.press("Enter")

        expect(page.locator(".card .text")).to_have_text([hit["text"] for hit in found])
        moves = [hit["first_stage_rank"] - place for place, hit in enumerate(found, start=1)]
        signs = ["=" if not up else f"{'▲' if up > 0 else '▼'} {abs(up)}" for up in moves]
        expect(page.locator(".moved")).to_have_text(signs)
        scores = [f"first stage {hit['first_stage_score']:.2f}" for hit in found]
        expect(page.locator(".first")).to_have_text(scores)


def test_everything_can_be_done_by_keyboard(page: Page) -> None:
    def press(*keys: str) -> None:
        for key in keys:
            page.keyboard.press(key)

    press("Tab")
    page.keyboard.type("what is a bogue")
    press("Tab")
    page.keyboard.type("A bogue is a fish.\n\nBread.")
    press("Control+Enter")
    expect(page.locator(".card")).to_have_count(2)
    expect(page.get_by_role("heading", name="Best first")).to_be_focused()
    press("Tab")
    expect(page.get_by_role("button", name="Explain passage 1")).to_be_focused()
    press("Enter")
    panel = page.locator(".card").first.locator(".why")
    expect(panel.get_by_role("grid")).to_be_visible()
    press("Tab", "ArrowRight")
    expect(panel.locator(".effects .reading")).to_contain_text("Without “is” the score")
    press("Tab", "Tab", "Tab", "Tab", "ArrowRight", "ArrowDown")
    expect(panel.locator(".weight").nth(9)).to_be_focused()
    expect(panel.locator(".attention .reading")).to_contain_text("“is” gives")


def test_a_phone_shows_the_page_without_horizontal_scrolling(phone: Page, tmp_path: Path) -> None:
    long = ["x" * 300, *PASSAGES]
    ask(phone, "what is " + "bogue" * 30 + " and who ate all of the fish in the sea", long)
    phone.get_by_role("button", name="Explain passage 1").click()
    expect(phone.get_by_role("grid")).to_be_visible()

    phone.screenshot(path=tmp_path / "phone.png", full_page=True)

    assert width(phone) == 360
    small = phone.evaluate(
        "[...document.querySelectorAll('button, select, input')].filter((each) => each.offsetParent)"
        ".filter((each) => each.getBoundingClientRect().height < 24).map((each) => each.outerHTML)"
    )
    assert small == []


def test_cards_are_animated_unless_the_user_prefers_reduced_motion(browser: Browser, server: str) -> None:
    for motion, moving in (("no-preference", True), ("reduce", False)):
        context = browser.new_context(reduced_motion=motion)
        page = context.new_page()
        page.add_init_script("Element.prototype.animate = () => { window.moved = true; }")
        page.goto(server)
        ask(page)
        assert bool(page.evaluate("window.moved")) == moving
        context.close()


def test_the_page_of_the_routes_describes_and_tries_each_of_them(browser: Browser, server: str) -> None:
    paths = httpx.get(f"{server}/openapi.json").json()["paths"]
    with opened(browser, server) as page:
        page.goto(f"{server}/docs")
        expect(page.locator("details.route")).to_have_count(sum(len(methods) for methods in paths.values()))
        for path, found in (("/v1/rerank", '"relevance_score"'), ("/score", '"score"'), ("/predict", '"LABEL_0"')):
            route = page.locator(f'[id="POST{path}"]')
            route.locator("summary").click()
            route.get_by_role("button", name="Send").click()
            expect(route.locator("pre")).to_contain_text(found)
