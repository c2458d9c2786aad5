"""The documentation site is built without a warning; in a browser nothing keeps anybody from reading it on a phone."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser

pytestmark = pytest.mark.heavy
ROOT = Path(__file__).parents[2]
PAGES = ("index", "glossary", "reading", "api", "notebooks/design", "search")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warning is an error: a broken link, unknown markup, a page that nobody reaches, a cell that fails."""
    folder: Path = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going", "--builder", "html"]
    done = subprocess.run([*command, ROOT / "docs", folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.timeout(600)
def test_the_site_is_built_and_its_notebooks_run(site: Path) -> None:
    """What they show is there, and words are found."""
    shown = {page.stem: page.read_text() for page in (site / "notebooks").glob("*.html")}
    assert set(shown) == {"app", "curate", "design", "tutorial"}
    assert "Done with up to period 7" in shown["app"]
    assert "<svg" in shown["design"] or re.search(r'<img[^>]+src="../_images/', shown["design"])
    assert "standard_error" in shown["curate"]
    assert "answer" in shown["tutorial"]
    assert "freez" in (site / "searchindex.js").read_text()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_can_be_read_by_everybody(chromium: Browser, site: Path, name: str) -> None:
    """axe finds nothing serious, and a phone's width is enough. Of the API's names a few are looked at."""
    page = chromium.new_page(viewport={"width": 390, "height": 800})
    page.goto((site / f"{name}.html").as_uri())
    page.evaluate("document.querySelectorAll('.cell_output').forEach((each) => each.remove())")  # what notebooks show
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.evaluate("document.querySelectorAll('dl.py').forEach((each, at) => at < 20 || each.remove())")
    found = Axe().run(page).response["violations"]
    assert [each["id"] for each in found if each["impact"] in {"serious", "critical"}] == []
    page.close()
