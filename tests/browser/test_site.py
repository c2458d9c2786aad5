"""The documentation site in a browser: nothing that keeps somebody from reading it, and nothing wider than a phone."""

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
    """The site, with what its notebooks show left out."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "--quiet", "--define", "nb_execution_mode=off", ROOT / "docs", folder]
    subprocess.run(command, check=True, capture_output=True)
    return folder


@pytest.mark.parametrize("name", PAGES)
def test_a_page_can_be_read_by_everybody(chromium: Browser, site: Path, name: str) -> None:
    """axe finds nothing serious, and a phone's width is enough."""
    page = chromium.new_page(viewport={"width": 390, "height": 800})
    page.goto((site / f"{name}.html").as_uri())
    found = Axe().run(page).response["violations"]
    assert [each["id"] for each in found if each["impact"] in {"serious", "critical"}] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.close()
