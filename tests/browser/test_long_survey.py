"""A survey of more periods than a chart can show apart, whose words look like HTML."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from changeling_protocol import Calendar, Survey
from playwright.sync_api import Browser

from ..aggregator import whole_survey
from ..aggregator.serving import ServerProcess
from ..aggregator.whole_survey import whole_survey_store
from .conftest import PATIENCE_MS

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(300)]
PERIODS, HOUR = 1203, 3600
MOST_POINTS = 500
ANSWERS = ("<img src=x onerror=alert(1)>", "<b>bold</b> &amp; <a href='/page/x'>linked</a>", "plain")
QUESTION = "<script>alert(2)</script><b>What?</b>"


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, Survey]]:
    folder = tmp_path_factory.mktemp("long")
    calendar = Calendar(int(time.time()) - (PERIODS + 24) * HOUR, HOUR, PERIODS)
    asked = whole_survey_store(folder / "server.db", [whole_survey.asked(QUESTION, ANSWERS)], calendar)
    with ServerProcess(folder) as server:
        yield server, asked


def test_a_long_survey_is_drawn_thinned_and_its_words_as_they_are(
    chromium: Browser, long: tuple[ServerProcess, Survey]
) -> None:
    """At most 500 points a series, the last included; zooming asks for nothing; no name becomes an element."""
    server, asked = long
    page, requests, dialogs = chromium.new_page(), list[str](), list[str]()
    page.set_default_timeout(PATIENCE_MS)
    page.on("request", lambda request: requests.append(request.url))
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    page.goto(f"{server.url}/#{asked.id.hex()}")
    page.wait_for_selector("#change .main-svg")
    page.wait_for_selector("#survey:not([aria-busy])")

    end = 1000 * asked.calendar.time(PERIODS)
    for chart in ("series", "change", "members"):
        drawn: list[list[Any]] = page.evaluate(
            "id => document.getElementById(id).data.filter((each) => each.name).map(({ x }) => x.map(Number))", chart
        )
        assert len(drawn) == 3
        for times in drawn:
            assert MOST_POINTS / 2 < len(times) <= MOST_POINTS
            assert times[-1] == end
    assert "The charts draw one period in 3" in page.inner_text("#series-notes")

    before = len(requests)
    page.click("[data-zoom=in]")
    whole = PERIODS * HOUR * 1000
    page.wait_for_function(
        "most => { const [from, to] = document.getElementById('graph')._fullLayout.xaxis.range;"
        " return new Date(to) - new Date(from) < most }",
        arg=0.6 * whole,
    )
    assert requests[before:] == []

    page.locator("#series").scroll_into_view_if_needed()
    box = page.locator("#series .nsewdrag").first.bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_function(
        "answers => { const box = document.querySelector('#series .hoverlayer');"
        " const shown = box.textContent.replaceAll('\\u00a0', ' ');"
        " return answers.every((each) => shown.includes(each)) }",
        arg=list(ANSWERS),
    )
    for summary in page.locator("summary:visible").all():
        summary.click()
    assert page.inner_text("#question") == QUESTION
    assert page.locator("#survey img, #survey b, #survey a[href='/page/x'], #survey script").count() == 0
    assert page.locator("#series svg a, #series svg tspan[style*='bold']").count() == 0
    assert all(heading in page.inner_text("#series-numbers") for heading in ANSWERS)
    assert dialogs == []
    assert not any(url.endswith("/x") for url in requests)
    page.close()
