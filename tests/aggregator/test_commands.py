"""The operators' command line: surveys and keys through their lives, settings, and what it says is wrong."""

import csv
import json
import shlex
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from io import StringIO

import pytest
from changeling_aggregator.cli.access import console
from changeling_aggregator.cli.results import histogram_table, series_table
from changeling_aggregator.server import real_time
from changeling_aggregator.store import AtRest
from changeling_commands import main as run
from changeling_protocol import (
    AtMost,
    Calendar,
    Odds,
    SealingKey,
    Survey,
    format_duration,
    format_instant,
    parse_duration,
    parse_instant,
)
from changeling_protocol.wire import KEYS, decode_key_list
from changeling_statistics import check_successor, read_survey, write_survey

from ..protocol.examples import AUTHORITY, hierarchical, survey
from .devices import envelope, report
from .serving import ServerHere, ServerProcess

DAY = 86_400
STORE_KEY = "ab" * 32


@pytest.fixture
def here(tmp_path, cli):
    """A folder that holds an authority, and a survey of a week."""
    cli("authority", "new", "-o", ".")
    write_survey(tmp_path / "first.json", survey(calendar=Calendar(1_800_000_000, DAY, 7), minimum=1))
    return tmp_path


@contextmanager
def served(here, cli, **settings):
    """A server of that authority, and what has it make a key, signs that with some dates, and publishes it."""
    store_key = here / "store.key"
    store_key.write_text(STORE_KEY + "\n")

    def publish(*dates):
        printed = cli("keys", "new", "--store", "server.db", "--store-key-file", "store.key", "-o", "key.request")
        cli("keys", "sign", "key.request", "--key", "authority.key", *dates, "-o", "key.signed")
        return printed, run(["keys", "publish", "key.signed", "--server", server.url])

    authority = bytes.fromhex((here / "authority.pub").read_text())
    with ServerHere(here, authority=[authority], at_rest=AtRest(bytes.fromhex(STORE_KEY)), **settings) as server:
        yield server, publish


def test_from_an_authority_to_a_histogram_and_an_early_end(here, cli, capsys):
    """authority new, keys new / sign / publish, survey sign / publish; then what one device reported. In the end the
    survey is closed early, once, and neither otherwise nor after its calendar's end."""
    assert (here / "authority.key").stat().st_mode & 0o777 == 0o600
    asked = survey(answers=("yes", "no"), calendar=Calendar(int(parse_instant("2027-01-31")), DAY, 4), grace=604_800)
    write_survey(here / "tea.json", asked.asking(text="Tea?"))
    cli("survey", "sign", "tea.json", "--key", "authority.key", "-o", "tea.signed")
    authority = bytes.fromhex((here / "authority.pub").read_text())
    signed = Survey.from_signed((here / "tea.signed").read_bytes(), [authority])
    for file in ("tea.signed", "tea.json"):
        assert signed.id.hex() in cli("survey", "show", file)

    with served(here, cli) as (server, publish):
        server.move_clock(signed.calendar.start)
        at_server = ("--server", server.url)
        assert publish("--begins", "2027-01-01", "--expires", "2028-01-01")[1] == 0
        (encoded,) = decode_key_list(server.http.get(KEYS).content)
        key = SealingKey.from_signed(encoded, [authority])
        cli("survey", "publish", "tea.signed", *at_server)
        assert "before" in cli("survey", "publish", "tea.signed", *at_server)

        server.move_clock(signed.calendar.time(2) + 7200)
        everything = [report(1), report(2), report(1, track=1)]
        assert server.upload(envelope(signed, key, everything)) == []
        server.fold()
        table = cli("histogram", "tea.signed", *at_server)
        assert all(word in table for word in ("Tea?", "2027-02-02T00:00:00Z", "yes"))
        assert json.loads(cli("histogram", signed.id.hex(), *at_server, "--json"))["period"] == 2
        assert "period 1" in cli("histogram", "tea.json", *at_server, "--at", "2027-02-01T12:00:00")
        assert "all answers" in table
        assert "95% interval" in table
        assert "About the 1 entries that were heard: 1 of 2 (50%) were heard" in " ".join(table.split())
        assert " to " in cli("series", "tea.json", *at_server)
        rows = list(csv.DictReader(StringIO(cli("series", "tea.json", *at_server, "--csv"))))
        assert [row["period"] + row["answer"] for row in rows] == ["1yes", "1no", "2yes", "2no"]
        assert {"intervals_low", "simultaneous_high", "epsilon"} <= set(rows[0])
        assert "change from the end of period 1" in cli("change", "tea.json", *at_server, "--after", "1")
        windows = json.loads(cli("change", "tea.json", *at_server, "--width", "1", "--json"))["series"]
        assert [(each["after"], each["until"]) for each in windows] == [(0, 1), (1, 2)]
        assert run(["change", "tea.json", *at_server]) == 1
        assert "biased" in cli("series", "tea.json", *at_server, "--method", "smoothed", "--json")
        told = cli("status", "tea.json", *at_server)
        words = f"epsilon {float(signed.epsilon):g}", "up to 2", "Refused", "waiting to be counted"
        assert all(word in told for word in words)

        close = "survey", "close", "tea.signed", "--key", "authority.key", *at_server
        assert "is ended with period 3, at 2027-02-03T00:00:00Z" in cli(*close, "--after", "3")
        assert "was before ended with period 3" in cli(*close, "--after", "3")
        capsys.readouterr()
        for after, sentence in (("2", "an end stays as it is"), ("4", "after period 1 to 3, got 4"), ("0", "got 0")):
            assert run([*close, "--after", after]) == 1
            assert sentence in capsys.readouterr().err


