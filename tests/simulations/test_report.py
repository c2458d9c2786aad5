"""Reports: one file with the tables, words and pictures of a command, which asks no address for anything."""

import re
from pathlib import Path

import pytest
from changeling_simulations.reports import RecordingConsole
from rich.table import Table

from tests.command_line import changeling_sim as main
from tests.command_line import invoked

PLAN = "--answers 2 --period 4w --horizon 24w --at-most 2 --epsilon 4 --devices 5000"


def test_what_was_printed_is_in_the_report_and_can_do_nothing(tmp_path: Path) -> None:
    console = RecordingConsole(quiet=True)
    table = Table(title="<b>Shares</b>")
    table.add_column("answer")
    table.add_column("%", justify="right")
    table.add_row("[bold]tea & <script>[/]", "4.5")
    console.print(table)
    console.print("[yellow]warning:[/] little")
    console.write(tmp_path / "report.html", "A <plan>")
    written = (tmp_path / "report.html").read_text()
    assert "<h1>A &lt;plan&gt;</h1>" in written
    assert "<caption>&lt;b&gt;Shares&lt;/b&gt;</caption>" in written
    assert '<tr><td>tea &amp; &lt;script&gt;</td><td class="number">4.5</td></tr>' in written
    assert "<p>warning: little</p>" in written


@pytest.mark.parametrize(
    "words",
    [
        f"plan {PLAN}",
        f"compare {PLAN}",
        "run --synthetic --answers 2 --changes 1 --periods 6 --at-most 2 --entries 500",
    ],
    ids=["plan", "compare", "run"],
)
def test_a_command_writes_its_report(words: str, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    assert invoked(main, *words.split(), "--report", str(path)).exit_code == 0
    written = path.read_text()
    assert written.count("<table>") >= 1
    assert ("<svg" in written) == (not words.startswith("compare"))
    assert not re.search(r'(?:src|href)="(?!#)', re.sub(r'xlink:href="#[^"]*"', "", written))
    assert "<script" not in written
