"""`changeling-sim`: runs by name, by file and made up; says what is wrong in one line."""

import csv
import json
import re
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest
from changeling_protocol import AtMost, Calendar
from changeling_simulations import bundled_names, calendar_for, changelog_path, paper_survey
from changeling_statistics import write_survey

from tests.command_line import changeling_sim as main
from tests.command_line import invoked

SCHOOL = changelog_path("school-to-work")
HEAVY = ["numpy", "scipy", "polars", "pandas", "matplotlib", "sqlalchemy", "uvicorn", "changeling_statistics"]


def invoke(*arguments: str):
    return invoked(main, "run", *arguments)


def test_help_loads_no_server_no_plots_and_no_statistics():
    """`changeling-sim --help` answers without what takes long to import."""
    asked = (
        "import sys, atexit; from changeling_simulations.__main__ import main; "
        f"atexit.register(lambda: print(*[name for name in {HEAVY} if name in sys.modules], file=sys.stderr)); "
        "sys.exit(main())"
    )
    done = subprocess.run([sys.executable, "-c", asked, "--help"], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr.split()) == (0, [])
    assert "Usage: " in done.stdout


def test_the_bundled_changelog_runs_by_name_and_writes_its_files(tmp_path):
    """A billion entries of it, with the truth in the table and in the CSV."""
    out, picture = tmp_path / "out.csv", tmp_path / "out.png"
    billion = ["school-to-work", "--period", "52w", "--at-most", "4", "--entries", "1000000000"]
    result = invoke(*billion, "--csv", str(out), "--plot", str(picture))
    assert result.exit_code == 0, result.output
    for part in ("1,000,000,000 entries", "joblessness", "at most 8 an entry", "freezing", "7 periods of 52w"):
        assert part in result.output
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 7 * 6
    assert sum(int(row["truth"]) for row in rows[-6:]) == 10**9
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.heavy
def test_the_designers_first_command_prints_what_its_page_says():
    """The changes that it allows, its error and the paper's."""
    page = (Path(__file__).parents[2] / "docs/designer.md").read_text()
    (command,) = re.findall(r"^\$ changeling-sim run (school-to-work --entries .*) --plot", page, re.MULTILINE)
    printed = " ".join(invoke(*command.split()).output.split())
    quoted = re.search(
        r"^at most (\d+): rms error ([\d.]+) points, noise ([\d.]+).*\n.*noise of ([\d.]+)", page, re.MULTILINE
    )
    assert quoted is not None
    allowed, error, noise, papers = quoted.groups()
    assert f"│ {allowed} │ 0." in printed
    for line in (f"rms error {error} points", f"noise {noise} points", f"a noise of {papers} points"):
        assert line in printed


def test_the_same_seed_repeats_a_run_and_another_does_not():
    """Figure by figure."""
    run = [invoke(str(SCHOOL), "--period", "52w", "--at-most", "4", "--seed", seed).output for seed in ("1", "1", "2")]
    assert run[0] == run[1] != run[2]


def test_a_run_as_json_has_the_figures_of_its_table(tmp_path):
    """And nothing beside it: a script reads all of standard output. What the field does stands by its name."""
    asked = "--synthetic --answers 2 --periods 3 --at-most 2 --entries 2000 --offline 5%"
    run = invoke(*asked.split(), "--json", "--csv", str(tmp_path / "rows.csv"))
    figures = json.loads(run.stdout)
    assert (figures["epsilon"], figures["entries"], figures["gaps"]) == ("8", 2000, 0)
    with (tmp_path / "rows.csv").open() as file:
        written = [float(row["estimate"]) for row in csv.DictReader(file)]
    assert [row["estimate"] for row in figures["rows"]] == written
    assert set(figures["field"]) == {"everybody answers", "--offline"}


