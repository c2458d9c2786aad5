"""The page of a survey, and the chart that other pages embed: what they show, on which screens, by which means; and
that they ask nobody but their server."""

import re
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from changeling_aggregator.server import page as page_room
from changeling_aggregator.server import real_time
from changeling_aggregator.store import TokenScope
from changeling_protocol import Breakdown, Calendar, Node

from ..aggregator.serving import ServerHere, eventually
from ..aggregator.whole_survey import asked, whole_survey_store
from .conftest import overflow, point_at, zoomed

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(300)]
READER, OPERATOR = "a token for reading", "a token for reading and folding"
OPEN, CLOSED = "What do you do?", "What did you do before?"
ANSWERS = ("school", "training", "employment", "elsewhere")
WEEK = 604_800
PERIODS, SHOWN, FINAL, LOST = 52, 39, 37, Node(17, 19)
MOST_BYTES = 50_000
PHONE = {"is_mobile": True, "has_touch": True, "color_scheme": "light"}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A server, and its survey whose results are open and published; it has another, whose are not. Both are three
    quarters through, and have lost two periods."""
    folder = tmp_path_factory.mktemp("served")
    calendar = Calendar(int(time.time()) // WEEK * WEEK - SHOWN * WEEK, WEEK, PERIODS)
    shown = [period for period in range(1, SHOWN + 1) if not LOST.start < period <= LOST.end]
    survey, _ = (
        whole_survey_store(
            folder / "server.db",
            [asked(question, ANSWERS)],
            calendar,
            (Breakdown("platform", ("Android", "iOS")),),
            shown,
            FINAL,
            grace=2 * WEEK,
            heard=450,
            public=question == OPEN,
        )
        for question in (OPEN, CLOSED)
    )
    server = ServerHere(folder, clock=real_time)
    server.add_token(READER, TokenScope.READ)
    server.add_token(OPERATOR, TokenScope.READ, TokenScope.FOLD)
    with server:
        edition = f"/v1/surveys/{survey.id.hex()}/editions/latest/series.json"
        assert eventually(lambda: server.http.get(edition).status_code, 200)
        yield server, survey


@pytest.fixture
def opens(visit, served):
    """Opens the page at the survey, or at its beginning."""
    server, survey = served

    def opened(at_survey=True, **options):
        page = visit(f"{server.url}/" + (f"#{survey.id.hex()}" if at_survey else ""), **options)
        if at_survey:
            settle(page)
        return page

    return opened


def settle(page):
    """Wait until all that was asked for is drawn."""
    for drawn in ("#graph .main-svg", "#change .main-svg", "#survey:not([aria-busy])"):
        page.wait_for_selector(drawn)


def traces(page, chart):
    return page.evaluate(
        "id => document.getElementById(id).data.map(({name, x, y, fill}) => ({name, x, y, fill}))", chart
    )


def axis(page, chart):
    """The span of time that a chart shows, in milliseconds."""
    return page.evaluate(
        "id => document.getElementById(id)._fullLayout.xaxis.range.map((each) => +new Date(each))", chart
    )


def brightness(page, element):
    """How bright the ground of an element is, of 765."""
    colour = f"getComputedStyle({element}).backgroundColor.match(/[0-9]+/g).slice(0, 3)"
    return page.evaluate(f"{colour}.map(Number).reduce((a, b) => a + b)")


def test_the_page_shows_series_with_bands_and_gaps_below_epsilon_and_links_to_its_sections(opens, served):
    """A line for each answer, null where nothing is known, and a band for each run of what is; the reasons in words. ε
    stands before the first figure; a link for each section that is shown moves the focus to its title."""
    page, loss = opens(), f"ε = {served[1].epsilon.normalize():,f}"
    lines = [trace for trace in traces(page, "series") if trace["name"] in ANSWERS]
    assert [line["name"] for line in lines] == list(ANSWERS)
    for line in lines:
        assert [number for number, figure in enumerate(line["y"], 1) if figure is None] == [LOST.start + 1, LOST.end]
    assert sum(trace["fill"] == "toself" for trace in traces(page, "series")) == 2 * len(ANSWERS)
    for place, words in (
        ("series-notes", f"Unknown: periods {LOST.start + 1} to {LOST.end}"),
        ("series-notes", f"Provisional: periods {FINAL + 1} to {SHOWN}."),
        ("state", f"(period {SHOWN}), final up to period {FINAL}"),
        ("latest-note", "90.0% of the enrolled"),
        ("ledger", f"{loss},"),
        ("price", loss),
    ):
        assert words in page.inner_text(f"#{place}")
    assert all(traces(page, chart) for chart in ("change", "members", "graph"))
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


def test_the_newest_complete_period_leads_and_the_list_tells_how_new_it_is(opens):
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


def test_pointing_shows_figures_and_zooming_moves_all_charts(opens):
    """By the mouse: a box with every answer's interval; what is drawn over is shown in all charts."""
    page = opens()
    left, middle = point_at(page, "series", 1 / 4)
    page.wait_for_function(
        "answers => { const shown = document.querySelector('#series .hoverlayer').textContent;"
        " return answers.every((each) => RegExp(`${each} : [0-9.]+% .[0-9.]+% to [0-9.]+%`).test(shown)) }",
        arg=ANSWERS,
    )
    begin, end = axis(page, "series")
    page.mouse.down()
    page.mouse.move(left + 200, middle, steps=8)
    page.mouse.up()
    zoomed(page, "graph", (end - begin) / 2)
    assert axis(page, "series") == axis(page, "change") == axis(page, "members") == axis(page, "graph")


