"""Measures 13 to 15 of a server: open results that strangers verify, read as files, and see as a chart in other pages.

13 works out what a million devices were published as over 52 periods, then with one byte of a tally changed. 14 asks a
real server for a file, and for estimates that it has to make. 15 has Chromium draw the chart, where there is one.
"""

import http.client
import itertools
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

import httpx
import numpy as np
from changeling_aggregator.server import page
from changeling_aggregator.testing.serving import RunningServer
from changeling_protocol import MICRO, AtMost, Calendar, Edition, ExpectedChanges, Survey
from changeling_protocol.wire import survey_path
from changeling_simulations import Field, Population, sample_field, synthetic_changelog
from changeling_statistics import (
    Solution,
    Wish,
    counterpart_of,
    edition_columns,
    edition_files,
    optimal_plan,
    releases,
    tallies_in,
    verify_files,
)

from .server_reading import Served

SEED = 13
DEVICES, PERIODS, WEEK = 10**6, 52, 604_800
ANSWERS = ("school", "training", "employment", "elsewhere")
CONNECTIONS, SECONDS = 4, 5.0
TIMES = 5
"""How often the chart is drawn; the figure is the median."""
TELLING = 1e-6
"""A node with less weight than that in an estimate moves none of its figures by as much as is told apart."""


def measure() -> dict[str, float | None]:
    """Seconds, figures, requests a second and bytes."""
    return verifying() | reading()


def verifying() -> dict[str, float | None]:
    """Measure 13: all that is verified is right; of a changed byte, how many periods hang on it and are not named."""
    survey, edition, files = _million()
    began = time.perf_counter()
    wrong = verify_files(survey, edition, files)
    seconds = time.perf_counter() - began
    tallies = [list(each) for each in edition.tracks]
    number, nodes = max(
        enumerate(np.frombuffer(each[0], "<i8") for each in edition.tracks), key=lambda each: len(each[1])
    )
    place = len(nodes) // 2
    slots = counterpart_of(survey.plan.tracks[number].randomizer).slots
    column = bytearray(tallies[number][2])
    column[8 * (slots * place + 1)] ^= 1  # not its first slot, which may tell nothing of the answers
    tallies[number][2] = bytes(column)
    found = verify_files(survey, replace(edition, tracks=tuple(map(tuple, tallies))), files)
    named = {(each.file, each.period) for each in found if each.place.startswith("values")}
    hanging = _hanging(survey, edition, number, int(nodes[place]))
    return {
        "13_verify_seconds": seconds,
        "13_figures_wrong_of_an_honest_edition": len(wrong),
        "13_figures_named_after_one_byte": len(found),
        "13_periods_that_hang_on_it": len(hanging),
        "13_periods_that_hang_on_it_and_are_not_named": len(hanging - named),
    }


