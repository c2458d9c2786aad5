"""What the pages of readers and operators show works as it stands there: only addresses, ids and dates are put in."""

import re
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import httpx
import pytest
from changeling_aggregator.cli import write_private_key
from changeling_aggregator.server import real_time
from changeling_aggregator.store import Store
from changeling_protocol import Calendar

from ..aggregator import whole_survey
from ..aggregator.serving import TOKEN, ServerHere, eventually
from ..protocol.examples import AUTHORITY, PINNED
from .blocks import ROOT, blocks, commands_of, ran

READING, OPERATOR = "docs/reading.md", "docs/operator.md"
DAY, PERIODS = 86_400, 90
ANSWERS = ("school", "training", "employment")


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """A server with a survey of ninety days, which ended yesterday, and the survey."""
    folder = tmp_path_factory.mktemp("shown")
    calendar = Calendar(int(time.time()) // DAY * DAY - (PERIODS + 1) * DAY, DAY, PERIODS)
    survey = whole_survey.whole_survey_store(
        folder / "server.db", [whole_survey.asked("What do you do?", ANSWERS)], calendar
    )
    (folder / "survey.signed").write_bytes(survey.signed_by(AUTHORITY))
    (folder / "authority.pub").write_text(PINNED[0].hex())
    with ServerHere(folder, clock=real_time) as server:
        yield server, survey


@pytest.fixture
def beside(shown, monkeypatch):
    """Runs a page's command beside the server's store, and returns what it prints."""
    server, survey = shown
    monkeypatch.chdir(Path(server.store_path).parent)
    monkeypatch.setenv("CHANGELING_TOKEN", TOKEN)
    at = time.strftime("%Y-%m-%d", time.gmtime(survey.calendar.time(60)))
    put_in = {"2027-03-01": at, "0a1b…": survey.id.hex(), "https://surveys.example.org": server.url}
    return partial(ran, put_in=put_in)


def test_the_commands_of_the_readers_page_print_tables(beside):
    """Every one of them, with a row or a column for each answer."""
    commands = commands_of(blocks(READING, "console")[0])
    assert [words[1] for words in commands] == ["series", "histogram", "change", "change", "status"]
    for words in commands:
        printed = beside(words)
        assert words[1] == "status" or all(answer in printed for answer in ANSWERS)
        for form in ("--json", "--csv") if words[1] != "status" else ("--json",):
            assert beside([*words, form])


def test_what_the_readers_page_says_of_verifying_is_done(beside, shown):
    """A key is made, certified and published; the newest edition is verified, and kept, and verified again."""
    server, survey = shown
    write_private_key(Path(server.store_path).with_name("authority.key"), AUTHORITY)
    newest = f"/v1/surveys/{survey.id.hex()}/editions/latest/edition.signed"
    assert eventually(lambda: server.http.get(newest).status_code, 200)
    verifying, certifying = (commands_of(block) for block in blocks(READING, "console")[1:])
    assert [words[1:3] for words in certifying] == [["keys", "new"], ["keys", "sign"], ["keys", "publish"]]
    printed = [beside(words) for words in [*certifying, *verifying]]
    assert "the key is published" in printed[2]
    assert ["every figure" in each for each in printed[3:]] == [True, True]


def test_the_notebook_of_the_readers_page_runs(shown, monkeypatch):
    """The series has a row for each period and a column for each answer, a frame and a plot."""
    server, survey = shown
    monkeypatch.setenv("MPLBACKEND", "Agg")
    (block,) = blocks(READING, "python")
    names = {}
    exec(block.replace("https://surveys.example.org", server.url).replace("0a1b…", survey.id.hex()), names)
    assert names["series"].values.shape == (PERIODS, len(ANSWERS))
    assert len(names["series"].frame()) == PERIODS * len(ANSWERS)


def test_every_path_parameter_form_and_field_of_the_readers_page_is_there(shown):
    """Those of the tables: each path with each parameter of its own, and with each that all of them take; each form by
    `format=`, with its media type. No field of an estimate is left out, and none named that there is not, but for what
    a survey that asks the freezing question has besides (`tests/aggregator/test_reader.py`)."""
    server, survey = shown
    text = (ROOT / READING).read_text()

    def get(path, query):
        return server.http.get(f"/v1/surveys/{survey.id.hex()}{path}", params=query)

    paths = dict(re.findall(r"^\| `(/[a-z]+)` \|[^|]*\| (.*) \|$", text, re.MULTILINE))
    assert list(paths) == ["/histogram", "/series", "/change", "/windows", "/status"]
    shared = re.findall(r"^\| `([a-z]+=[a-z0-9.]+)` \|", text, re.MULTILINE)
    assert {each.partition("=")[0] for each in shared} == {"method", "population", "confidence", "covariance"}
    time_of = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(survey.calendar.time(60)))
    values = {"period": 60, "until": 60, "after": 30, "width": 7, "time": time_of}
    needed = {"/change": {"after": 30, "until": 60}, "/windows": {"width": 7}}
    for path, parameters in paths.items():
        own = [{name: values[name]} for name in re.findall(r"`([a-z]+)=`", parameters)]
        common = [] if path == "/status" else [dict([each.split("=")]) for each in shared]
        for asked in [{}, *own, *common]:
            answer = get(path, needed.get(path, {}) | asked)
            of_changes = path in needed and asked.get("method") == "smoothed"
            assert answer.status_code == (422 if of_changes else 200), answer.text
    for form in ("json", "msgpack", "csv"):
        assert form in get("/series", {"format": form}).headers["content-type"]
        assert f"`{form}`" in text
    (estimate, *_) = get("/series", {"confidence": 0.9, "covariance": "true"}).json()["series"]
    table = text.partition("| field | means |")[2].partition("\n\n")[0]
    rows = (row.split("|")[1] for row in table.splitlines() if "|" in row)
    fields = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert set(estimate) - fields == {"period", "time", "covariance"}
    assert fields - {"freezing"} <= set(estimate)


