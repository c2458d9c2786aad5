"""A real browser, and what watches over the pages that it opens.

It ends with its module: while playwright runs, no test in the same process can run an event loop of its own.
"""

import shutil

import pytest
from playwright.sync_api import sync_playwright

CHROMIUM = shutil.which("chromium")
PATIENCE_MS = 90_000


@pytest.fixture(scope="module")
def chromium():
    if CHROMIUM is None:
        pytest.skip("there is no chromium here: `make test-heavy` brings it where it can")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=PATIENCE_MS)
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium):
    """Opens an address, as somebody with no cookies, who may ask the servers `of` it as well. Afterwards nothing was
    wrong: no error or warning, no violation, no request to anybody else."""
    wrong, contexts = [], []

    def opened(url, of=(), **options):
        context = chromium.new_context(**{"viewport": {"width": 1100, "height": 900}, **options})
        contexts.append(context)
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        asks = (url.partition("#")[0], "blob:", "data:", *of)
        page.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
        page.on("request", lambda sent: None if sent.url.startswith(asks) else wrong.append(sent.url))
        page.on("pageerror", lambda error: wrong.append(f"{error}"))
        page.goto(url)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert wrong == []


def overflow(page):
    """How many pixels the page is wider than the screen."""
    return page.evaluate("document.documentElement.scrollWidth - innerWidth")


def zoomed(page, chart, most):
    """Wait until a chart shows less than so many milliseconds."""
    page.wait_for_function(
        "([chart, most]) => { const [from, to] = document.getElementById(chart)._fullLayout.xaxis.range;"
        " return new Date(to) - new Date(from) < most }",
        arg=[chart, most],
    )


def point_at(page, chart, share):
    """Move the mouse to such a share of a chart's width; the place."""
    page.locator(f"#{chart}").scroll_into_view_if_needed()
    box = page.locator(f"#{chart} .nsewdrag").first.bounding_box()
    place = box["x"] + box["width"] * share, box["y"] + box["height"] / 2
    page.mouse.move(*place)
    return place