def test_everything_can_be_done_by_the_keyboard(opens):
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
    assert "none" not in outlined
    begin, end = axis(page, "series")
    page.focus("[data-zoom=in]")
    page.keyboard.press("Enter")
    zoomed(page, "members", 0.6 * (end - begin))
    page.focus("details summary >> nth=0")
    page.keyboard.press("Enter")
    rows = page.locator("#series-numbers tbody tr")
    rows.first.wait_for()
    assert rows.count() == SHOWN
    assert rows.nth(SHOWN - LOST.end).inner_text().count("unknown") == len(ANSWERS)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "series-numbers"


def test_a_phone_scrolls_in_one_direction_by_day_and_by_night(opens):
    """At 360 pixels nothing is wider than the screen, tables scroll in themselves; ground, lines and letters are as the
    phone's are, and follow when it gets dark."""
    page = opens(viewport={"width": 360, "height": 780}, **PHONE)
    assert overflow(page) <= 0
    for summary in page.locator("summary:visible").all():
        summary.click()
    assert overflow(page) <= 0
    assert brightness(page, "document.body") >= 200
    colour = "document.getElementById('series')._fullLayout.font.color"
    by_day = page.evaluate(colour)
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(f"before => {colour} !== before", arg=by_day)
    assert brightness(page, "document.body") < 200
    page.click("header a")
    page.wait_for_selector("#surveys li")
    assert overflow(page) <= 0


def test_strata_levels_and_methods_are_chosen_and_charts_stay_lit_while_they_load(opens):
    """What is asked of the server, and shown: wider bands, half of the entries, another method, totals. Until the new
    answer is there the old one is drawn as it was."""
    page, held = opens(), []
    page.route("**/series?*", lambda route: held.append(route))
    page.select_option("#confidence", "0.99")
    page.wait_for_selector("#survey[aria-busy]")
    assert page.evaluate("getComputedStyle(document.getElementById('series')).opacity") == "1"
    assert page.is_visible("#series .main-svg")
    while not held:
        page.wait_for_timeout(50)
    held[0].continue_()
    page.unroute("**/series?*")
    settle(page)
    assert "99%" in page.inner_text("#series-notes")

    everybody = latest = page.inner_text("#latest-note")
    for stratum in ("Android", "iOS"):
        page.check(f"text={stratum}")
        page.wait_for_function("before => document.getElementById('latest-note').textContent !== before", arg=latest)
        page.wait_for_selector("#survey:not([aria-busy])")
        latest = page.inner_text("#latest-note")
    assert latest == everybody
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


def test_whoever_signs_in_sees_closed_results_until_signing_out(opens):
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


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        """Nothing."""


