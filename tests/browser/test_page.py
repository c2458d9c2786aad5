"""The page in a browser: what it shows, on which screens, by which means; and that it asks nobody but its server."""

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest
from changeling_protocol import Survey
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, Route

from ..aggregator.fleet import ANSWERS, FINAL, LOST, SHOWN
from ..aggregator.serving import ServerProcess
from .conftest import OPERATOR, PATIENCE_MS, READER

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(300)]
CLOSED = "What did you do before?"
Opens: TypeAlias = Callable[..., Page]


@pytest.fixture
def opens(chromium: Browser, fleet: tuple[ServerProcess, Survey]) -> Iterator[Opens]:
    """Opens the page in a browser of its own. Afterwards: no error, no violation, no request to anybody else."""
    server, survey = fleet
    wrong: list[str] = []
    contexts = []

    def watch(page: Page) -> None:
        def on_console(message: ConsoleMessage) -> None:
            if message.type in ("error", "warning") or "Content Security Policy" in message.text:
                wrong.append(message.text)

        def on_request(request: Request) -> None:
            if not request.url.startswith((server.url + "/", "blob:", "data:")):
                wrong.append(request.url)

        page.on("console", on_console)
        page.on("request", on_request)
        page.on("pageerror", lambda error: wrong.append(f"{error}"))

    def opened(at_survey: bool = True, **options: Any) -> Page:
        context = chromium.new_context(**({"viewport": {"width": 1100, "height": 900}} | options))
        contexts.append(context)
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        watch(page)
        page.goto(f"{server.url}/" + (f"#{survey.id.hex()}" if at_survey else ""))
        if at_survey:
            settle(page)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert wrong == []


def settle(page: Page) -> None:
    """Wait until all that was asked for is drawn."""
    page.wait_for_selector("#graph .main-svg")
    page.wait_for_selector("#change .main-svg")
    page.wait_for_selector("#survey:not([aria-busy])")


def traces(page: Page, chart: str) -> list[dict[str, Any]]:
    drawn: list[dict[str, Any]] = page.evaluate(
        "id => document.getElementById(id).data.map(({name, x, y, fill}) => ({name, x, y, fill}))", chart
    )
    return drawn


def axis(page: Page, chart: str) -> list[float]:
    """The span of time that a chart shows, in milliseconds."""
    shown: list[float] = page.evaluate(
        "id => document.getElementById(id)._fullLayout.xaxis.range.map((each) => +new Date(each))", chart
    )
    return shown


def overflow(page: Page) -> int:
    width: int = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    return width


def test_the_series_has_lines_with_bands_and_gaps(opens: Opens) -> None:
    """A line for each answer, null where nothing is known, and a band for each run of what is; the reasons in words."""
    page = opens()
    lines = [trace for trace in traces(page, "series") if trace["name"] in ANSWERS]
    assert [line["name"] for line in lines] == list(ANSWERS)
    for line in lines:
        assert [number for number, figure in enumerate(line["y"], 1) if figure is None] == [LOST.start + 1, LOST.end]
    bands = [trace for trace in traces(page, "series") if trace["fill"] == "toself"]
    assert len(bands) == 2 * len(ANSWERS)
    notes = page.inner_text("#series-notes")
    assert f"Unknown: periods {LOST.start + 1} to {LOST.end}" in notes
    assert f"Provisional: periods {FINAL + 1} to {SHOWN}." in notes
    assert f"(period {SHOWN}), final up to period {FINAL}" in page.inner_text("#state")
    assert "90." in page.inner_text("#latest-note")
    assert "ε = 8," in page.inner_text("#ledger")
    for chart in ("change", "members", "graph"):
        assert traces(page, chart)


def test_the_top_tells_epsilon_and_leads_to_every_section(opens: Opens) -> None:
    """ε stands before the first figure; a link for each section that is shown moves the focus to its title."""
    page = opens()
    assert "ε = 8" in page.inner_text("#price")
    titles = page.locator("#survey section:visible > h2").all_inner_texts()
    links = page.locator("#sections a")
    assert links.all_inner_texts() == titles
    assert len(titles) == 9
    for at in (3, 7):
        links.nth(at).click()
        page.wait_for_function("title => document.activeElement.textContent === title", arg=titles[at])
        assert page.is_visible("#series .main-svg")
    page.reload()
    settle(page)
    page.wait_for_function("title => document.activeElement.textContent === title", arg=titles[7])


