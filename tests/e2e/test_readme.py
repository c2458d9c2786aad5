"""What the README shows works as it stands there: only addresses, keys and dates are put in."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from changeling_aggregator.testing.serving import free_port
from changeling_simulations import Population

from demo.__main__ import SHORT, best_of_the_paper, best_plan, sample

from ..command_line import changeling, changeling_sim, invoked
from ..docs.blocks import ROOT, commands_of

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]
PAGES = ("app", "operator", "reading", "designer", "central/guide", "scale", "segments", "spark")
DOORS = ("README.md", *(f"docs/{page}.md" for page in PAGES))
COMPARED = (
    *("changeling's plan", "PrivUnitG on the whole history", "a panel", "k-RR afresh each period"),
    *("the paper's hierarchy", "memoised k-RR", "dBitFlipPM", "RAPPOR", "LOLOHA"),
)
"""The methods of the README's table, as `changeling-sim compare` names them."""
SHOWN = "\n".join((ROOT / page).read_text() for page in DOORS)
"""What a new user is shown: the README and the page behind each of its doors."""
COMMANDS = Path(sys.executable).parent


def block_with(words, language):
    (block,) = (b for b in re.findall(rf"```{language}\n(.*?)```", SHOWN, re.DOTALL) if words in b)
    return block


@pytest.fixture
def operated(tmp_path):
    """The server of the README's commands, all of them run up to the histogram; its URL, pinned key and survey."""
    port = str(free_port())
    environment = dict(os.environ)
    server = None
    printed = ""
    try:
        for command in commands_of(block_with("changeling serve --store server.db", "console")):
            if "|" in command:  # a shell's, of programs that the machine has
                line = " ".join(word if word == "|" else shlex.quote(word) for word in command)
                subprocess.run(["sh", "-c", line], check=True, cwd=tmp_path)
                continue
            words = [str(COMMANDS / command[0]), *(word.replace(":8080", f":{port}") for word in command[1:])]
            if "--start" in words:
                words[words.index("--start") + 1] = time.strftime("%Y-%m-%d", time.gmtime(time.time() - 86_400))
            if "--expires" in words:
                words[words.index("--expires") + 1] = "2100-01-01"
            options = {"cwd": tmp_path, "env": environment, "stdout": subprocess.PIPE, "text": True}
            if "serve" in words:
                server = subprocess.Popen([*words, "--port", port], **options)
                listens = server.stdout.readline()
                assert port in listens, listens
            elif "series" not in words:
                printed += subprocess.run(words, check=True, **options).stdout
            if "token" in words:
                environment["CHANGELING_TOKEN"] = (tmp_path / "operator.token").read_text().strip()
        survey = re.search(r"survey ([0-9a-f]{32}) is published", printed)[1]
        yield f"http://127.0.0.1:{port}", (tmp_path / "authority/authority.pub").read_text().strip(), survey
    finally:
        if server is not None:
            server.terminate()
            server.communicate(timeout=100)


def test_the_commands_and_the_app_of_the_readme_work_together(operated, tmp_path):
    """Every command succeeds in the order shown; the app joins the survey, records, flushes, and sees its ledger."""
    url, authority, survey = operated
    app = block_with("from changeling_client import Client", "python")
    app = app.replace("https://surveys.example.org", url).replace('"…"', f'"{authority}"')
    app = re.sub(r'join\("[0-9a-f]{32}"\)', f'join("{survey}")', app)
    app = app.replace("    print(", "    client.flush()  # which a background thread would do\n    print(")
    home = {**os.environ, "HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", app], cwd=tmp_path, env=home, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "Privacy spent on surveys: 8 of at most 10." in done.stdout
    assert (tmp_path / "org.example.tea/changeling.db").exists()
    listed = httpx.get(f"{url}/v1/surveys", timeout=100).json()["surveys"]
    assert [each["id"] for each in listed] == [survey]


