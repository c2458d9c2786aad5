"""A survey with several questions on the page: a small chart of each, and the rest about the one that is chosen."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from changeling_protocol import AtMost, Breakdown, Calendar, Question
from playwright.sync_api import Browser, Page

from ..aggregator.serving import ServerProcess, eventually
from ..aggregator.whole_survey import whole_survey_store
from .conftest import PATIENCE_MS

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(300)]
PERIODS, DAY = 6, 86_400
ASKED = {"What do you drink?": ("tea", "coffee"), "How do you travel?": ("on foot", "by train", "by car")}


def _calendar() -> Calendar:
    """Of periods that are all over."""
    return Calendar(int(time.time()) // DAY * DAY - (PERIODS + 2) * DAY, DAY, PERIODS)


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    """With nothing wrong in the console in the end."""
    opened, wrong = chromium.new_page(), list[str]()
    opened.set_default_timeout(PATIENCE_MS)
    opened.on("console", lambda each: wrong.append(each.text) if each.type == "error" else None)
    opened.on("pageerror", lambda error: wrong.append(f"{error}"))
    yield opened
    opened.close()
    assert wrong == []


def test_every_question_has_a_chart_and_one_is_looked_at(page: Page, tmp_path: Path) -> None:
    """Its answers, its estimates and its changes; choosing another asks anew, and nothing is wrong in the console."""
    questions = [Question(f"q{at}", text, answers, AtMost(3)) for at, (text, answers) in enumerate(ASKED.items())]
    asked = whole_survey_store(tmp_path / "server.db", questions, _calendar())
    with ServerProcess(tmp_path) as server:
        file = f"/v1/surveys/{asked.id.hex()}/editions/latest/series-1.json"
        assert eventually(lambda: server.http.get(file).status_code, 200)
        page.goto(server.url)
        page.wait_for_selector(".cards .sparkline .line")
        page.goto(f"{server.url}/#{asked.id.hex()}")
        page.wait_for_selector("#change .main-svg")
        page.wait_for_selector("changeling-chart[question='1'] .band")
        captions = page.locator("changeling-chart figcaption").all_inner_texts()
        assert captions == list(ASKED)
        for at, answers in enumerate(ASKED.values()):
            page.select_option("#which", f"{at}")
            page.wait_for_function(
                "answers => answers.every((each) => document.getElementById('latest').textContent.includes(each))",
                arg=answers,
            )
            page.wait_for_selector("#survey:not([aria-busy])")
            assert page.locator("#answers input").count() == len(answers)


def test_a_number_and_a_comparison_have_charts_of_their_own(page: Page, tmp_path: Path) -> None:
    """Mean and median are there at once; differences once somebody chooses an arm, or since when."""
    minutes = Question.of_number("minutes", "How long?", ["0", "30", "60"], AtMost(3), "min")
    asked = whole_survey_store(tmp_path / "server.db", [minutes], _calendar(), (Breakdown("arm", ("A", "B")),))
    with ServerProcess(tmp_path) as server:
        page.goto(f"{server.url}/#{asked.id.hex()}")
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


def test_what_freezing_may_do_is_said_below_the_chart_of_its_question(page: Page, tmp_path: Path) -> None:
    """On the page and below the small chart, in the figures of the API; and not below the freezing question's own."""
    drink = Question("drink", "What do you drink?", ("tea", "coffee"), AtMost(3))
    asked = whole_survey_store(tmp_path / "server.db", [drink, Question.of_freezing(drink)], _calendar())
    with ServerProcess(tmp_path) as server:
        file = f"/v1/surveys/{asked.id.hex()}/editions/latest/series-0.json"
        assert eventually(lambda: server.http.get(file).status_code, 200)
        last = server.http.get(file).json()["series"][-1]
        shares = [last["freezing"][name] / last["entries"] for name in ("entries", "bound")]
        page.goto(f"{server.url}/#{asked.id.hex()}")
        page.wait_for_selector("#series .main-svg")
        page.wait_for_selector("changeling-chart[question='1'] .band")
        notes = page.locator("#series-notes").inner_text()
        assert f"Freezing: by the end of period {PERIODS}, {shares[0]:.1%} of these entries" in notes
        assert f"by {shares[1]:.1%} at most" in notes
        own, other = (page.locator(f"changeling-chart[question='{at}'] figure").inner_text() for at in range(2))
        assert "for changes that are not counted" in own
        assert "for changes that are not counted" not in other
        assert "How many entries that happens to is asked too." in page.locator("#survey").inner_text()
