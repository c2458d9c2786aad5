"""`changeling-sim fleet` against real servers on loopback: what it sends is counted as it says, and others are left
alone."""

import re
from pathlib import Path

import httpx
import pytest
from changeling_protocol import Calendar
from changeling_reader import ServerClient
from changeling_simulations.fleet import Truth
from changeling_simulations.fleet_command import admit
from changeling_statistics import write_survey

from tests.aggregator.serving import TOKEN, ServerHere
from tests.command_line import changeling_sim as main
from tests.command_line import invoked
from tests.protocol.examples import AUTHORITY, mixed, survey

SHARES = ("--duplicates", "5%", "--late", "5%", "--garbage", "10%", "--offline", "10%")
GRACE = 150


@pytest.fixture
def own_server(tmp_path):
    """One whose clock a test moves."""
    with ServerHere(tmp_path) as running:
        running.move_clock(1_800_000_000)
        yield running


def rehearsal(running: ServerHere, folder: Path) -> Path:
    """Publishes a survey three of whose periods can be answered, and one or two no more; the file that it is in."""
    asked = running.new_survey(grace=GRACE, plan=mixed(3, 8))
    running.move_clock(asked.calendar.time(5) + 1)
    write_survey(folder / "survey.json", asked)
    return folder / "survey.json"


def words(result) -> str:
    return re.sub(r"[\s│]+", " ", result.output)


@pytest.mark.heavy
def test_a_server_counts_what_a_fleet_sends(own_server, tmp_path, monkeypatch):
    """Refusals that are told and counted, and, once all is sealed, every node, closing and histogram; and it is seen
    where anything else was sent as well."""
    file, truth = rehearsal(own_server, tmp_path), tmp_path / "truth.json"
    to = ("--server", own_server.url)
    monkeypatch.setenv("CHANGELING_TOKEN", TOKEN)
    write_survey(tmp_path / "other.json", survey().asking(question="Never asked?"))
    assert "is not published on" in words(invoked(main, "fleet", str(tmp_path / "other.json"), *to))
    sending = invoked(main, "fleet", str(file), *to, "--devices", "300", *SHARES, "--truth", str(truth), "--compare")
    assert sending.exit_code == 0, words(sending)
    assert "all agree" in sending.output
    for reason in ("told: malformed", "refused: late", "refused: duplicate", "refused: unopenable"):
        assert reason in words(sending)
    own_server.move_clock(own_server.now + 10 * GRACE)
    checking = invoked(main, "fleet-check", str(truth), *to)
    assert checking.exit_code == 0, words(checking)
    assert "histograms" in words(checking)
    again = invoked(main, "fleet", str(file), *to)
    assert "has answers already, which a fleet would spoil" in words(again)
    expected = Truth.read(truth)
    expected.refused["late"] += 1
    expected.write(truth)
    differing = invoked(main, "fleet-check", str(truth), *to)
    assert differing.exit_code == 1
    assert "DIFFERS" in differing.output


@pytest.mark.heavy
def test_a_wanted_rate_is_kept_and_many_envelopes_go_in_a_request(own_server, tmp_path, monkeypatch):
    """So many requests a second: it takes as long as that, at the least."""
    file = rehearsal(own_server, tmp_path)
    monkeypatch.setenv("CHANGELING_TOKEN", TOKEN)
    sending = invoked(
        main, "fleet", str(file), "--server", own_server.url, "--devices", "200", "--rate", "20", "--envelopes", "10",
        "--compare",
    )  # fmt: skip
    assert sending.exit_code == 0, words(sending)
    match = re.search(r"([\d,]+) envelopes in (\d+) requests, (\d+) a second", words(sending))
    assert match is not None
    envelopes, requests, rate = (int(each.replace(",", "")) for each in match.groups())
    assert envelopes > 9 * (requests - 1)
    assert rate <= 26  # the first of a second's twenty are due somewhat after it begins


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ((), "Missing option '--server'"),
        (("--server", "https://changeling.example"), "--i-run-this-server"),
        (("--server", "http://changeling.example"), "base URL"),
        (("--server", "http://127.0.0.1:1", "--garbage", "2"), "a rate is from 0 to 1"),
    ],
)
def test_what_cannot_be_is_refused_in_words(tmp_path, monkeypatch, arguments, fault):
    """Before anything is made, and before anybody is asked."""
    monkeypatch.delenv("CHANGELING_TOKEN", raising=False)
    monkeypatch.chdir(tmp_path)
    write_survey(tmp_path / "survey.json", survey())
    refused = invoked(main, "fleet", "survey.json", *arguments)
    assert refused.exit_code in (1, 2)
    assert fault in re.sub(r"[\s│]+", " ", refused.stderr)


def answering(status: dict[str, object], asked) -> httpx.MockTransport:
    """A server with this status of a survey."""
    return httpx.MockTransport(
        lambda request: (
            httpx.Response(200, json=status)
            if request.url.path.endswith("/status")
            else httpx.Response(200, content=asked.signed_by(AUTHORITY))
        )
    )


def test_another_machine_is_loaded_by_who_operates_it_alone():
    """Who says that it is theirs shows a token with which the server tells an operator's figures; on loopback nobody
    has to. Nobody sends a fleet where anybody has answered."""
    asked = survey(calendar=Calendar(0, 60, 8))
    silent: dict[str, object] = {"closings": []}
    told = {**silent, "refused": {}}
    for url, status, says_so, fault in (
        ("https://far.example", told, False, "--i-run-this-server"),
        ("https://far.example", silent, True, "show a token"),
        ("http://127.0.0.1:1", {"closings": [{"heard": 1}]}, False, "would spoil"),
        ("https://far.example", told, True, None),
        ("http://127.0.0.1:1", silent, False, None),
    ):
        with ServerClient(url, transport=answering(status, asked)) as client:
            if fault is None:
                admit(client, asked, i_run_it=says_so)
            else:
                with pytest.raises(ValueError, match=fault):
                    admit(client, asked, i_run_it=says_so)
    with pytest.raises(ValueError, match="use https"):
        ServerClient("http://far.example", token="secret")
