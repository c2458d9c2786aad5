"""`changeling-sim run`: by name, by file and made up, with what goes wrong; a refusal is one line. And the reports of
all commands: one file with their tables, words and pictures, which asks no address for anything.
"""

import csv
import json
import re
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from changeling_aggregator.cli import console
from changeling_protocol import AtMost, Calendar, Question
from changeling_simulations import bundled_names, calendar_for, changelog_path, paper_survey
from changeling_simulations import experiment as trials
from changeling_simulations.commands import recorder
from changeling_statistics import read_csv, steady_changes, write_survey
from rich.table import Table

from tests.command_line import changeling_sim as main
from tests.command_line import invoked

SCHOOL = changelog_path("school-to-work")
ANSWERS = ("employment", "further education", "higher education", "joblessness", "school", "training")
WEEK = 7 * 86_400


def ran(arguments: str, *more: str):
    result = invoked(main, "run", *arguments.split(), *more)
    assert result.exit_code == 0, result.output
    return result


def refused(arguments: str, *more: str) -> str:
    result = invoked(main, "run", *arguments.split(), *more)
    assert result.exit_code in (1, 2)
    return re.sub(r"[\s│]+", " ", result.stderr)


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


@pytest.mark.heavy
def test_the_bundled_changelog_runs_by_name_and_writes_its_files(tmp_path):
    """A billion entries of it, with the truth in the table and in the CSV."""
    out, picture = tmp_path / "out.csv", tmp_path / "out.png"
    billion = "school-to-work --period 52w --at-most 4 --entries 1000000000 --csv"
    output = ran(billion, str(out), "--plot", str(picture)).output
    for part in ("1,000,000,000 entries", "joblessness", "at most 8 an entry", "freezing", "7 periods of 52w"):
        assert part in output
    rows = rows_of(out)
    assert len(rows) == 7 * 6
    assert sum(int(row["truth"]) for row in rows[-6:]) == 10**9
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_same_seed_repeats_a_run_and_another_does_not():
    """Figure by figure."""
    run = [ran(f"{SCHOOL} --period 52w --at-most 4 --seed {seed}").output for seed in (1, 1, 2)]
    assert run[0] == run[1] != run[2]


@pytest.mark.heavy
def test_switches_show_what_they_do_alone_and_together(monkeypatch, tmp_path):
    """A row where everybody answers, one for each switch, one for all; JSON is all of standard output."""
    monkeypatch.setattr(trials, "ENTRIES_A_TRIAL", 0)
    monkeypatch.setattr(trials, "FEWEST", 4)
    small = "--synthetic --answers 2 --changes 1 --periods 4 --period 1d --entries 50000 --at-most 4 --epsilon 20"
    output = ran(f"{small} --offline 10% --spell 3 --outage 3").output
    rows = [line for line in output.splitlines() if "%" in line and "│" in line]
    first = [row.split("│")[1].strip() for row in rows[-4:]]
    assert first == ["everybody answers", "--offline", "--outage", "all of these"]
    assert "over 4 surveys each" in output
    assert "1 of the periods are not estimable" in output
    written = tmp_path / "rows.csv"
    figures = json.loads(ran(f"{small} --uninstalls 0.02 --json --csv {written}").stdout)
    assert set(figures["field"]) == {"everybody answers", "--uninstalls"}
    assert (figures["epsilon"], figures["entries"], figures["gaps"]) == ("20", 50_000, 0)
    assert [row["estimate"] for row in figures["rows"]] == [float(row["estimate"]) for row in rows_of(written)]


def test_a_made_up_population_that_comes_gradually_runs():
    """Time-bounded, under the best plan; the paper's hierarchy stands beside it, and is worse."""
    asked = "--synthetic --answers 3 --changes 1 --periods 8 --period 1h --within 6h --layers 3 --epsilon 20"
    output = ran(f"{asked} --entries 1000000 --gradual").output
    beside = re.search(r"paper's hierarchy of 3 layers.* ([\d.e+]+) times the entries", " ".join(output.split()))
    assert beside is not None
    assert float(beside[1]) > 10


