"""The operators' command line against a real server: its commands, its settings, and what it says is wrong."""

import csv
import json
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from io import StringIO

import pytest
from changeling_commands import main as run
from changeling_protocol import Calendar, SealingKey, Survey, format_duration, parse_duration, parse_instant
from changeling_protocol.wire import KEYS, decode_key_list
from changeling_statistics import write_survey

from ..protocol.examples import AUTHORITY, PINNED, survey
from .devices import envelope, report
from .serving import ServerHere, ServerProcess


def test_from_an_authority_to_a_histogram(tmp_path, cli):
    """authority new, keys new / sign / publish, survey sign / publish, then what one device reported."""
    cli("authority", "new", "-o", ".")
    authority = bytes.fromhex((tmp_path / "authority.pub").read_text())
    assert (tmp_path / "authority.key").stat().st_mode & 0o777 == 0o600
    asked = survey(answers=("yes", "no"), calendar=Calendar(int(parse_instant("2027-01-31")), 86_400, 4), grace=604_800)
    write_survey(tmp_path / "tea.json", asked.asking(text="Tea?"))
    cli("survey", "sign", "tea.json", "--key", "authority.key", "-o", "tea.signed")
    signed = Survey.from_signed((tmp_path / "tea.signed").read_bytes(), [authority])
    for file in ("tea.signed", "tea.json"):
        assert signed.id.hex() in cli("survey", "show", file)

    with ServerHere(tmp_path, authority=[authority]) as server:
        server.move_clock(signed.calendar.start)
        at_server = ("--server", server.url)
        cli("keys", "new", "--store", "server.db", "-o", "key.request")
        signing = ("--key", "authority.key", "--begins", "2027-01-01", "--expires", "2028-01-01")
        cli("keys", "sign", "key.request", *signing, "-o", "key.signed")
        cli("keys", "publish", "key.signed", *at_server)
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
        assert [(row["period"], row["answer"]) for row in rows] == [
            ("1", "yes"),
            ("1", "no"),
            ("2", "yes"),
            ("2", "no"),
        ]
        assert {"intervals_low", "simultaneous_high", "epsilon"} <= set(rows[0])
        assert "change from the end of period 1" in cli("change", "tea.json", *at_server, "--after", "1")
        windows = json.loads(cli("change", "tea.json", *at_server, "--width", "1", "--json"))["series"]
        assert [(each["after"], each["until"]) for each in windows] == [(0, 1), (1, 2)]
        assert run(["change", "tea.json", *at_server]) == 1
        assert "biased" in cli("series", "tea.json", *at_server, "--method", "smoothed", "--json")
        told = cli("status", "tea.json", *at_server)
        assert all(
            word in told
            for word in (f"epsilon {float(signed.epsilon):g}", "up to 2", "Refused", "waiting to be counted")
        )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["survey", "sign", "missing.json", "--key", "k", "-o", "x"], "missing.json"),
        (["survey", "show", "garbage"], "garbage holds no survey: not canonical MessagePack"),
        (["survey", "sign", "json", "--key", "k", "-o", "x"], "json holds no survey: not the JSON of a survey"),
        (["survey", "publish", "key", "--server", "http://127.0.0.1:9"], "key holds no survey: the bytes are not a"),
        (["keys", "sign", "garbage", "--key", "k", "--expires", "2028-01-01", "-o", "x"], "holds no public key"),
        (["keys", "publish", "garbage", "--server", "http://127.0.0.1:9"], "garbage holds no signed key: not"),
        (["keys", "new", "--store", "garbage", "-o", "x"], "cannot be used as a store"),
        (["histogram", "00" * 16, "--server", "http://127.0.0.1:9"], "could not be reached"),
        (["serve", "--store", "s", "--authority", "garbage"], "holds no public key"),
        (["doctor"], "Missing option '--store'; see changeling doctor --help"),
        (["survey", "new", "--zzz"], "No such option: --zzz; see changeling survey new --help"),
    ],
)
@pytest.mark.usefixtures("cli")
def test_an_error_is_one_line_and_an_exit_code(tmp_path, capsys, arguments, sentence):
    """It says what is wrong, with 1, or 2 where an option cannot be read; nothing is written."""
    (tmp_path / "garbage").write_text("x" * 2000)
    (tmp_path / "json").write_text('{"survey": 1}')
    (tmp_path / "key").write_bytes(SealingKey(bytes(31) + b"\7", 0, 1).signed_by(AUTHORITY))
    assert run(arguments) in (1, 2)
    error = capsys.readouterr().err
    assert error.startswith("changeling: ")
    assert error.count("\n") == 1
    assert sentence in error
    assert not (tmp_path / "x").exists()


def test_a_defect_keeps_its_traceback(monkeypatch):
    """What no operator can mend is not made into a sentence."""

    def broken(args, **_):
        raise KeyError(*args)

    monkeypatch.setattr("changeling_commands.running.CommandLine.typer", lambda *_: broken)
    with pytest.raises(KeyError, match="inside"):
        run(["inside"])


def test_what_an_operator_can_mend_is_one_line_and_changes_nothing(cli, tmp_path, monkeypatch, capsys):
    """A private key that is there already, a port that is taken, a store that lost a table, a token that is missing."""
    cli("authority", "new", "-o", ".")
    before = (tmp_path / "authority.key").read_bytes()
    assert run(["authority", "new", "-o", "."]) == 1
    assert (tmp_path / "authority.key").read_bytes() == before
    capsys.readouterr()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert run(["serve", "--store", "server.db", "--authority", "authority.pub", "--port", str(port)]) == 1
    assert capsys.readouterr().err == f"changeling: cannot listen on 127.0.0.1, port {port}: Address already in use\n"
    assert not (tmp_path / "server.db").exists()
    cli("keys", "new", "--store", "store.db", "-o", "first")
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        connection.execute("DROP TABLE keys")
    assert run(["keys", "new", "--store", "store.db", "-o", "second"]) == 1
    assert capsys.readouterr().err == "changeling: the store cannot be used: no such table: keys\n"
    write_survey(tmp_path / "tea.json", survey())
    monkeypatch.delenv("CHANGELING_TOKEN")
    assert run(["survey", "publish", "tea.json", "--yes", "--server", "http://127.0.0.1:9"]) == 1
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


def test_one_mistake_is_told_as_ever(capsys, tmp_path):
    """A missing option, a word too many, an option that there is not; a file that is no TOML, with the place; and a
    movable clock where others could reach it, and move it."""
    (tmp_path / "authority.pub").write_text(PINNED[0].hex())
    good = ["serve", "--store", str(tmp_path / "x.db"), "--authority", str(tmp_path / "authority.pub")]
    file = tmp_path / "server.toml"
    open_ = ["--movable-clock", "--proxy", "10.0.0.1", "--host", "0.0.0.0"]
    for words, code, said in (
        (["serve", *good[3:]], 2, "Missing option '--store'"),
        ([*good, "twice"], 2, "'twice'"),
        ([*good, "--prot", "1"], 2, "--prot"),
        ([*good, *open_], 1, "changeling: a movable clock is for loopback only, not for 0.0.0.0\n"),
    ):
        assert run(words) == code
        error = capsys.readouterr().err
        assert said in error
        assert len(error.splitlines()) == 1
    for content, place in (("port 8080", "at line 1"), ('port = "8080', "end of document")):
        file.write_text(content)
        run([*good, "--settings", str(file)])
        error = capsys.readouterr().err
        assert "server.toml is no TOML" in error
        assert "at line 1" in error or place in error
    assert not (tmp_path / "x.db").exists()


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