def test_the_release_of_the_readme_runs(tmp_path):
    """All 744 hours of January 2013 are published, with their picture."""
    (command,) = commands_of(block_with("planes.csv", "console"))
    shutil.copytree(ROOT / "data", tmp_path / "data")
    done = subprocess.run([str(COMMANDS / command[0]), *command[1:]], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    published = [line for line in (tmp_path / "planes.csv").read_text().splitlines() if not line.startswith("# ")]
    assert len(published) == 1 + 744
    assert (tmp_path / "planes.png").stat().st_size > 10_000


def printed(command):
    """What a command prints, run in this process."""
    program, *words = command.split()
    done = invoked({"changeling": changeling, "changeling-sim": changeling_sim}[program], *words)
    assert done.exit_code == 0, done.stderr
    return done.stdout


def test_every_command_is_in_the_readme():
    """No command of the two command lines is left undocumented."""
    for program in ("changeling", "changeling-sim"):
        names = re.findall(r"^│ (\w+) ", printed(f"{program} --help"), re.MULTILINE)
        assert names
        for name in names:
            assert f"{program} {name}" in SHOWN


@pytest.mark.parametrize(
    ("command", "page"), [("changeling release count ask", "central/guide"), ("changeling-sim plan", "planning")]
)
def test_every_option_stands_on_its_page(command, page):
    """No option of the long commands is left undocumented, and the pages name none that there is not."""
    program, *names = command.split()
    shown = "".join(printed(f"{program} {name} --help") for name in names)
    options, written = (
        set(re.findall(r"--[a-z][a-z-]*", text)) for text in (shown, (ROOT / f"docs/{page}.md").read_text())
    )
    assert options - {"--help"} == written - {"--survey"}


def test_the_tables_of_the_readme_are_what_the_commands_print():
    """How many users it takes at each epsilon; and the errors, losses and exposed users beside other methods."""
    readme = (ROOT / "README.md").read_text()
    (plan,) = re.findall(r"`(changeling-sim plan [^`]*) --epsilon 4`", readme)
    epsilons, users = (
        [cell.strip() for cell in line.split("|")[2:-1]]
        for line in re.findall(r"^\| (?:ε|users).*$", readme, re.MULTILINE)[:2]
    )
    for epsilon, needed in zip(epsilons, users, strict=True):
        assert re.search(rf"optimal .*│ +{needed} │", printed(f"{plan} --epsilon {epsilon}")), (epsilon, needed)
    (compare,) = re.findall(r"`(changeling-sim compare [^`]*)`", readme)
    figures = json.loads(printed(f"{' '.join(compare.split())} --json"))
    named = {each["name"].partition(",")[0].partition(" (")[0]: each for each in figures}
    named["a panel"] = next(each for each in figures if each["name"].startswith("a panel"))
    named["the paper's hierarchy"] = next(each for each in figures if each["name"].startswith("the paper's hierarchy"))
    lines = re.findall(r"^\|[^|]+\|[^|]+\| (?:\*\*)?4[^|]*\|[^|]+\|[^|]+\|$", readme, re.MULTILINE)
    rows = [[cell.strip(" *") for cell in line.split("|")[1:-1]] for line in lines[1:]]
    assert len(rows) == len(COMPARED)
    for (_, error, promised, really, exposed), name in zip(rows, COMPARED, strict=True):
        found = named[name]
        assert float(error) == pytest.approx(100 * found["error"], abs=0.5 * 10 ** -len(error.partition(".")[2]))
        assert promised == ("4" if found["whole_life"] else "4 for the values held")
        bound = re.findall(r"[\d.]+", really)
        assert found["really"] is None if not bound else abs(float(bound[0]) - found["really"]) < 0.1
        assert exposed == (f"{100 * found['exposed']:.0f}%" if found["exposed"] else "none")


def test_the_figures_of_the_demo_are_what_it_draws():
    """How many clients it has, and how far its estimates and the paper's are off, in points."""
    readme = " ".join((ROOT / "README.md").read_text().split())
    clients, off, papers = re.search(
        r"takes (\d+) real clients .*: (\d+) points off, .* would be off by (\d+)\.", readme
    ).groups()
    changelog = SHORT.changelog()
    population = Population.from_changelog(changelog, SHORT.calendar(), SHORT.constraint)
    _, survey = best_plan(SHORT, changelog.answers, population.entries)
    drawn = sample(population, planned=survey, paper=best_of_the_paper(SHORT, population)[1])
    assert int(clients) == population.entries
    assert [int(off), int(papers)] == [round(100 * drawn[name][0].rms_error) for name in ("planned", "paper")]
