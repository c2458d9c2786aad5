"""The reports of the designers' commands in a browser: nothing is asked for, nothing overflows, in light and dark."""

from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser

from tests.command_line import changeling_sim as main
from tests.command_line import invoked

pytestmark = pytest.mark.heavy
WISH = "--answers 3 --period 4w --horizon 48w --at-most 3 --epsilon 4 --devices 20000"


@pytest.mark.parametrize(
    "command", [f"plan {WISH}", f"compare {WISH}", "run school-to-work --period 26w --entries 1e4"]
)
@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1000, "light")])
def test_a_report_needs_nothing_and_fits(
    chromium: Browser, tmp_path: Path, command: str, width: int, scheme: str
) -> None:
    path = tmp_path / "report.html"
    assert invoked(main, *command.split(), "--report", str(path)).exit_code == 0
    page = chromium.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
    said, asked = list[str](), list[str]()
    page.on("console", lambda message: said.append(message.text))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.get_by_role("table").count() >= 1
    assert Axe().run(page).response["violations"] == []
    assert (said, asked) == ([], [path.as_uri()])
    page.close()