@pytest.mark.parametrize("shape", [[], ["--gradual"]])
def test_a_made_up_population_runs(shape):
    """At once or gradually, time-bounded, under the best plan; the paper's hierarchy stands beside it, and is worse."""
    options = ["--answers", "3", "--changes", "1", "--periods", "8", "--period", "1h", "--within", "6h"]
    result = invoke("--synthetic", *shape, *options, "--layers", "3", "--epsilon", "20", "--entries", "1000000")
    assert result.exit_code == 0, result.output
    beside = re.search(r"paper's hierarchy of 3 layers.* ([\d.e+]+) times the entries", " ".join(result.output.split()))
    assert beside is not None
    assert float(beside[1]) > 10


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ("", "name one changelog"),
        ("school-to-work --synthetic", "name one changelog"),
        ("nowhere", "no file 'nowhere', and no bundled changelog of that name: there is school-to-work"),
        ("school-to-work --at-most 4 --period 52w --layers 9", "choose fewer layers"),
        ("school-to-work --at-most 4 --period 52w --epsilon 10000", "at most 43"),
        ("school-to-work --epsilon -1", "epsilon must be above 0"),
        ("school-to-work --epsilon nan", "epsilon is a number"),
        ("school-to-work --period 3mo", "months and years differ in length"),
        ("school-to-work --period 1s", "choose wider ones"),
        ("school-to-work --start soon", "a time is like 2026-01-31"),
        ("school-to-work --at-most 4 --period 52w --csv no/such/folder.csv", "No such file or directory"),
        ("--synthetic --changes 99", "changes on average"),
    ],
)
def test_what_cannot_be_is_refused_in_words(arguments, fault):
    """No traceback, and an exit code."""
    result = invoke(*arguments.split())
    assert result.exit_code in (1, 2)
    assert fault in re.sub(r"[\s│]+", " ", result.stderr)


def test_a_bad_changelog_is_refused_by_file_and_line(tmp_path):
    """As the reader says it."""
    path = tmp_path / "mine.csv"
    path.write_text("entry,time,answer\n1,5,a\n1,4,b\n")
    assert "changeling-sim: mine.csv, line 3: its time is before" in " ".join(invoke(str(path)).stderr.split())


def test_the_module_runs_as_a_process_and_its_output_is_plain_text_in_a_pipe():
    """No progress bar, no escape codes."""
    words = ["-m", "changeling_simulations", "run", "school-to-work", "--period", "104w", "--at-most", "4"]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=200, check=True)
    assert "Percent of 712 entries" in done.stdout
    assert "\x1b" not in done.stdout
    assert done.stderr == ""


def test_the_default_calendar_holds_the_whole_changelog():
    """The first mutation in the first period, the last in the last one, or as far as the designer says."""
    from changeling_statistics import read_csv

    changelog = read_csv(SCHOOL)
    first, last = changelog.time.min() / 1e6, changelog.time.max() / 1e6
    for period in (None, 86_400, 40_000_000, 10**9):
        calendar = calendar_for(changelog, period)
        assert calendar.period_of(first) == 1
        assert calendar.period_of(last) == calendar.periods
    assert calendar_for(changelog, 86_400, 800_000_000, 7).time(7) == 800_000_000 + 7 * 86_400


def test_every_bundled_name_is_a_file_and_a_file_of_that_name_goes_first(tmp_path, monkeypatch):
    """So a user's own file is never shadowed."""
    assert bundled_names() == ["school-to-work"]
    monkeypatch.chdir(tmp_path)
    Path("school-to-work").touch()
    assert changelog_path("school-to-work") == Path("school-to-work")


def test_a_survey_file_is_run_as_it_stands(tmp_path):
    """Its calendar, answers, constraint and plan, on a real and on a made-up population."""
    file = tmp_path / "survey.json"
    calendar = Calendar(741_398_400, 24 * 7 * 86_400, 13)
    answers = ("employment", "further education", "higher education", "joblessness", "school", "training")
    write_survey(file, paper_survey(answers, calendar, AtMost(5), epsilon=Decimal(9), layers=2))
    for population in ("school-to-work", "--synthetic"):
        result = invoke(population, "--survey", str(file), "--entries", "1000000")
        assert result.exit_code == 0, result.output
        assert all(
            part in result.output for part in ("13 periods of 24w", "at most 9 an entry", "nodes of 24w, 48w", "school")
        )
    write_survey(file, paper_survey(("tea", "coffee"), calendar, AtMost(5), epsilon=Decimal(9)))
    refused = invoke("school-to-work", "--survey", str(file))
    assert refused.exit_code == 1
    assert "line" in refused.output
