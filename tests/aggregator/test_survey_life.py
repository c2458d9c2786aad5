"""On the command line: surveys that go on from another or end early, sealing keys, and the key that encrypts those."""

import time
from pathlib import Path

import pytest
from changeling_aggregator.server import real_time
from changeling_aggregator.store import AtRest
from changeling_commands import main as run
from changeling_protocol import AtMost, Calendar, Odds, format_instant
from changeling_protocol.wire import KEYS, decode_key_list
from changeling_statistics import check_successor, read_survey, write_survey

from ..protocol.examples import hierarchical, survey
from .serving import Cli, ServerHere

DAY = 86_400


@pytest.fixture
def cli(tmp_path: Path, cli: Cli) -> Cli:
    """In a folder that holds a survey."""
    write_survey(tmp_path / "first.json", survey(calendar=Calendar(1_800_000_000, DAY, 7), minimum=1))
    return cli


@pytest.mark.parametrize("command", [("sign", "--key", "none.key"), ("code", "--authority", "none.pub"), ("extend",)])
def test_no_command_writes_over_a_file_on_a_terminal_before_that_is_agreed_to(
    command: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Asked first of all; who says no keeps the file."""
    written, (name, *options) = tmp_path / "written", command
    written.write_text("kept")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.confirm", lambda *_, **__: False)
    assert run(("survey", name, "first.json", *options, "-o", "written")) == 1
    assert "written stays as it is" in capsys.readouterr().err
    assert written.read_text() == "kept"


def test_a_survey_is_extended_with_its_plan_or_another(tmp_path: Path, cli: Cli) -> None:
    """By itself, planned anew, and with a plan of the designer's; what all of them cost a person is printed."""
    first = read_survey(tmp_path / "first.json")
    printed = cli("survey", "extend", "first.json", "-o", "second.json")
    second = read_survey(tmp_path / "second.json")
    check_successor(first, second)
    assert (second.plan, second.epsilon, second.minimum) == (first.plan, first.epsilon, 1)
    for figure in (f"{first.epsilon}", f"{2 * first.epsilon}", f"{first.per_week}", first.id.hex(), second.id.hex()):
        assert figure in printed

    words = "first.json second.json --periods 14 --epsilon 2 --devices 1e4 -o 3.json"
    printed = cli("survey", "extend", *words.split())
    third = read_survey(tmp_path / "3.json")
    check_successor(second, third)
    assert (third.calendar.periods, third.epsilon, third.per_week) == (14, 2, 1)
    assert any(group.joint for group in third.plan.groups)
    assert f"{2 * first.epsilon + 2}" in printed

    other = survey(hierarchical(3, 5, (1,), Odds(2, 1)), calendar=Calendar(0, DAY, 5), constraint=AtMost(2))
    write_survey(tmp_path / "planned.json", other)
    cli("survey", "extend", "first.json", "--plan", "planned.json", "-o", "planned_second.json")
    planned = read_survey(tmp_path / "planned_second.json")
    check_successor(first, planned)
    assert (planned.plan, planned.epsilon, planned.constraint) == (other.plan, other.epsilon, AtMost(2))


@pytest.mark.usefixtures("cli")
def test_what_cannot_go_on_is_refused_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And nothing is written."""
    write_survey(tmp_path / "hourly.json", survey(calendar=Calendar(0, 3600, 8)))
    write_survey(tmp_path / "yes_no.json", survey(answers=("yes", "no"), calendar=Calendar(0, DAY, 8)))
    for words, sentence in {
        "first.json": "does not follow",
        "--periods 3": "the plan is made for 7 periods",
        "--plan first.json --epsilon 1": "choose one of --plan and --epsilon",
        "--plan hourly.json": "periods of 3600 s",
        "--plan first.json --periods 3": "made for 7 periods, got 3",
        "--plan yes_no.json": "made for 2 answers",
        "--epsilon 1": "--epsilon and --devices go together",
        "--epsilon -1 --devices 9": "epsilon must be above 0",
        "--epsilon 1 --devices 9 --periods 0": "1 to 1048576 periods, got 0",
    }.items():
        assert run(["survey", "extend", "first.json", *words.split(), "-o", "x.json"]) == 1
        assert sentence in capsys.readouterr().err
    assert not (tmp_path / "x.json").exists()


def test_a_survey_is_closed_early(tmp_path: Path, cli: Cli, capsys: pytest.CaptureFixture[str]) -> None:
    """Signed and published in one command; again it changes nothing; after the calendar's end it cannot be."""
    cli("authority", "new", "-o", ".")
    cli("survey", "sign", "first.json", "--key", "authority.key", "-o", "first.signed")
    with ServerHere(tmp_path, authority=[bytes.fromhex((tmp_path / "authority.pub").read_text())]) as server:
        server.move_clock(1_800_000_000)
        cli("keys", "new", "--store", "server.db", "-o", "key.request")
        dates = "--begins", "2027-01-01", "--expires", "2028-01-01"
        cli("keys", "sign", "key.request", "--key", "authority.key", *dates, "-o", "key.signed")
        cli("keys", "publish", "key.signed", "--server", server.url)
        cli("survey", "publish", "first.signed", "--server", server.url)
        close = "survey", "close", "first.signed", "--key", "authority.key", "--server", server.url
        assert "is ended with period 4, at 2027-01-19T08:00:00Z" in cli(*close, "--after", "4")
        assert "was before ended with period 4" in cli(*close, "--after", "4")
        for after, sentence in (("5", "an end stays as it is"), ("7", "after period 1 to 6, got 7"), ("0", "got 0")):
            assert run([*close, "--after", after]) == 1
            assert sentence in capsys.readouterr().err


def test_a_sealing_key_from_its_making_to_the_next(
    tmp_path: Path, cli: Cli, capsys: pytest.CaptureFixture[str]
) -> None:
    """keys list tells where each is in its life and how long it has; keys new from when on the next is to be signed."""
    cli("authority", "new", "-o", ".")
    (tmp_path / "store.key").write_text("ab" * 32 + "\n")
    at = ("--store", "server.db", "--store-key-file", "store.key")
    tomorrow = format_instant(time.time() // 3600 * 3600 + 20 * 3600)  # and at no time of a day is that just now
    authority = bytes.fromhex((tmp_path / "authority.pub").read_text())
    at_rest = AtRest(bytes.fromhex("ab" * 32))
    with ServerHere(tmp_path, authority=[authority], at_rest=at_rest, clock=real_time) as server:

        def publish(number: int, *dates: str) -> int:
            cli("keys", "sign", f"{number}.request", "--key", "authority.key", *dates, "-o", f"{number}.signed")
            return run(["keys", "publish", f"{number}.signed", "--server", server.url])

        assert "--begins" not in cli("keys", "new", *at, "-o", "1.request")
        assert publish(1, "--expires", tomorrow) == 0
        assert f"--begins {tomorrow}" in cli("keys", "new", *at, "-o", "2.request")
        assert publish(2, "--expires", "2999-01-01") == 1
        assert f"--begins {tomorrow} or later" in capsys.readouterr().err
        assert publish(2, "--begins", tomorrow, "--expires", "2999-01-01") == 0
        cli("keys", "new", *at, "-o", "3.request")
        table = cli("keys", "list", "--store", "server.db").splitlines()
        states = [[word for word in line.split() if word in ("pending", "active", "unsigned")] for line in table]
        assert sorted(state for found in states for state in found) == ["active", "pending", "unsigned"]
        (active,) = (line for line in table if "active" in line)
        assert all(word in active for word in (f" {tomorrow} ", " 0 ", "encrypted"))
        assert len(decode_key_list(server.http.get(KEYS).content)) == 1
        assert server.http.get("/readyz").json()["troubles"] == []


def test_the_store_key_can_be_replaced(tmp_path: Path, cli: Cli, capsys: pytest.CaptureFixture[str]) -> None:
    """keys reencrypt puts the private keys under another; the old one opens nothing, and no server starts with it."""
    cli("authority", "new", "-o", ".")
    for name in ("old", "new"):
        (tmp_path / name).write_text(name.encode().hex().ljust(64, "0"))
    cli("keys", "new", "--store", "server.db", "-o", "1.request")
    assert "clear" in cli("keys", "list", "--store", "server.db")
    cli("keys", "reencrypt", "--store", "server.db", "--new-store-key-file", "old")
    assert "clear" not in cli("keys", "list", "--store", "server.db")
    renew = ("keys", "reencrypt", "--store", "server.db", "--new-store-key-file", "new")
    assert run([*renew]) == 1
    assert "encrypted: give the store key" in capsys.readouterr().err
    assert "1 private key" in cli(*renew, "--store-key-file", "old")
    (tmp_path / "none").write_text("ab" * 31)
    for file, sentence in (("old", "under another store key"), ("none", "none holds no store key")):
        serve = ["serve", "--store", "server.db", "--authority", "authority.pub", "--port", "0"]
        assert run([*serve, "--store-key-file", file]) == 1
        assert sentence in capsys.readouterr().err
        assert run(["keys", "new", "--store", "server.db", "-o", "2.request", "--store-key-file", file]) == 1
        assert sentence in capsys.readouterr().err
