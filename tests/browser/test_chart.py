"""The chart that other pages embed, in a real browser, on a page of another origin."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from changeling_aggregator.server import page
from changeling_protocol import Survey
from playwright.sync_api import Browser, Page

from ..aggregator.fleet import ANSWERS, LOST, SHOWN
from ..aggregator.serving import ServerProcess
from .conftest import PATIENCE_MS

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(300)]
MOST_BYTES = 50_000
Embeds = Callable[..., Page]


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory, fleet: tuple[ServerProcess, Survey]) -> Iterator[str]:
    """The address of somebody else's page, which has the chart as the page of the survey says to embed it."""
    server, survey = fleet
    folder = tmp_path_factory.mktemp("host")
    (folder / "index.html").write_text(
        f"""<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'self'; script-src {server.url}; connect-src {server.url}">
<title>Somebody's page</title><p><a href="#">before</a></p>
<script type="module" src="{server.url}/page/chart.js"></script>
<changeling-chart survey="{survey.id.hex()}"></changeling-chart>"""
    )
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=folder)) as serving:
        Thread(target=serving.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{serving.server_address[1]}/index.html"
        serving.shutdown()


@pytest.fixture
def embeds(chromium: Browser, host: str) -> Iterator[Embeds]:
    """Opens that page; afterwards nothing was wrong, and nothing was blocked."""
    wrong: list[str] = []
    contexts = []

    def opened(**options: object) -> Page:
        context = chromium.new_context(**({"viewport": {"width": 1000, "height": 800}} | options))
        contexts.append(context)
        context.set_default_timeout(PATIENCE_MS)
        shown = context.new_page()
        shown.on("console", lambda each: wrong.append(each.text) if each.type in ("error", "warning") else None)
        shown.on("pageerror", lambda error: wrong.append(f"{error}"))
        shown.goto(host)
        shown.wait_for_selector("changeling-chart .band")
        return shown

    yield opened
    for context in contexts:
        context.close()
    assert [each for each in wrong if "favicon" not in each and "404" not in each] == []


def test_bands_and_gaps_are_drawn_where_the_server_is_another(embeds: Embeds) -> None:
    """Two runs of lines and bands for each answer, as a period is lost; ε and the answers in words."""
    shown = embeds()
    assert shown.locator("changeling-chart .line").count() == 2 * len(ANSWERS)
    assert shown.locator("changeling-chart .band").count() == 2 * len(ANSWERS)
    text = shown.inner_text("changeling-chart figure")
    assert all(answer in text for answer in ANSWERS)
    assert "ε = 8" in text
    assert "95% bands" in text
    assert shown.locator("changeling-chart .provisional").count() == 1


def test_the_keyboard_and_a_screen_reader_get_every_figure(embeds: Embeds) -> None:
    """Arrows go from period to period, each said in words; behind the chart is a table, which the keyboard scrolls."""
    shown = embeds()
    shown.focus("a >> text=before")
    shown.keyboard.press("Tab")
    active = "document.querySelector('changeling-chart').shadowRoot.activeElement"
    assert shown.evaluate(f"{active}.getAttribute('role')") == "slider"
    assert shown.evaluate(f"getComputedStyle({active}).outlineStyle") != "none"
    said = []
    for key in ("End", "ArrowLeft", "Home"):
        shown.keyboard.press(key)
        said.append(shown.evaluate(f"{active}.getAttribute('aria-valuetext')"))
        assert shown.inner_text("changeling-chart .readout") == said[-1]
    assert "provisional" in said[0]
    assert len(set(said)) == 3
    assert all(re.search(rf"{answer} .?[0-9.]+% \(.+ to .+%\)", said[2]) for answer in ANSWERS)
    for _ in range(LOST.start):
        shown.keyboard.press("ArrowRight")
    assert shown.evaluate(f"{active}.getAttribute('aria-valuetext')").count("unknown") == len(ANSWERS)
    for _ in range(4):
        shown.keyboard.press("Tab")
        if shown.evaluate(f"{active}.tagName") == "SUMMARY":
            break
    shown.keyboard.press("Enter")
    rows = shown.locator("changeling-chart tbody tr")
    assert rows.count() == SHOWN
    assert "unknown" in rows.nth(SHOWN - LOST.end).inner_text()
    shown.keyboard.press("Tab")
    assert shown.evaluate(f"{active}.className") == "rows"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_of_390_pixels_shows_all_of_it(embeds: Embeds, scheme: str) -> None:
    """Nothing is wider than the screen, with the table open; the ground is as the phone's, or as the page says."""
    shown = embeds(viewport={"width": 390, "height": 800}, is_mobile=True, has_touch=True, color_scheme=scheme)
    shown.locator("changeling-chart summary").click()
    assert shown.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    ground = (
        "() => getComputedStyle(document.querySelector('changeling-chart')).backgroundColor"
        ".match(/[0-9]+/g).slice(0, 3).map(Number).reduce((a, b) => a + b)"
    )
    assert (shown.evaluate(ground) < 200) is (scheme == "dark")
    shown.evaluate("document.querySelector('changeling-chart').setAttribute('theme', 'dark')")
    assert shown.evaluate(ground) < 200


def test_the_chart_is_small_and_alone() -> None:
    """One script below 50 kB, before it is compressed, which imports nothing."""
    script = (Path(page.__file__).parent / "static/chart.js").read_bytes()
    assert len(script) < MOST_BYTES
    assert not re.search(rb"^import |import\(", script, re.MULTILINE)
