"""The documentation site: `make docs` builds it from pages, docstrings and notebooks that are run on build."""

import os
import re
import sys
from pathlib import Path

from sphinx.application import Sphinx

# Notebooks run the commands that are installed beside this Python.
os.environ["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))

project, author = "changeling", "the changeling authors"
extensions = ["myst_nb", "sphinx.ext.autodoc"]
exclude_patterns = ["patches"]
html_theme = "furo"
html_title = "changeling"
html_copy_source = False
html_show_sphinx = False
default_role = "code"
python_display_short_literal_types = True

myst_heading_anchors = 4
myst_enable_extensions = ["deflist"]
suppress_warnings = ["myst.header", "misc.highlighting_failure"]

nb_execution_mode = "force"
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 180

autodoc_default_options = {"members": True, "imported-members": True, "show-inheritance": False}
autodoc_typehints = "signature"
autodoc_member_order = "groupwise"
autodoc_preserve_defaults = True

OUTSIDE = re.compile(r"\[([^\]]*)\]\((?:\.\./)+(?!docs/)([^)#\s]+)[^)\s]*\)")


def _keep_links_inside(app: Sphinx, docname: str, source: list[str]) -> None:
    """A link to a file of the repository that is no page becomes its path."""
    here = Path(docname).parent

    def inside(match: re.Match[str]) -> str:
        text, target = match.groups()
        page = (Path(app.srcdir) / here / match[0].split("](")[1].rstrip(")").partition("#")[0]).resolve()
        if page.is_relative_to(Path(app.srcdir)):
            return match[0]
        return f"{text} (`{target}`)" if text.strip("`") != target else f"`{target}`"

    source[0] = OUTSIDE.sub(inside, source[0])


def _as_restructured(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:  # noqa: ARG001
    """Docstrings are plain text with examples, and code that is set in by four spaces."""
    shown: list[str] = []
    for line in lines:
        set_in, example = line.startswith("    "), line.startswith(">>>")
        before = shown[-1] if shown else ""
        if set_in and not before.strip() and not any(each.startswith(">>>") for each in shown):
            earlier = next((each for each in reversed(shown) if each.strip()), "")
            if not earlier.startswith("    "):
                shown += ["::", ""]
        if not (set_in or example or any(each.startswith(">>>") for each in shown)):
            parts = re.split(r"(`[^`]*`)", line)
            line = "".join(
                f"``{part[1:-1]}``" if at % 2 else re.sub(r"([\\*|_`])", r"\\\1", part) for at, part in enumerate(parts)
            )
        shown.append(line)
    lines[:] = shown


def _for_everybody(app: Sphinx, error: Exception | None) -> None:
    """Says to screen readers and keyboards what the theme leaves out."""
    if error is None:
        for page in Path(app.outdir).rglob("*.html"):
            html = page.read_text(encoding="utf-8").replace('role="heading">', 'role="heading" aria-level="2">')
            html = html.replace("<pre>", '<pre tabindex="0">').replace(
                '<aside class="sidebar', '<aside aria-label="Pages" class="sidebar'
            )
            page.write_text(html, encoding="utf-8")


def setup(app: Sphinx) -> None:
    """Connects what reads pages and docstrings, and what goes over the site."""
    app.connect("build-finished", _for_everybody)
    app.connect("source-read", _keep_links_inside)
    app.connect("autodoc-process-docstring", _as_restructured)