REFUSED = {
    "": "name one changelog",
    "school-to-work --synthetic": "name one changelog",
    "nowhere": "no file 'nowhere', and no bundled changelog of that name: there is school-to-work",
    "school-to-work --at-most 4 --period 52w --layers 9": "choose fewer layers",
    "school-to-work --at-most 4 --period 52w --epsilon 10000": "at most 43",
    "school-to-work --epsilon -1": "epsilon must be above 0",
    "school-to-work --epsilon nan": "epsilon is a number",
    "school-to-work --period 3mo": "months and years differ in length",
    "school-to-work --period 1s": "choose wider ones",
    "school-to-work --start soon": "a time is like 2026-01-31",
    "school-to-work --at-most 4 --period 52w --csv no/such/folder.csv": "No such file or directory",
    "--synthetic --changes 99": "changes on average",
    "--synthetic --align": "--align moves a changelog",
}
REFUSED_IN_THE_FIELD = {
    "--offline 1.5": "'--offline': a rate is from 0 to 1, got 1.5",
    "--arrivals -0.1": "'--arrivals': a rate is from 0 to 1, got -0.1",
    "--uninstalls nan": "'--uninstalls': a rate is from 0 to 1",
    "--reinstalls often": "'--reinstalls': a rate is a number such as 0.05, or 5%",
    "--late 120%": "'--late': a rate is from 0 to 1",
    "--outage sunday": "'--outage': periods are like 5 or 5-7",
    "--outage 7-5": "'--outage': periods are like 5 or 5-7",
    "--spell 3": "say how many are offline, too",
    "--push tea": "say how many lie, too",
    "--liars 1% --push tea": "there is no 'tea'",
    "--reluctant tea:5%": "there is no 'tea'",
    "--reluctant tea": "a rate is a number such as 0.05, or 5%, got 'tea'",
    "--reluctant tea:often": "a rate is a number such as 0.05, or 5%",
    "--behind 2": "'--behind': a rate is from 0 to 1, got 2",
    "--world flat": "'flat' is not one of 'drift', 'shift', 'seasons', 'heavy'",
    "--offline 0.9 --spell 2": "too few for offline = 0.9",
    "--offline 1": "somebody has to be heard",
    "--offline 0.1 --entries 3000000 --at-most 2 --changes 1": "at most 2,000,000",
}
OVERRIDDEN = (
    "--answers 3, --period 1d, --start 2026-01-01, --periods 9, --at-most 2, --within 1d, --branching 3, --layers 2, "
    "--epsilon 4"
)


@pytest.mark.parametrize(
    ("before", "faults"),
    [
        ("", REFUSED),
        ("--synthetic --periods 4", REFUSED_IN_THE_FIELD),
        (
            "--synthetic --survey survey.json",
            {each: f"{each.split()[0]} is the survey's own" for each in OVERRIDDEN.split(", ")},
        ),
    ],
)
def test_what_cannot_be_is_refused_by_name(before, faults):
    """No traceback, and an exit code."""
    for arguments, fault in faults.items():
        assert fault in refused(f"{before} {arguments}"), arguments


def test_a_bad_changelog_is_refused_by_file_and_line(tmp_path):
    """As the reader says it."""
    path = tmp_path / "mine.csv"
    path.write_text("entry,time,answer\n1,5,a\n1,4,b\n")
    assert "changeling-sim: mine.csv, line 3: its time is before" in refused(str(path))


def test_the_default_calendar_holds_the_whole_changelog():
    """The first mutation in the first period, the last in the last one, or as far as the designer says."""
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


@pytest.fixture
def asking(tmp_path):
    """Writes a survey of so many half years from a time on, and gives the option that runs it."""

    def asking(start, periods, answers=ANSWERS, **others):
        asked = paper_survey(answers, Calendar(start, 24 * WEEK, periods), AtMost(5), epsilon=Decimal(9), layers=2)
        write_survey(tmp_path / "survey.json", replace(asked, **others))
        return f"--survey {tmp_path / 'survey.json'}"

    return asking


def test_a_survey_file_is_run_as_it_stands(asking):
    """Its calendar, answers, constraint and plan, on a real and on a made-up population."""
    survey = asking(741_398_400, 13)
    for population in ("school-to-work", "--synthetic"):
        output = ran(f"{population} --entries 1000000 {survey}").output
        for part in ("13 periods of 24w", "at most 9 an entry", "nodes of 24w, 48w", "school"):
            assert part in output
    assert "line" in refused(f"school-to-work {asking(741_398_400, 13, ('tea', 'coffee'))}")


def test_a_made_up_population_changes_as_often_as_the_survey_expects(tmp_path):
    """Unless it is said how often; which of the two it is, is told."""
    calendar = Calendar(1_767_225_600, WEEK, 5)
    asked = paper_survey(("tea", "coffee"), calendar, AtMost(5), epsilon=Decimal(9), layers=2)
    path = tmp_path / "survey.json"
    write_survey(path, asked.asking(expected=steady_changes(calendar, AtMost(5), 0)))
    words = f"--synthetic --entries 1000 --survey {path}"
    told, truth = ran(words, "--csv", str(tmp_path / "out.csv")).output, "An entry changes 0 times on average"
    assert truth in told
    assert len({row["truth"] for row in rows_of(tmp_path / "out.csv")}) <= 2
    assert truth not in ran(words, "--changes", "2", "--csv", str(tmp_path / "out.csv")).output
    assert len({row["truth"] for row in rows_of(tmp_path / "out.csv")}) > 2