@pytest.fixture(scope="module")
def host(tmp_path_factory, served):
    """The address of somebody else's page, which has the chart as the page of the survey says to embed it."""
    server, survey = served
    folder = tmp_path_factory.mktemp("host")
    (folder / "favicon.ico").touch()
    (folder / "index.html").write_text(
        f"""<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'self'; script-src {server.url}; connect-src {server.url}">
<title>Somebody's page</title><p><a href="#">before</a></p>
<script type="module" src="{server.url}/page/chart.js"></script>
<changeling-chart survey="{survey.id.hex()}"></changeling-chart>"""
    )
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder)) as serving:
        Thread(target=serving.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{serving.server_address[1]}/"
        serving.shutdown()


@pytest.fixture
def embeds(visit, host, served):
    """Opens that page, which asks the server of the survey too."""

    def opened(**options):
        page = visit(host, of=[served[0].url], **options)
        page.wait_for_selector("changeling-chart .band")
        return page

    return opened


def test_an_embedded_chart_draws_bands_and_gaps_and_says_every_figure(embeds, served):
    """Two runs of lines and bands for each answer, as a period is lost; ε and the answers in words. Arrows go from
    period to period, each said in words; behind the chart is a table, which the keyboard scrolls."""
    page = embeds()
    for drawn, count in (("line", 2 * len(ANSWERS)), ("band", 2 * len(ANSWERS)), ("provisional", 1)):
        assert page.locator(f"changeling-chart .{drawn}").count() == count
    text = page.inner_text("changeling-chart figure")
    assert all(words in text for words in (*ANSWERS, f"ε = {float(served[1].epsilon)}", "95% bands"))

    page.focus("a >> text=before")
    page.keyboard.press("Tab")
    active = "document.querySelector('changeling-chart').shadowRoot.activeElement"
    assert page.evaluate(f"{active}.getAttribute('role')") == "slider"
    assert page.evaluate(f"getComputedStyle({active}).outlineStyle") != "none"
    said = []
    for key in ("End", "ArrowLeft", "Home"):
        page.keyboard.press(key)
        said.append(page.evaluate(f"{active}.getAttribute('aria-valuetext')"))
        assert page.inner_text("changeling-chart .readout") == said[-1]
    assert "provisional" in said[0]
    assert len(set(said)) == 3
    assert all(re.search(rf"{answer} .?[0-9.]+% \(.+ to .+%\)", said[2]) for answer in ANSWERS)
    for _ in range(LOST.start):
        page.keyboard.press("ArrowRight")
    assert page.evaluate(f"{active}.getAttribute('aria-valuetext')").count("unknown") == len(ANSWERS)
    for _ in range(4):
        page.keyboard.press("Tab")
        if page.evaluate(f"{active}.tagName") == "SUMMARY":
            break
    page.keyboard.press("Enter")
    rows = page.locator("changeling-chart tbody tr")
    assert rows.count() == SHOWN
    assert "unknown" in rows.nth(SHOWN - LOST.end).inner_text()
    page.keyboard.press("Tab")
    assert page.evaluate(f"{active}.className") == "rows"


def test_an_embedded_chart_fits_a_phone_by_day_and_by_night(embeds):
    """Nothing is wider than 390 pixels, with the table open; the ground is as the phone's, or as the page says."""
    page, chart = embeds(viewport={"width": 390, "height": 800}, **PHONE), "document.querySelector('changeling-chart')"
    page.locator("changeling-chart summary").click()
    assert overflow(page) <= 0
    assert brightness(page, chart) >= 200
    page.emulate_media(color_scheme="dark")
    assert brightness(page, chart) < 200
    page.emulate_media(color_scheme="light")
    page.evaluate(f"{chart}.setAttribute('theme', 'dark')")
    assert brightness(page, chart) < 200


def test_the_chart_is_small_and_alone():
    """One script below 50 kB, before it is compressed, which imports nothing."""
    script = (Path(page_room.__file__).parent / "static/chart.js").read_bytes()
    assert len(script) < MOST_BYTES
    assert not re.search(rb"^import |import\(", script, re.MULTILINE)
