"""The operators' command line, from an authority's key to a histogram, against a real server."""

import csv
import json
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from io import StringIO

import pytest
from changeling_commands.__main__ import main as run
from changeling_protocol import Calendar, SealingKey, Survey
from changeling_protocol.wire import KEYS, decode_key_list
from changeling_statistics import parse_instant, predict, read_survey, write_survey

from ..protocol.examples import AUTHORITY, survey
from .devices import envelope, report
from .serving import ServerHere

SURVEY = (
    *("survey", "new", "--question", "Tea?", "--answers", "yes, no", "--start", "2027-01-31"),
    *("--period", "1d", "--horizon", "4d", "--epsilon", "4", "--devices", "1000", "--minimum", "1"),
)


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


def test_a_wish_becomes_a_survey_that_says_what_it_will_show(tmp_path, cli):
    """The planner's plan, at the wished epsilon; the error in points and devices, when it shows, and what it costs."""
    printed = cli(*SURVEY, "--at-most", "2", "--points", "0.5", "-o", "tea.json")
    asked = read_survey(tmp_path / "tea.json")
    assert (asked.epsilon, asked.minimum, asked.calendar.periods) == (4, 1, 4)
    assert any(group.joint for group in asked.plan.groups)
    prediction = predict(asked, 1000)
    for words in (
        "What it will show of 1,000 devices",
        f"{100 * prediction.mean:.3g} points, or {float(f'{1000 * prediction.mean:.3g}'):.0f} devices",
        "devices for an error of 0.5 points",
        f"{float(f'{prediction.devices_for(0.005):.3g}'):,.0f}",
        "of period 1, which closes at 2027-02-01T00:00:00Z",
        "65m after a period's close, and 1w after it",
        "what 1 devices reported, or more",
        f"{asked.per_week}",
    ):
        assert words in printed
    assert "warning" not in printed


def test_a_wish_that_would_show_nothing_says_so(tmp_path, cli, capsys):
    """With too few devices it is written only anyway; with a large minimum, every node of the plan shows."""
    few = (*SURVEY, "--at-most", "2", "--devices", "10", "-o", "few.json")
    assert run([*few]) == 1
    refused = " ".join(capsys.readouterr().err.split())
    assert "shows nothing" in refused
    assert "--anyway" in refused
    assert not (tmp_path / "few.json").exists()
    cli(*few, "--anyway")
    assert read_survey(tmp_path / "few.json").epsilon == 4
    held_back = cli(*SURVEY, "--at-most", "2", "--minimum", "900", "-o", "held.json")
    assert "warning" not in held_back
    assert run([*SURVEY, "--at-most", "2", "--minimum", "1001", "-o", "none.json"]) == 1
    assert "fewer than 1001 reports" in " ".join(capsys.readouterr().err.split())


def test_an_unsigned_survey_is_readable_json(tmp_path, cli):
    """With its plan, and what it costs; edited so that it costs more than it states, it cannot be signed."""
    cli("authority", "new", "-o", ".")
    cli(*SURVEY, "--at-most", "2", "--within", "3d", "-o", "tea.json")
    content = json.loads((tmp_path / "tea.json").read_text())
    (asked,) = content["survey"]["questions"]
    assert asked["answers"] == ["yes", "no"]
    assert asked["constraint"]["kind"] == "at-most-within"
    assert float(content["cost"]["epsilon"]) == pytest.approx(4)
    content["survey"]["plan"][0]["history"]["odds"] = [100, 1]
    (tmp_path / "tea.json").write_text(json.dumps(content))
    assert run(["survey", "sign", "tea.json", "--key", "authority.key", "-o", "tea.signed"]) == 1
    assert not (tmp_path / "tea.signed").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([*SURVEY, "-o", "x"], "--at-most, --within, or both"),
        ([*SURVEY, "--at-most", "2", "--periods", "4", "-o", "x"], "either --periods or --horizon"),
        ([*SURVEY, "--at-most", "0", "-o", "x"], "k >= 1"),
        ([*SURVEY, "--at-most", "2", "--epsilon", "much", "-o", "x"], "epsilon is a number"),
        ([*SURVEY, "--at-most", "2", "--epsilon", "nan", "-o", "x"], "epsilon is a number"),
        ([*SURVEY, "--at-most", "2", "--epsilon", "-1", "-o", "x"], "epsilon must be above 0"),
        ([*SURVEY, "--at-most", "2", "--devices", "few", "-o", "x"], "write a number such as 20000"),
        ([*SURVEY, "--at-most", "2", "--points", "0", "-o", "x"], "above 0 points"),
        ([*SURVEY, "--at-most", "2", "--start", "soon", "-o", "x"], "a time is like"),
        ([*SURVEY, "--at-most", "2", "--horizon", "25h", "-o", "x"], "no whole number of periods"),
        (["survey", "sign", "missing.json", "--key", "k", "-o", "x"], "missing.json"),
        (["survey", "show", "garbage"], "garbage holds no survey: not canonical MessagePack"),
        (["survey", "sign", "json", "--key", "k", "-o", "x"], "json holds no survey: not the JSON of a survey"),
        (["survey", "publish", "key", "--server", "http://127.0.0.1:9"], "key holds no survey: the bytes are not a"),
        (["keys", "sign", "garbage", "--key", "k", "--expires", "2028-01-01", "-o", "x"], "holds no public key"),
        (["keys", "publish", "garbage", "--server", "http://127.0.0.1:9"], "garbage holds no signed key: not"),
        (["keys", "publish", "json", "--server", "http://127.0.0.1:9"], "json holds no signed key"),
        (["keys", "new", "--store", "garbage", "-o", "x"], "cannot be used as a store"),
        (["histogram", "00" * 16, "--server", "http://127.0.0.1:9"], "could not be reached"),
        (["serve", "--store", "s", "--authority", "garbage"], "holds no public key"),
        (["doctor"], "Missing option '--store'; see changeling doctor --help"),
        (["bogus"], "No such command 'bogus'; see changeling --help"),
        (["survey", "new", "--zzz"], "No such option: --zzz; see changeling survey new --help"),
        (["survey", "sign", "nope", "--key", "k", "-o", "o"], "nope: No such file or directory"),
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
    help_ = "from changeling_commands.__main__ import main; code = main({words})"
    read = "from pathlib import Path; from changeling_statistics import read_survey; read_survey(Path('signed'))"
    for statement, heavy in (
        (help_.format(words=["--help"]), HEAVY),
        (help_.format(words=["keys", "--help"]), HEAVY),
        (read, ["sqlalchemy", "starlette", "polars"]),
    ):
        asked = f"import sys; {statement}; print(*({{*{heavy}}} & {{*sys.modules}}), file=sys.stderr)"
        done = subprocess.run([sys.executable, "-c", asked], cwd=tmp_path, capture_output=True, text=True, timeout=100)
        assert (done.returncode, done.stderr.split()) == (0, []), statement


def test_every_command_and_option_is_explained(cli):
    """`--help` says something about each."""
    from changeling_commands.table import CHANGELING
    from typer.main import get_command

    def commands(command, name):
        assert getattr(command, "help", None), name
        for parameter in command.params:
            assert getattr(parameter, "help", None), f"{name} {parameter.name}"
        for child, of in getattr(command, "commands", {}).items():
            commands(of, f"{name} {child}")

    commands(get_command(CHANGELING.typer(CHANGELING.commands)), "changeling")
    assert "survey" in cli("--help")