def test_a_sealing_key_from_its_making_to_the_next(here, cli, capsys):
    """keys list tells where each is in its life and how long it has; keys new from when on the next is to be signed."""
    tomorrow = format_instant(time.time() // 3600 * 3600 + 20 * 3600)  # and at no time of a day is that just now
    with served(here, cli, clock=real_time) as (server, publish):
        printed, code = publish("--expires", tomorrow)
        assert ("--begins" in printed, code) == (False, 0)
        printed, code = publish("--expires", "2999-01-01")
        assert (f"--begins {tomorrow}" in printed, code) == (True, 1)
        assert f"--begins {tomorrow} or later" in capsys.readouterr().err
        assert publish("--begins", tomorrow, "--expires", "2999-01-01")[1] == 0
        table = cli("keys", "list", "--store", "server.db").splitlines()
        states = [[word for word in line.split() if word in ("pending", "active", "unsigned")] for line in table]
        assert sorted(state for found in states for state in found) == ["active", "pending", "unsigned"]
        (active,) = (line for line in table if "active" in line)
        assert all(word in active for word in (f" {tomorrow} ", " 0 ", "encrypted"))
        assert len(decode_key_list(server.http.get(KEYS).content)) == 1
        assert server.http.get("/readyz").json()["troubles"] == []


def test_a_key_that_is_of_no_use_is_refused_and_a_gap_is_told(here, cli, capsys):
    """One that has expired stays unsigned; of one that begins later it is said when no key is valid; one whose private
    half is gone is not said to be published."""
    soon, later, last = (format_instant(time.time() // 3600 * 3600 + hours * 3600) for hours in (20, 40, 60))
    with served(here, cli, clock=real_time) as (server, publish):
        capsys.readouterr()
        assert publish("--begins", "2020-01-01", "--expires", "2021-01-01")[1] == 1
        assert "expired at 2021-01-01T00:00:00Z" in capsys.readouterr().err
        assert publish("--expires", soon)[1] == 0
        assert "no sealing key" not in capsys.readouterr().out
        assert publish("--begins", later, "--expires", last)[1] == 0
        assert f"from {soon} to {later} no sealing key is valid" in capsys.readouterr().out
        with closing(sqlite3.connect(here / "server.db")) as connection, connection:
            connection.execute("UPDATE keys SET private = NULL WHERE signed IS NOT NULL")
        assert run(["keys", "publish", "key.signed", "--server", server.url]) == 1
        assert "its private half is not in this store" in capsys.readouterr().err


def test_the_store_key_can_be_replaced(here, cli, capsys):
    """keys reencrypt puts the private keys under another; the old one opens nothing, and no server starts with it."""
    for name in ("old", "new"):
        (here / name).write_text(name.encode().hex().ljust(64, "0"))
    for results in ((), ("--results",)):
        told = cli("keys", "new", "--store", "server.db", "-o", "1.request", *results)
        assert "lies in the store unencrypted: with --store-key-file" in told
    assert "clear" in cli("keys", "list", "--store", "server.db")
    cli("keys", "reencrypt", "--store", "server.db", "--new-store-key-file", "old")
    assert "clear" not in cli("keys", "list", "--store", "server.db")
    renew = ("keys", "reencrypt", "--store", "server.db", "--new-store-key-file", "new")
    assert run([*renew]) == 1
    assert "encrypted: give the store key" in capsys.readouterr().err
    assert "2 private keys" in cli(*renew, "--store-key-file", "old")
    assert "unencrypted" not in cli("keys", "new", "--store", "server.db", "--store-key-file", "new", "-o", "2.request")
    (here / "none").write_text("ab" * 31)
    for file, sentence in (("old", '"The store key is lost" in docs/operator.md'), ("none", "none holds no store key")):
        serve = ["serve", "--store", "server.db", "--authority", "authority.pub", "--port", "0"]
        assert run([*serve, "--store-key-file", file]) == 1
        assert sentence in capsys.readouterr().err
        assert run(["keys", "new", "--store", "server.db", "-o", "2.request", "--store-key-file", file]) == 1
        assert sentence in capsys.readouterr().err


def test_a_survey_is_extended_with_its_plan_or_another(here, cli):
    """By itself, planned anew, and with a plan of the designer's; what all of them cost a person is printed."""
    first = read_survey(here / "first.json")
    printed = cli("survey", "extend", "first.json", "-o", "second.json")
    second = read_survey(here / "second.json")
    check_successor(first, second)
    assert (second.plan, second.epsilon, second.minimum) == (first.plan, first.epsilon, 1)
    for figure in (f"{first.epsilon}", f"{2 * first.epsilon}", f"{first.per_week}", first.id.hex(), second.id.hex()):
        assert figure in printed

    words = "first.json second.json --periods 14 --epsilon 2 --devices 1e4 -o 3.json"
    printed = cli("survey", "extend", *words.split())
    third = read_survey(here / "3.json")
    check_successor(second, third)
    assert (third.calendar.periods, third.epsilon, third.per_week) == (14, 2, 1)
    assert any(group.joint for group in third.plan.groups)
    assert f"{2 * first.epsilon + 2}" in printed

    other = survey(hierarchical(3, 5, (1,), Odds(2, 1)), calendar=Calendar(0, DAY, 5), constraint=AtMost(2))
    write_survey(here / "planned.json", other)
    cli("survey", "extend", "first.json", "--plan", "planned.json", "-o", "planned_second.json")
    planned = read_survey(here / "planned_second.json")
    check_successor(first, planned)
    assert (planned.plan, planned.epsilon, planned.constraint) == (other.plan, other.epsilon, AtMost(2))


@pytest.mark.parametrize("command", ["sign --key none.key", "code --authority none.pub", "extend"])
def test_no_command_writes_over_a_file_on_a_terminal_before_that_is_agreed_to(command, here, monkeypatch, capsys):
    """Asked first of all; who says no keeps the file."""
    (here / "written").write_text("kept")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.confirm", lambda *_, **__: False)
    name, *options = command.split()
    assert run(("survey", name, "first.json", *options, "-o", "written")) == 1
    assert "written stays as it is" in capsys.readouterr().err
    assert (here / "written").read_text() == "kept"


NOWHERE = "--server http://127.0.0.1:9"
SERVE = "serve --store s.db --authority authority.pub"
RELAY = "relay --upstream https://server.example --authority authority.pub --spool spool"
EXTEND = "survey extend first.json -o x"
REFUSED = {
    "survey sign missing.json --key k -o x": "missing.json",
    "survey show garbage": "garbage holds no survey: not canonical MessagePack",
    "survey sign json --key k -o x": "json holds no survey: not the JSON of a survey",
    f"survey publish first.json {NOWHERE}": "first.json is not signed: sign it with `changeling survey sign`",
    f"survey publish key {NOWHERE}": "key holds no survey: the bytes are not a",
    "survey new --zzz": "No such option: --zzz; see changeling survey new --help",
    "keys sign garbage --key k --expires 2028-01-01 -o x": "holds no public key",
    f"keys publish garbage {NOWHERE}": "garbage holds no signed key: not",
    "keys new --store garbage -o x": "cannot be used as a store",
    f"histogram {'00' * 16} {NOWHERE}": "could not be reached",
    **{
        f"{words} --store typo.db": "there is no store at typo.db"
        for words in ("fold", "backup -o x", "keys list", "token list", "token revoke 00112233", "segments list")
    },
    "doctor": "Missing option '--store'; see changeling doctor --help",
    "serve --store s --authority garbage": "holds no public key",
    "serve --authority authority.pub": "Missing option '--store'",
    f"{SERVE} twice": "'twice'",
    f"{SERVE} --prot 1": "--prot",
    f"{SERVE} --movable-clock --proxy 10.0.0.1 --host 0.0.0.0": "a movable clock is for loopback only, not for 0.0.0.0",
    f"{SERVE} --host 0.0.0.0": "give a --certificate, or name the --proxy",
    f"{SERVE} --proxy somewhere": "does not appear to be an IPv4 or IPv6 network",
    f"{SERVE} --settings json": "(at line 1, column 1)",
    f"{SERVE} --settings open.toml": "open.toml is no TOML: ",
    "token new --store server.db --name me --scope all": "one of survey:write, fold, read, upload, got 'all'",
    "token new --store server.db --name ' ' --scope read": "a token has a name",
    RELAY: "name either this relay's --url, or each --survey",
    f"{RELAY} --url ''": "name either this relay's --url, or each --survey",
    f"{RELAY} --survey ab": "a survey's id is 32 hexadecimal digits",
    f"{RELAY} --url https://a.example --host 0.0.0.0": "name the --proxy with TLS",
    f"{RELAY} --url https://a.example --wait 2h --most-wait 1h": "the wait is at least 1 s",
    f"{RELAY} --url https://a.example --upstream http://b.example": "must be https, but on loopback",
    "survey extend first.json first.json -o x": "does not follow",
    f"{EXTEND} --periods 3": "the plan is made for 7 periods",
    f"{EXTEND} --plan first.json --epsilon 1": "choose one of --plan and --epsilon",
    f"{EXTEND} --plan hourly.json": "periods of 3600 s",
    f"{EXTEND} --plan first.json --periods 3": "made for 7 periods, got 3",
    f"{EXTEND} --plan yes_no.json": "made for 2 answers",
    f"{EXTEND} --epsilon 1": "--epsilon and --devices go together",
    f"{EXTEND} --epsilon -1 --devices 9": "epsilon must be above 0",
    f"{EXTEND} --epsilon 1 --devices 9 --periods 0": "1 to 1048576 periods, got 0",
}
"""A command that cannot be, and what is said of it."""


@pytest.mark.parametrize("words", REFUSED)
def test_an_error_is_one_line_and_an_exit_code(here, capsys, words):
    """It says what is wrong, with 1, or 2 where an option cannot be read; nothing is written, nothing is begun."""
    (here / "garbage").write_text("x" * 2000)
    (here / "json").write_text('{"survey": 1}')
    (here / "open.toml").write_text('port = "8080')
    (here / "key").write_bytes(SealingKey(bytes(31) + b"\7", 0, 1).signed_by(AUTHORITY))
    write_survey(here / "hourly.json", survey(calendar=Calendar(0, 3600, 8)))
    write_survey(here / "yes_no.json", survey(answers=("yes", "no"), calendar=Calendar(0, DAY, 8)))
    before = {*here.iterdir()}
    capsys.readouterr()
    assert run(shlex.split(words)) in (1, 2)
    error = capsys.readouterr().err
    assert error.startswith("changeling: ")
    assert error.count("\n") == 1
    assert REFUSED[words] in error
    assert {each.name for each in {*here.iterdir()} - before} <= {"server.db", "server.db-held", "garbage-held"}


def test_an_upgrade_of_a_store_that_is_not_there_makes_no_file(here):
    """As of every command but those that begin one: a name that was misspelt is not a new store."""
    run(["store", "upgrade", "--store", "typo.db"])
    assert not [*here.glob("typo.db*")]


def test_a_defect_keeps_its_traceback(monkeypatch):
    """What no operator can mend is not made into a sentence."""

    def broken(args, **_):
        raise KeyError(*args)

    monkeypatch.setattr("changeling_commands.running.CommandLine.typer", lambda *_: broken)
    with pytest.raises(KeyError, match="inside"):
        run(["inside"])


def test_what_an_operator_can_mend_is_one_line_and_changes_nothing(here, cli, monkeypatch, capsys):
    """A private key that is there already, a port that is taken, a store that lost a table, a token that is missing."""
    before = (here / "authority.key").read_bytes()
    assert run(["authority", "new", "-o", "."]) == 1
    assert (here / "authority.key").read_bytes() == before
    capsys.readouterr()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert run([*SERVE.split(), "--port", str(port)]) == 1
    assert capsys.readouterr().err == f"changeling: cannot listen on 127.0.0.1, port {port}: Address already in use\n"
    assert not (here / "s.db").exists()
    cli("keys", "new", "--store", "store.db", "-o", "first")
    with closing(sqlite3.connect(here / "store.db")) as connection:
        connection.execute("DROP TABLE keys")
    assert run(["keys", "new", "--store", "store.db", "-o", "second"]) == 1
    assert capsys.readouterr().err == "changeling: the store cannot be used: no such table: keys\n"
    monkeypatch.delenv("CHANGELING_TOKEN")
    cli("survey", "sign", "first.json", "--key", "authority.key", "-o", "first.signed")
    assert run(f"survey publish first.signed --yes {NOWHERE}".split()) == 1
    assert "$CHANGELING_TOKEN" in capsys.readouterr().err


HEAVY = ["numpy", "scipy", "polars", "pandas", "matplotlib", "sqlalchemy", "starlette", "uvicorn", "httpx", "opendp"]
HEAVY += ["changeling_statistics", "changeling_central", "changeling_papers"]


def test_help_and_files_load_no_numbers_no_server_and_no_store(tmp_path):
    """Without anything that takes long to import help is given, also of the server's commands; and whoever handles
    the files of surveys and keys needs neither a database nor a server."""
    (tmp_path / "signed").write_bytes(survey().signed_by(AUTHORITY))
    script = f"""
import sys
from pathlib import Path
from changeling_commands import main as run
assert run(["--help"]) == run(["keys", "--help"]) == 0
print("loaded", *{{*{HEAVY}}} & {{*sys.modules}})
from changeling_statistics import read_survey
read_survey(Path("signed"))
print("loaded", *{{"sqlalchemy", "starlette", "polars"}} & {{*sys.modules}})
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if line.startswith("loaded")] == ["loaded", "loaded"]


def test_every_command_and_option_is_explained(cli):
    """`--help` says something about each."""
    from changeling_commands.running import CHANGELING
    from typer.main import get_command

    def commands(command, name):
        assert getattr(command, "help", None), name
        for parameter in command.params:
            assert getattr(parameter, "help", None), f"{name} {parameter.name}"
        for child, of in getattr(command, "commands", {}).items():
            commands(of, f"{name} {child}")

    commands(get_command(CHANGELING.typer(CHANGELING.commands)), "changeling")
    assert "survey" in cli("--help")


def test_every_mistake_is_named_at_once(tmp_path, monkeypatch, capsys):
    """Of the file, of the environment and of the command line, each by its name; nothing is opened."""
    file = tmp_path / "server.toml"
    file.write_text(
        f'stor = "x"\nport = "many"\nhost = true\nmovable-clock = 1\nadmission = "nowhere:admit"\ncertificate = "x"\n'
        f'authority = ["{tmp_path / "missing.pub"}"]\n'
    )
    monkeypatch.setenv("CHANGELING_METRICS_ADDRESS", "9090")
    monkeypatch.setenv("CHANGELING_STORE_KEY", "12")
    assert run(["serve", "--settings", str(file)]) == 1
    error = capsys.readouterr().err
    assert "10 settings are wrong" in error
    assert len(error.splitlines()) == 11
    for said in (
        *(
            "'stor': store?",
            "'--port'",
            "host = True",
            "movable-clock = 1",
            "--admission nowhere:admit",
            "both --certificate",
        ),
        *("missing.pub: No such file", "not '9090'", "$CHANGELING_STORE_KEY holds no store key", "--store"),
    ):
        assert said in error, said


@pytest.mark.heavy
def test_the_command_line_counts_before_the_environment_and_that_before_the_file(tmp_path, monkeypatch):
    """Of a server whose one option is `--port 0`; address and rule are the environment's, its clock the file's."""
    file = tmp_path / "server.toml"
    file.write_text('host = "127.0.0.1"\nport = 1\nmovable-clock = true\n')
    monkeypatch.setenv("CHANGELING_SETTINGS", str(file))
    monkeypatch.setenv("CHANGELING_HOST", "127.0.0.2")
    monkeypatch.setenv("CHANGELING_PORT", "2")
    monkeypatch.setenv("CHANGELING_ADMISSION", "rule:admit")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    (tmp_path / "rule.py").write_text("async def admit(headers, body): return 'not admitted'")
    with ServerProcess(tmp_path) as server:
        assert "127.0.0.2" in server.url
        server.move_clock(1_800_000_000)
        assert server.http.post("/v1/uploads", content=b"").json()["detail"] == "not admitted"


@pytest.mark.parametrize(
    ("text", "seconds"), [("10s", 10), ("15m", 900), ("1h", 3600), (" 90 d ", 7_776_000), ("13w", 7_862_400)]
)
def test_a_duration_is_a_number_and_a_unit(text, seconds):
    """Printed, it reads back as itself. Where months are a unit, a year has twelve, of 365 days together."""
    assert parse_duration(text) == seconds
    assert parse_duration(format_duration(seconds)) == seconds
    assert parse_duration("12mo", months=True) == parse_duration("1y", months=True) == parse_duration("365d")


@pytest.mark.parametrize("text", ["", "10", "s", "1.5h", "-1d", "3mo", "1y", "0s", "1H", "٣d"])
def test_what_is_no_duration_is_refused(text):
    """Months and years too, and the error says why: their lengths differ."""
    with pytest.raises(
        ValueError, match="months and years differ in length" if text[1:] in ("mo", "y") else "duration"
    ):
        parse_duration(text)


@pytest.mark.parametrize("table", [histogram_table, series_table])
def test_what_stands_in_brackets_is_shown_as_it_is(table, capsys):
    """In a question or an answer it is no markup: nothing of it is lost, and no table fails."""
    names = ["tea [black]", "[green]", "with[/out] milk"]
    figures = {"values": [1.0] * 3, "standard_errors": [1.0] * 3, "intervals": [[0.0, 2.0]] * 3}
    row = {**figures, "period": 1, "time": "2027", "entries": 3, "heard": 3, "response_rate": 1.0}
    console().print(table({"question": "Which [one]?", "answers": names, "confidence": 0.95, "series": [row], **row}))
    said = capsys.readouterr().out
    assert [each for each in ("Which [one]?", *names) if each not in said] == []
