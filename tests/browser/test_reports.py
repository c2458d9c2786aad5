"""The reports of the designers' commands in a browser: nothing is asked for, nothing overflows, in light and dark."""

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.command_line import changeling_sim as main
from tests.command_line import invoked

from .conftest import overflow

pytestmark = pytest.mark.heavy
WISH = "--answers 3 --period 4w --horizon 48w --at-most 3 --epsilon 4 --devices 20000"


@pytest.mark.parametrize(
    "command", [f"plan {WISH}", f"compare {WISH}", "run school-to-work --period 52w --entries 2e3"]
)
def test_a_report_needs_nothing_and_fits(visit, tmp_path, command):
    path = tmp_path / "report.html"
    assert invoked(main, *command.split(), "--report", str(path)).exit_code == 0
    for width, scheme in ((390, "dark"), (1000, "light")):
        page = visit(path.as_uri(), viewport={"width": width, "height": 900}, color_scheme=scheme)
        assert overflow(page) <= 0
        assert page.get_by_role("table").count() >= 1
        assert Axe().run(page).response["violations"] == []
