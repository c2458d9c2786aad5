"""Reports: what a command printed and drew, as one HTML file that needs nothing else, for whoever decides on a survey.

A `RecordingConsole` is a console that keeps what is printed on it. Its tables become tables, its lines paragraphs;
pictures are set between them as SVG. The file asks no address for anything, is read in light and dark, and prints.
"""

import io
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PROMISE = (
    "How to read it: each device answers at random, with odds that are fixed beforehand. Epsilon bounds what all "
    "that one device ever sends in this survey can tell about its whole history of answers: nothing that is sent is "
    "more than e to the power of epsilon times likelier for one history than for any other. At epsilon 1 that is 2.7 "
    "times, at 4 it is 55 times, at 8 it is 2,981 times. It holds against the server itself, whatever it knows besides."
)
STYLE = """
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
.scrolled { overflow-x: auto; margin: 1rem 0 }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem }
caption { text-align: left; font-weight: 600; padding-bottom: .3rem }
th, td { padding: .25rem .7rem; text-align: left; border-bottom: 1px solid #8886 }
td { vertical-align: top; white-space: pre-line }
.number { text-align: right }
figure { margin: 1.5rem 0; background: #fff; padding: .5rem; border-radius: .3rem }
figure svg { max-width: 100%; height: auto; display: block }
@media print {
  body { margin: 0; max-width: none }
  .scrolled { overflow: visible }
  table, figure { break-inside: avoid }
}
"""


class RecordingConsole(Console):
    """A console that keeps the tables and lines that are printed on it."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._parts: list[str] = []

    def print(self, *objects: Any, **settings: Any) -> None:
        """Prints as a console does, and keeps tables and lines."""
        super().print(*objects, **settings)
        self._parts += [_table(each) if isinstance(each, Table) else f"<p>{_plain(each)}</p>" for each in objects]

    def picture(self, figure: "Figure", said: str) -> None:
        """Keeps a picture, which is not printed. said: what it shows, for those who do not see it."""
        drawn = io.StringIO()
        figure.savefig(drawn, format="svg", metadata={"Date": None})
        svg = drawn.getvalue()
        svg = svg[svg.index("<svg") :].replace("<svg", f'<svg role="img" aria-label="{escape(said)}"', 1)
        self._parts.append(f"<figure>{svg}</figure>")

    @property
    def html(self) -> str:
        """What was kept so far, as HTML without a head."""
        return "\n".join(self._parts)

    def write(self, path: Path, title: str) -> None:
        """Writes what was kept as one HTML file, under a title. Raises OSError if it cannot be written."""
        path.write_text(
            f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<style>{STYLE}</style></head>\n<body><main>\n<h1>{escape(title)}</h1>\n<p>{PROMISE}</p>\n"
            + self.html
            + "\n</main></body></html>\n",
            encoding="utf-8",
        )


def silent() -> RecordingConsole:
    """A recorder that keeps and shows nothing, for what a notebook or a file will show."""
    return RecordingConsole(file=io.StringIO())


def _plain(shown: object) -> str:
    return escape((Text.from_markup(shown) if isinstance(shown, str) else Text(str(shown))).plain)


def _table(table: Table) -> str:
    classes = [' class="number"' if column.justify == "right" else "" for column in table.columns]
    columns = [[_plain(cell) for cell in column.cells] for column in table.columns]
    rows = [
        "".join(f"<td{c}>{cell}</td>" for c, cell in zip(classes, row, strict=True))
        for row in zip(*columns, strict=True)
    ]
    heads = [_plain(column.header) for column in table.columns]
    head = (
        "".join(f"<th scope=col{c}>{name}</th>" for c, name in zip(classes, heads, strict=True)) if any(heads) else ""
    )
    caption = f"<caption>{_plain(table.title)}</caption>" if table.title else ""
    body = "".join(f"<tr>{row}</tr>\n" for row in rows)
    note = f"<p>{_plain(table.caption)}</p>" if table.caption else ""
    whole = f"<table>{caption}<thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table>"
    return f'<div class="scrolled" tabindex="0">{whole}</div>{note}'