def test_of_a_number_the_mean_is_shown(tmp_path):
    """Beside the true one, and in its unit; of answers by name there is none."""
    asked = paper_survey(
        ("0 min", "30 min", "60 min"), Calendar(1_767_225_600, WEEK, 4), AtMost(4), epsilon=Decimal(60)
    )
    number = Question.of_number("sport", "Sport?", ["0", "30", "60"], AtMost(4), "min")
    write_survey(tmp_path / "number.json", replace(asked, questions=(number,)))
    words = "--synthetic --entries 100000 --changes 1 --survey"
    shown = re.search(r"mean +([\d.]+), in truth ([\d.]+), .* in min", ran(words, str(tmp_path / "number.json")).output)
    assert float(shown[1]) == pytest.approx(float(shown[2]), abs=2)
    write_survey(tmp_path / "names.json", asked)
    assert " in truth " not in ran(words, str(tmp_path / "names.json")).output


def test_a_minimum_is_kept(asking, tmp_path):
    """The command line's, else that of the survey's file; what is below it is a gap."""
    out, survey = tmp_path / "out.csv", asking(1_767_225_600, 8, minimum=1_000_000)
    for options, empty in (("", True), ("--minimum 2", False)):
        ran(f"--synthetic --changes 1 {survey} --csv {out} {options}")
        assert all((row["estimate"] == "") == empty for row in rows_of(out))


def test_a_survey_of_other_dates_is_refused_or_the_changelog_moved(asking):
    """Never simulated as if nobody changed; what is too short for it is refused even so."""
    asked = f"school-to-work {asking(1_767_225_600, 13)}"
    said = refused(asked)
    assert "which is 0 of the 13 periods from 2026-01-01" in said
    assert "move it with --align" in said
    ran(f"{asked} --align")
    assert "choose fewer or shorter periods" in refused(f"school-to-work {asking(1_767_225_600, 26)} --align")


WISH = "--period 4w --horizon 24w --at-most 2 --epsilon 4"
SWEEP = "surveys = 1\nanswers = 2\nperiods = 3\nat_most = [1, 2]\nchanges = 0.5\nentries = 500\nepsilon = [0.0001, 4]"
REPORTS = {
    f"plan {WISH} --answers 2 --devices 50 --minimum 1 --question <b>Tea?</b>": (
        "<h1>The plan of a survey: &lt;b&gt;Tea?&lt;/b&gt;</h1>",
        "<p>warning: ",
        "<svg",
    ),
    f"compare {WISH} --answers 2 --devices 5000": ("<table>", '<td class="number">'),
    "run mine.csv --at-most 2 --period 1d": ("<td>[bold]tea &amp; &lt;script&gt;[/]</td>", "<svg"),
    "sweep experiment.toml -o out.csv --processes 1": (
        "<caption>4 kinds of surveys, errors in points",
        "periods 3",
        "<svg",
    ),
}


@pytest.mark.parametrize("words", REPORTS, ids=[words.split()[0] for words in REPORTS])
def test_what_was_printed_is_in_the_report_and_can_do_nothing(words, tmp_path, monkeypatch):
    """Tables, words and pictures; of what people are asked, and of answers, nothing is markup."""
    monkeypatch.chdir(tmp_path)
    Path("mine.csv").write_text("entry,time,answer\n1,100000,[bold]tea & <script>[/]\n2,100000,milk\n2,400000,[bold]\n")
    Path("experiment.toml").write_text(SWEEP)
    done = invoked(main, *words.split(), "--report", "report.html")
    assert done.exit_code == 0, done.output
    written = Path("report.html").read_text()
    for part in REPORTS[words]:
        assert part in written
    assert not re.search(r'<script|<b>|(?:src|href)="(?!#)', re.sub(r'xlink:href="#[^"]*"', "", written))


@pytest.mark.parametrize("made", [console, recorder])
def test_what_stands_in_brackets_or_between_colons_is_shown_as_it_is(made, capsys):
    """In lines and in tables, of every command: no colour and no picture is made of it."""
    made().print("wrote [bold]:tea:[/b].json")
    made().print(Table("[red]", "[/b]", title="[red]:tea:[/b]", min_width=40))
    shown = capsys.readouterr().out
    assert all(each in shown for each in ("wrote [bold]:tea:[/b].json", "[red]:tea:[/b]", "[red] ", "[/b] "))