def test_a_backup_is_made_and_restored_as_the_operators_page_says(shown, beside):
    """While the server runs; the new store shows the same survey."""
    server, survey = shown
    (block,) = (each for each in blocks(OPERATOR, "console") if "changeling restore 2027" in each)
    for words in commands_of(block):
        beside([word.replace("2027-03-01.backup", "a.backup") for word in words])
    restored = Store.open(Path(server.store_path).with_name("new.db"))
    with restored.view() as view:
        assert view.surveys()[survey.id].looked.final == PERIODS
    restored.close()


@pytest.mark.heavy
def test_a_relay_starts_as_the_operators_page_says(shown, tmp_path):
    """Before the server; it answers for itself."""
    server, _ = shown
    (block,) = (each for each in blocks(OPERATOR, "console") if "changeling relay" in each)
    (words,) = commands_of(block)
    put_in = {"https://server.example": server.url, "/var/lib/changeling-relay": str(tmp_path / "spool")}
    command = [sys.executable, "-m", "changeling_commands", *(put_in.get(word, word) for word in words[1:])]
    folder = Path(server.store_path).parent
    with subprocess.Popen([*command, "--port", "0"], cwd=folder, stdout=subprocess.PIPE, text=True) as relay:
        try:
            address = re.search(r"http://127\.0\.0\.1:\d+", relay.stdout.readline())[0]
            assert eventually(lambda: httpx.get(f"{address}/readyz", timeout=100).status_code in (200, 503), True)
        finally:
            relay.terminate()


@pytest.mark.parametrize(
    "command",
    [
        "changeling fold --store server.db",
        "changeling fold --store server.db --check",
        "changeling token new --store server.db --name NAME --scope SCOPE",
        "changeling survey publish survey.signed --public --server URL",
        "changeling store version --store STORE",
        "changeling keys list --store server.db",
        "changeling survey extend survey.signed -o next.json",
    ],
)
def test_a_command_in_the_operators_sentences_works(shown, beside, command):
    """As it stands there, with names put in for the words in capitals."""
    assert f"`{command}`" in " ".join((ROOT / OPERATOR).read_text().split())
    put_in = {"NAME": "somebody", "SCOPE": "read", "URL": shown[0].url, "STORE": "server.db"}
    assert beside([put_in.get(word, word) for word in command.split()])


class DebianMachine:
    """Runs lines of the page below a folder that stands for the machine's root, as a user who is root already.

    What needs Debian's packages or nginx is left out; where systemd starts the server, its unit's command is run.
    """

    def __init__(self, root):
        self.root, self.server = root, None
        for name in ("etc/systemd/system", "var/lib/changeling/backups", "work"):
            (root / name).mkdir(parents=True)
        (root / "work/authority.pub").write_text(PINNED[0].hex())
        (root / "work/deploy").symlink_to(ROOT / "deploy")

    def run(self, block):
        """What the lines print."""
        printed = ""
        for words in block.replace("$ ", "").replace("sudo ", "").splitlines():
            if any(each in words for each in ("apt ", "python3 -m venv", "/bin/pip ", "nginx")):
                continue
            if words.startswith("systemctl stop"):
                self.stop()
            elif words.startswith("systemctl"):
                assert all((ROOT / "deploy" / each).exists() for each in words.split()[2:] if each != "--now")
                self.start()
            else:
                words = words.replace("/opt/changeling/bin/changeling", f"{sys.executable} -m changeling_commands")
                words = re.sub(r"(?<![\w.])/(?=etc/|var/)", f"{self.root}/", words)
                done = subprocess.run(["sh", "-ec", words], cwd=self.root / "work", capture_output=True, text=True)
                assert done.returncode == 0, (words, done.stdout, done.stderr)
                printed += done.stdout
        return printed

    def start(self):
        """Start the server as its unit says, on free ports."""
        settings = self.root / "etc/changeling/server.toml"
        text = settings.read_text().replace("/run/credentials/changeling.service", "/etc/changeling")
        text = re.sub(r'"/(?=etc/|var/)', f'"{self.root}/', text)
        settings.write_text(text.replace("8080", "0").replace(":9090", ":0"))
        unit = (self.root / "etc/systemd/system/changeling.service").read_text()
        [command] = re.findall(r"^ExecStart=/opt/changeling/bin/changeling (\S+) ", unit, re.MULTILINE)
        words = [sys.executable, "-m", "changeling_commands", command, "--settings", str(settings)]
        self.server = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.server.stdout.readline().startswith("changeling listens on")

    def stop(self):
        """Stop the server, as systemd does."""
        if self.server is not None:
            self.server.terminate()
            assert self.server.wait(60) == 0
            self.server.stdout.close()
            self.server = None


@pytest.mark.heavy
def test_the_debian_machine_of_the_operators_page_runs_is_upgraded_and_restored(tmp_path):
    """One transcript after the other: a server starts on what each leaves, and doctor finds nothing wrong."""
    setup, restore, upgrade = (each for each in blocks(OPERATOR, "console") if "sudo " in each)
    machine = DebianMachine(tmp_path)
    try:
        assert "ok       program: changeling" in machine.run(setup)
        assert "schema version" in machine.run(upgrade)
        backup = tmp_path / "var/lib/changeling/backups/2027-03-01-0017.backup"
        (tmp_path / "work/before-upgrade.backup").rename(backup)
        assert "It has not got" in machine.run(restore)
    finally:
        machine.stop()
