"""Surveys on the page of several questions, of a number, about freezing, or very long, whose words look like HTML."""

import time

import pytest
from changeling_aggregator.server import real_time
from changeling_protocol import AtMost, Breakdown, Calendar, Question

from ..aggregator.serving import ServerHere, eventually
from ..aggregator.whole_survey import asked, whole_survey_store
from .conftest import point_at, zoomed

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(300)]
PERIODS, DAY, HOUR = 6, 86_400, 3600
LONG_PERIODS = 1203
MOST_POINTS = 500
SEVERAL = {"What do you drink?": ("tea", "coffee"), "How do you travel?": ("on foot", "by train", "by car")}
DRINK = Question("drink", "What do you drink?", ("tea", "coffee"), AtMost(3))
MINUTES = Question.of_number("minutes", "How long?", ["0", "30", "60"], AtMost(3), "min")
HTML = "<script>alert(2)</script><b>What?</b>"
HTML_ANSWERS = ("<img src=x onerror=alert(1)>", "<b>bold</b> &amp; <a href='/page/x'>linked</a>", "plain")
UNIT = "<b>min</b> <a href='/page/x'>linked</a>"


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """A server, and what it has surveys of, each with periods that are all over."""
    folder = tmp_path_factory.mktemp("shown")
    short = Calendar(int(time.time()) // DAY * DAY - (PERIODS + 2) * DAY, DAY, PERIODS)
    long = Calendar(int(time.time()) - (LONG_PERIODS + 24) * HOUR, HOUR, LONG_PERIODS)
    several = [Question(f"q{at}", text, answers, AtMost(3)) for at, (text, answers) in enumerate(SEVERAL.items())]
    surveys = {
        name: whole_survey_store(folder / "server.db", questions, calendar, breakdowns)
        for name, questions, calendar, breakdowns in (
            ("several", several, short, ()),
            ("number", [MINUTES], short, (Breakdown("arm", ("A", "B")),)),
            ("unit", [Question.of_number("long", "How long?", ["0", "30"], AtMost(3), UNIT)], short, ()),
            ("freezing", [DRINK, Question.of_freezing(DRINK)], short, ()),
            ("long", [asked(HTML, HTML_ANSWERS)], long, ()),
        )
    }
    with ServerHere(folder, clock=real_time) as server:
        yield server, surveys


@pytest.fixture
def opens(visit, shown):
    """Opens the page of one of these, once it is published."""
    server, surveys = shown

    def opened(name, published=None):
        if published is not None:
            file = f"/v1/surveys/{surveys[name].id.hex()}/editions/latest/{published}"
            assert eventually(lambda: server.http.get(file).status_code, 200)
        return visit(f"{server.url}/#{surveys[name].id.hex()}")

    return opened


def test_every_question_has_a_chart_and_one_is_looked_at(opens):
    """Its answers, its estimates and its changes; choosing another asks anew."""
    page = opens("several", "series-1.json")
    page.wait_for_selector("#change .main-svg")
    page.wait_for_selector("changeling-chart[question='1'] .band")
    assert page.locator("changeling-chart figcaption").all_inner_texts() == list(SEVERAL)
    for at, answers in enumerate(SEVERAL.values()):
        page.select_option("#which", f"{at}")
        page.wait_for_function(
            "answers => answers.every((each) => document.getElementById('latest').textContent.includes(each))",
            arg=answers,
        )
        page.wait_for_selector("#survey:not([aria-busy])")
        assert page.locator("#answers input").count() == len(answers)


def test_a_number_and_a_comparison_have_charts_of_their_own(opens):
    """Mean and median are there at once; differences once somebody chooses an arm, or since when."""
    page = opens("number")
    page.wait_for_selector("#number-chart .main-svg")
    assert page.locator("#difference-shown").is_hidden()
    page.locator("#number summary").click()
    assert "min (" in page.locator("#number-numbers tbody tr").first.inner_text()
    for against, since in (("arm:A", "0"), ("", "2"), ("arm:B", "2")):
        page.select_option("#against", against)
        page.fill("#since", since)
        page.click("#compare button")
        page.wait_for_selector("#difference-chart .main-svg")
    page.locator("#difference-shown summary").click()
    row = page.locator("#difference-numbers tbody tr").first.inner_text()
    assert "p = ." in row or "p < .001" in row


def test_what_freezing_may_do_is_said_below_the_chart_of_its_question(shown, opens):
    """On the page and below the small chart, in the figures of the API; and not below the freezing question's own."""
    server, surveys = shown
    page = opens("freezing", "series-0.json")
    file = f"/v1/surveys/{surveys['freezing'].id.hex()}/editions/latest/series-0.json"
    last = server.http.get(file).json()["series"][-1]
    shares = [last["freezing"][name] / last["entries"] for name in ("entries", "bound")]
    page.wait_for_selector("#series .main-svg")
    page.wait_for_selector("changeling-chart[question='1'] .band")
    notes = page.locator("#series-notes").inner_text()
    assert f"Freezing: by the end of period {PERIODS}, {shares[0]:.1%} of these entries" in notes
    assert f"by {shares[1]:.1%} at most" in notes
    own, other = (page.locator(f"changeling-chart[question='{at}'] figure").inner_text() for at in range(2))
    assert "for changes that are not counted" in own
    assert "for changes that are not counted" not in other
    assert "How many entries that happens to is asked too." in page.locator("#survey").inner_text()


def test_a_long_survey_is_drawn_thinned_and_its_words_as_they_are(shown, opens):
    """At most 500 points a series, the last included; zooming asks for nothing; no name becomes an element."""
    page, requests, dialogs = opens("long"), [], []
    page.on("request", lambda request: requests.append(request.url))
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    page.reload()
    page.wait_for_selector("#change .main-svg")
    page.wait_for_selector("#survey:not([aria-busy])")
    end = 1000 * shown[1]["long"].calendar.time(LONG_PERIODS)
    for chart in ("series", "change", "members"):
        drawn = page.evaluate(
            "id => document.getElementById(id).data.filter((each) => each.name).map(({ x }) => x.map(Number))", chart
        )
        assert len(drawn) == 3
        for times in drawn:
            assert MOST_POINTS / 2 < len(times) <= MOST_POINTS
            assert times[-1] == end
    assert "The charts draw one period in 3" in page.inner_text("#series-notes")

    before = len(requests)
    page.click("[data-zoom=in]")
    zoomed(page, "graph", 0.6 * LONG_PERIODS * HOUR * 1000)
    assert requests[before:] == []
    point_at(page, "series", 1 / 2)
    page.wait_for_function(
        "answers => { const box = document.querySelector('#series .hoverlayer');"
        " const shown = box.textContent.replaceAll('\\u00a0', ' ');"
        " return answers.every((each) => shown.includes(each)) }",
        arg=list(HTML_ANSWERS),
    )
    for summary in page.locator("summary:visible").all():
        summary.click()
    assert page.inner_text("#question") == HTML
    assert page.locator("#survey img, #survey b, #survey a[href='/page/x'], #survey script").count() == 0
    assert page.locator("#series svg a, #series svg tspan[style*='bold']").count() == 0
    assert all(heading in page.inner_text("#series-numbers") for heading in HTML_ANSWERS)
    assert dialogs == []
    assert not any(url.endswith("/x") for url in requests)


def test_the_unit_of_a_number_is_no_markup_in_its_chart(opens):
    """Charts take some markup in their words: of a unit nothing becomes bold, or a link."""
    page = opens("unit")
    page.wait_for_selector("#number-chart .ytitle")
    assert page.locator("#number-chart svg a, #number-chart svg tspan[style*='bold']").count() == 0
