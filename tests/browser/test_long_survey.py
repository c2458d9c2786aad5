"""A survey of more periods than a chart can show apart, whose words look like HTML."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from changeling_aggregator.store import Store
from changeling_aggregator.store.snapshots import Looked, Lot, LotKey, put_looked, put_snapshots
from changeling_aggregator.store.surveys import add_survey
from changeling_protocol import Calendar, Group, Odds, ReleasePlan, StateSpace, SubsetSelection, Survey, Track
from changeling_protocol.quantities import NodeNumber, StratumNumber, TrackNumber
from changeling_statistics.randomizers import counterpart_of
from changeling_statistics.tallies import Attendance
from playwright.sync_api import Browser

from ..aggregator.serving import ServerProcess
from ..protocol.examples import AUTHORITY, survey

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(300)]
PERIODS, HOUR, ENTRIES, SEED = 1203, 3600, 500, 3
MOST_POINTS = 500
ANSWERS = ("<img src=x onerror=alert(1)>", "<b>bold</b> &amp; <a href='/page/x'>linked</a>", "plain")
QUESTION = "<script>alert(2)</script><b>What?</b>"
PATIENCE_MS = 90_000


def _long_store(path: Path) -> Survey:
    """Everybody reports their state in every period, at random."""
    randomizer = SubsetSelection(StateSpace(len(ANSWERS)), Odds(9, 1), 1)
    plan = ReleasePlan((Group((Track(1, randomizer, 0, PERIODS),)),))
    calendar = Calendar(int(time.time()) - (PERIODS + 24) * HOUR, HOUR, PERIODS)
    asked = replace(survey(plan, answers=ANSWERS, calendar=calendar), question=QUESTION)
    generator, lots = np.random.default_rng(SEED), dict[LotKey, Lot]()
    for period in range(1, PERIODS + 1):
        lot = lots[period, 0, StratumNumber(0)] = Lot(Attendance(ENTRIES, ENTRIES if period == 1 else 0, 0))
        symbols = generator.integers(0, randomizer.symbols, ENTRIES).astype(np.uint64)
        lot.nodes[TrackNumber(0), NodeNumber(period)] = counterpart_of(randomizer).tally(symbols)
    store = Store.open(path)
    with store.writing() as connection:
        add_survey(connection, asked.id, asked.signed_by(AUTHORITY), public=True)
        put_snapshots(connection, asked.id, 1, lots, [])
        put_looked(connection, asked.id, Looked(1, PERIODS, PERIODS, 0))
    store.close()
    return asked


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, Survey]]:
    folder = tmp_path_factory.mktemp("long")
    asked = _long_store(folder / "server.db")
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
    for summary in page.locator("summary").all():
        summary.click()
    assert page.inner_text("#question") == QUESTION
    assert page.locator("#survey img, #survey b, #survey a[href='/page/x'], #survey script").count() == 0
    assert page.locator("#series svg a, #series svg tspan[style*='bold']").count() == 0
    assert all(heading in page.inner_text("#series-numbers") for heading in ANSWERS)
    assert dialogs == []
    assert not any(url.endswith("/x") for url in requests)
    page.close()
