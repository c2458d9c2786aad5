"""The documentation site is built without a warning: notebooks run, links lead somewhere, words are found."""

import re
import subprocess
import sys

import pytest

from .blocks import ROOT


@pytest.mark.heavy
@pytest.mark.timeout(600)
def test_the_site_is_built_and_its_notebooks_run(tmp_path):
    """A warning is an error: a broken link, unknown markup, a page that nobody reaches, a cell that fails."""
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going", "--builder", "html"]
    done = subprocess.run([*command, ROOT / "docs", tmp_path / "site"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    shown = {page.stem: page.read_text() for page in (tmp_path / "site/notebooks").glob("*.html")}
    assert set(shown) == {"app", "curate", "design", "tutorial"}
    assert "Done with up to period 7" in shown["app"]
    assert "<svg" in shown["design"] or re.search(r'<img[^>]+src="../_images/', shown["design"])
    assert "standard_error" in shown["curate"]
    assert "answer" in shown["tutorial"]
    words = (tmp_path / "site/searchindex.js").read_text()
    assert "freez" in words