def test_the_newest_complete_period_leads_and_the_list_tells_how_new_it_is(opens: Opens) -> None:
    """In the list a line with the most frequent answer, and a small chart of it; on the page the period by name."""
    page = opens(at_survey=False)
    page.wait_for_selector(".cards .sparkline .line")
    fresh = page.inner_text(".cards .fresh >> nth=0") + page.inner_text(".cards .fresh >> nth=1")
    assert f"period {SHOWN}: " in fresh
    assert any(answer in fresh for answer in ANSWERS)
    leads = "rows => import('/page/chart.js').then((chart) => chart.newestComplete({ series: rows })?.period ?? null)"
    rows = [
        {"period": period, "values": [1], "provisional": period > 1, "heard": heard}
        for period, heard in ((1, 800), (2, 1000), (3, 900), (4, 60))
    ]
    assert page.evaluate(leads, rows) == 3
    assert page.evaluate(leads, [rows[0], rows[3]]) == 1
    assert page.evaluate(leads, [{**rows[0], "values": None}]) is None
    page.click(".cards .sparkline")
    settle(page)
    assert f"The newest complete period is period {SHOWN}," in page.inner_text("#latest-when")


def test_charts_stay_lit_while_they_load_again(opens: Opens) -> None:
    """Until the new answer is there the old one is drawn as it was; where the server refuses it, it stays."""
    page = opens()
    held: list[Route] = []
    page.route("**/series?*", lambda route: held.append(route))
    page.select_option("#confidence", "0.99")
    page.wait_for_selector("#survey[aria-busy]")
    assert page.evaluate("getComputedStyle(document.getElementById('series')).opacity") == "1"
    assert page.is_visible("#series .main-svg")
    while not held:
        page.wait_for_timeout(50)
    held[0].continue_()
    settle(page)
    assert "99%" in page.inner_text("#series-notes")


def test_pointing_shows_figures_and_zooming_moves_all_charts(opens: Opens) -> None:
    """By the mouse: a box with every answer's interval; what is drawn over is shown in all charts."""
    page = opens()
    page.locator("#series").scroll_into_view_if_needed()
    box = page.locator("#series .nsewdrag").first.bounding_box()
    assert box
    left, middle = box["x"] + box["width"] / 4, box["y"] + box["height"] / 2
    page.mouse.move(left, middle)
    page.wait_for_function(
        "answers => { const shown = document.querySelector('#series .hoverlayer').textContent;"
        " return answers.every((each) => RegExp(`${each} : [0-9.]+% .[0-9.]+% to [0-9.]+%`).test(shown)) }",
        arg=ANSWERS,
    )
    whole = axis(page, "series")
    page.mouse.down()
    page.mouse.move(left + 200, middle, steps=8)
    page.mouse.up()
    page.wait_for_function(
        "most => { const [from, to] = document.getElementById('graph')._fullLayout.xaxis.range;"
        " return new Date(to) - new Date(from) < most }",
        arg=(whole[1] - whole[0]) / 2,
    )
    assert axis(page, "series") == axis(page, "change") == axis(page, "members") == axis(page, "graph")