def _million() -> tuple[Survey, Edition, dict[str, bytes]]:
    generator = np.random.default_rng(SEED)
    calendar, constraint = Calendar(1_700_000_000 // WEEK * WEEK, WEEK, PERIODS), AtMost(4)
    expected = ExpectedChanges(first=MICRO, later=MICRO // 40)
    wish = Wish(len(ANSWERS), calendar, constraint, Decimal(4), devices=DEVICES, minimum=100, expected=expected)
    survey = wish.survey(optimal_plan(wish).plan, ANSWERS, "What do you do?")
    changelog = synthetic_changelog(len(ANSWERS), DEVICES, 1.2, calendar, generator)
    population = replace(Population.from_changelog(changelog, calendar, constraint), answers=ANSWERS)
    tallies = sample_field(population, survey, Field(arrivals=0.004, offline=0.1, spell=3), generator).tallies
    files = edition_files(survey, tallies, revision=PERIODS, last=PERIODS, final=PERIODS - 2)
    columns = edition_columns(survey, tallies)
    hashes = {name: bytes(32) for name in files}
    made = calendar.time(PERIODS)
    edition = Edition(survey.id, PERIODS, made, PERIODS, PERIODS - 2, columns["tracks"], columns["groups"], hashes)
    return survey, edition, files


def _hanging(survey: Survey, edition: Edition, track: int, node: int) -> set[tuple[str, int | None]]:
    """The series of the edition and the periods in whose estimates a node has weight, by the weights themselves."""
    graph = releases(survey, tallies_in(survey, edition))
    edge = next(at for at, used in enumerate(graph.nodes) if (used.track, used.number) == (track, node))
    return {
        (file, period)
        for file, retrospective in (("series.json", False), ("retrospective.json", True))
        for period, row in Solution(graph, retrospective).histogram_rows(PERIODS)
        if abs(row[edge]) > TELLING
    }


def reading() -> dict[str, float | None]:
    """Measures 14 and 15, on one server with a year of days."""
    with tempfile.TemporaryDirectory() as folder:
        year = Served(Path(folder) / "server.db", answers=6, periods=365)
        id_, path = year.survey.id.hex(), survey_path(year.survey.id.hex())
        year.close()
        with RunningServer(Path(folder), "--rate", "0") as server:
            file = f"{path}/editions/latest/series.json"
            while httpx.get(server.url + file).status_code != 200:
                time.sleep(0.1)
            untils = itertools.count(2)
            files = _rate(server.url, lambda: file)
            estimates = _rate(server.url, lambda: f"{path}/series?confidence=0.95&until={2 + next(untils) % 364}")
            return {
                "14_file_requests_a_second": files,
                "14_estimate_requests_a_second": estimates,
                "14_file_bytes_compressed": _packed(server.url, file),
                **_chart(server.url, id_),
            }


def _packed(url: str, path: str) -> int:
    """The bytes of a file as they are sent."""
    with httpx.stream("GET", url + path, headers={"accept-encoding": "gzip"}) as answer:
        return sum(map(len, answer.iter_raw()))


def _rate(url: str, question: Callable[[], str]) -> float:
    """Answers a second on a few connections that ask one question after the other."""
    parts = urlsplit(url)
    end = time.perf_counter() + SECONDS

    def ask(_: int) -> int:
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port)
        answered = 0
        while time.perf_counter() < end:
            connection.request("GET", question(), headers={"accept-encoding": "gzip"})
            answer = connection.getresponse()
            answer.read()
            answered += answer.status == 200
        connection.close()
        return answered

    with ThreadPoolExecutor(CONNECTIONS) as asking:
        return sum(asking.map(ask, range(CONNECTIONS))) / SECONDS


def _chart(url: str, survey: str) -> dict[str, float | None]:
    script = Path(page.__file__).parent / "static" / "chart.js"
    seconds = None
    if (chromium := shutil.which("chromium")) is not None:
        from playwright.sync_api import sync_playwright

        content = (
            f'<!doctype html><script type="module" src="{url}/page/chart.js"></script>'
            f'<changeling-chart survey="{survey}"></changeling-chart>'
        )

        class Elsewhere(BaseHTTPRequestHandler):
            """Somebody's page, of another origin."""

            def do_GET(self) -> None:
                """Answers with it, whatever is asked for."""
                self.send_response(200)
                self.send_header("content-type", "text/html")
                self.end_headers()
                self.wfile.write(content.encode())

            def log_message(self, *_: object) -> None:
                """Says nothing."""

        with ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as host, sync_playwright() as playwright:
            Thread(target=host.serve_forever, daemon=True).start()
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            taken = []
            for _ in range(TIMES):
                shown = browser.new_context().new_page()
                began = time.perf_counter()
                shown.goto(f"http://127.0.0.1:{host.server_address[1]}/")
                shown.wait_for_selector("changeling-chart .band")
                taken.append(time.perf_counter() - began)
            host.shutdown()
            browser.close()
            seconds = statistics.median(taken)
    return {"15_chart_bytes": script.stat().st_size, "15_chart_seconds_to_bands": seconds}
