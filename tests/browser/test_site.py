"""The documentation site, built without a warning, and reports: in a browser nothing keeps anybody from reading it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.command_line import changeling_sim as main
from tests.command_line import invoked

from .conftest import overflow

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


pytestmark = pytest.mark.heavy
ROOT = Path(__file__).parents[2]
PAGES = ("index", "glossary", "reading", "api", "notebooks/design", "search")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A warning is an error: a broken link, unknown markup, a page that nobody reaches, a cell that fails."""
    folder: Path = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going", "--builder", "html"]
    done = subprocess.run([*command, ROOT / "docs", folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.timeout(600)
def test_the_site_is_built_and_its_notebooks_run(site):
    """What they show is there, and words are found."""
    shown = {page.stem: page.read_text() for page in (site / "notebooks").glob("*.html")}
    assert set(shown) == {"app", "curate", "design", "tutorial"}
    assert "Done with up to period 7" in shown["app"]
    assert "<svg" in shown["design"] or re.search(r'<img[^>]+src="../_images/', shown["design"])
    assert "standard_error" in shown["curate"]
    assert "answer" in shown["tutorial"]
    assert "freez" in (site / "searchindex.js").read_text()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_can_be_read_by_everybody(chromium, site, name):
    """axe finds nothing serious, and a phone's width is enough. Of the API's names a few are looked at."""
    page = chromium.new_page(viewport={"width": 390, "height": 800})
    page.goto((site / f"{name}.html").as_uri())
    page.evaluate("document.querySelectorAll('.cell_output').forEach((each) => each.remove())")  # what notebooks show
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.evaluate("document.querySelectorAll('dl.py').forEach((each, at) => at < 20 || each.remove())")
    found = Axe().run(page).response["violations"]
    assert [each["id"] for each in found if each["impact"] in {"serious", "critical"}] == []
    page.close()