def test_everything_can_be_done_by_the_keyboard(opens: Opens) -> None:
    """In the order in which it is read; what has the focus is seen to; charts have tables, which scroll."""
    page = opens()
    page.evaluate("document.body.focus()")
    page.keyboard.press("Tab")
    reached, outlined = [], []
    for _ in range(60):
        page.keyboard.press("Tab")
        name = page.evaluate(
            "() => { const each = document.activeElement; if (each === document.body) return null;"
            " return each.id || each.dataset.zoom || each.value || each.textContent.trim() }"
        )
        if name is None:
            break
        reached.append(name)
        outlined.append(page.evaluate("getComputedStyle(document.activeElement).outlineStyle"))
    wanted = ["unit", "method", "bands", "confidence", "platform:Android", "in", "all", "The numbers", "csv", "width"]
    places = [reached.index(each) for each in wanted]
    assert places == sorted(places)
    assert set(outlined) != {"none"}
    assert "none" not in outlined
    whole = axis(page, "series")
    page.focus("[data-zoom=in]")
    page.keyboard.press("Enter")
    page.wait_for_function(
        "most => { const [from, to] = document.getElementById('members')._fullLayout.xaxis.range;"
        " return new Date(to) - new Date(from) < most }",
        arg=0.6 * (whole[1] - whole[0]),
    )
    page.focus("details summary >> nth=0")
    page.keyboard.press("Enter")
    rows = page.locator("#series-numbers tbody tr")
    rows.first.wait_for()
    assert rows.count() == SHOWN
    assert rows.nth(SHOWN - LOST.end).inner_text().count("unknown") == len(ANSWERS)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "series-numbers"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_scrolls_in_one_direction(opens: Opens, scheme: str) -> None:
    """At 360 pixels nothing is wider than the screen, tables scroll in themselves; the ground is as the phone's is."""
    page = opens(viewport={"width": 360, "height": 780}, is_mobile=True, has_touch=True, color_scheme=scheme)
    assert overflow(page) <= 0
    for summary in page.locator("summary:visible").all():
        summary.click()
    assert overflow(page) <= 0
    (red, green, blue) = page.evaluate(
        "getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).slice(0, 3).map(Number)"
    )
    assert (red + green + blue < 200) is (scheme == "dark")
    page.click("header a")
    page.wait_for_selector("#surveys li")
    assert overflow(page) <= 0


def test_charts_follow_when_it_gets_dark(opens: Opens) -> None:
    """Lines and letters change with the page."""
    page = opens(color_scheme="light")
    colour = "document.getElementById('series')._fullLayout.font.color"
    before = page.evaluate(colour)
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(f"before => {colour} !== before", arg=before)


def test_strata_levels_and_methods_are_chosen(opens: Opens) -> None:
    """What is asked of the server, and shown: half of the entries, wider bands, another method, totals."""
    page = opens()

    def latest() -> str:
        page.wait_for_selector("#survey:not([aria-busy])")
        return page.inner_text("#latest-note")

    everybody = latest()
    page.check("text=Android")
    page.wait_for_function("before => document.getElementById('latest-note').textContent !== before", arg=everybody)
    android = latest()
    page.check("text=iOS")
    page.wait_for_function("before => document.getElementById('latest-note').textContent !== before", arg=android)
    assert latest() == everybody
    page.select_option("#confidence", "0.99")
    page.wait_for_function("() => document.getElementById('series-notes').textContent.includes('99%')")
    page.select_option("#bands", "simultaneous")
    assert "All bands together" in page.inner_text("#series-notes")
    page.select_option("#method", "smoothed")
    page.wait_for_function("() => document.getElementById('series-notes').textContent.includes('biased')")
    page.select_option("#unit", "total")
    assert max(figure or 0 for figure in traces(page, "series")[-1]["y"]) > 100
    page.uncheck("#answers >> text=school")
    assert "school" not in {trace["name"] for trace in traces(page, "series")}
    page.wait_for_selector("#survey:not([aria-busy])")
    page.fill("#width", "13")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.getElementById('change-note').textContent.includes('13 periods')")


def test_whoever_signs_in_sees_closed_results_until_signing_out(opens: Opens) -> None:
    """By the form; nothing of the token gets into an address. What operators see stands with their token alone."""
    page = opens(at_survey=False)
    page.click(f"text={CLOSED}")
    page.wait_for_selector("text=sign in to see them")
    assert page.is_hidden("#results")
    assert page.is_visible("#ledger")
    for token, folds in ((READER, False), (OPERATOR, True)):
        page.click("#open-sign-in")
        page.fill("#token", token)
        page.keyboard.press("Enter")
        page.wait_for_selector("#results", state="visible")
        settle(page)
        assert ("Last folded" in page.inner_text("#refused")) is folds
        assert token not in page.url
        assert page.input_value("#token") == ""
        assert page.evaluate("document.cookie") == ""
        page.click("#sign-out")
        page.wait_for_selector("text=sign in to see them")
        assert page.is_hidden("#results")
