"""What an app and a person are told in words: errors, log lines, the ledger, what was sent and what will be."""

import re
from decimal import Decimal, localcontext
from pathlib import Path

import changeling_client
import pytest
from changeling_client import ClientError, Recorded
from changeling_client.testing import FakeServer, make_client, make_survey

APP = (Path(__file__).parents[2] / "docs/app.md").read_text()
TEN = make_survey(periods=10)


def test_a_record_that_is_dropped_is_logged_with_its_reason_and_without_the_answer(tmp_path, caplog):
    """A survey that was refused, or has no such answer: the line names the survey, and says why."""
    server = FakeServer()
    with make_client(tmp_path, server, max_epsilon=0.1) as device:
        handle = device.join(server.publish(TEN))
        assert "above 0.1" in device.flush().trouble
        caplog.clear()
        assert handle.record("tea") is Recorded.DROPPED
    assert f"a record was dropped: the survey {TEN.id.hex()} was not joined: TooCostly" in caplog.text
    assert "tea" not in caplog.text
    caplog.clear()
    with make_client(tmp_path / "other", server, strict=False) as device:
        handle = device.join(TEN.id)
        device.flush()
        assert handle.record("cocoa") is Recorded.DROPPED
    assert f"survey {TEN.id.hex()}: a record was dropped, as the survey has no such answer or entry" in caplog.text
    assert "cocoa" not in caplog.text


def test_an_app_whose_on_error_fails_is_told_so_in_the_log_and_goes_on(kit, caplog):
    """The error that it was told is there as well."""
    device, server = kit(max_epsilon=0.1, on_error=lambda _: 1 / 0)
    device.join(server.publish(TEN))
    assert "above 0.1" in device.flush().trouble
    assert [each.getMessage().split(":")[0] for each in caplog.records] == [
        "TooCostly",
        "the app's on_error has failed",
    ]


def test_what_cannot_be_explained_says_why(kit):
    """A survey that is unknown, asked for, refused, left or silenced: each in a sentence that is true of it."""
    dear = make_survey(epsilon=100, question="Dear?")
    device, server = kit(max_epsilon=50)
    device.join(TEN.id)
    device.join(server.publish(dear))
    device.flush()

    def why(survey):
        with pytest.raises(ValueError, match=survey.id.hex()) as raised:
            device.explain(survey.id)
        return str(raised.value)

    assert "is not known yet: the next flush" in why(TEN)
    assert "was not joined: TooCostly" in why(dear)
    assert "nobody has joined" in why(make_survey(question="Never heard of?"))
    device.leave(TEN.id)
    assert "was left" in why(TEN)
    with pytest.raises(ValueError, match=r"no stratum: .* was left"):
        device.join(TEN.id).stratum({"platform": "linux"})


def test_a_tilde_is_the_home_folder(tmp_path, monkeypatch):
    """Of the store and of its witness."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    with make_client(tmp_path / "own", FakeServer(), path="~/kept/changeling.db", witness="~/witness"):
        pass
    assert (tmp_path / "kept/changeling.db").exists()
    assert (tmp_path / "witness").exists()


def test_every_error_of_the_package_is_in_the_table_of_the_docs():
    """With what it means and what to do, in one row."""
    rows = [row for row in APP.splitlines() if row.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    public = [getattr(changeling_client, name) for name in changeling_client.__all__]
    errors = {each.__name__ for each in public if isinstance(each, type) and issubclass(each, ClientError)}
    assert errors - {"ClientError"} <= named


def test_the_ledger_says_in_words_what_is_spent_on_whom_and_what_was_lost(kit):
    """All of it beside the average a week, one person's entries each, a survey that was refused, and drops with their
    reasons; whatever the app's decimal context."""
    asked, dear = make_survey(periods=364, epsilon=8), make_survey(epsilon=100, question="Dear?")
    device, server = kit(strict=False, max_epsilon=50)
    handle = device.join(server.publish(asked), entries=3, one_person=True)
    refused = device.join(server.publish(dear))
    device.flush()
    handle.record("milk")
    account, _ = device.ledger().surveys
    with localcontext(prec=1):
        shown, own = str(device.ledger()), str(handle.ledger())
    assert account.epsilon == 3 * asked.epsilon
    assert abs(account.per_week - account.epsilon / 52) < Decimal("0.000002")
    each_week = f"at most {account.epsilon} in all, on average {account.per_week} a week"
    assert f"- “{asked.question}” (joined): {each_week}" in shown
    assert f"(refused): not joined, so nothing counts; {refused.reason}" in shown
    assert "Not kept or not sent: 1 wrong-answer." in shown
    assert own.startswith(f"At most {asked.epsilon} in all, on average {asked.per_week} a week; ")
    assert "Done with up to period 0; 0 to be sent, 0 too late." in own


@pytest.fixture
def server():
    server = FakeServer()
    server.publish(TEN)
    return server


def test_what_was_sent_is_what_the_server_received(tmp_path, server):
    """Word by word, with dates, and said to have arrived; what waits is said to wait."""
    with make_client(tmp_path, server) as device:
        handle = device.join(TEN.id)
        handle.record("tea")
        server.clock.advance(days=2)
        device.flush()
        handle.record("coffee")
        server.go_offline()
        server.clock.advance(days=1)
        device.flush()
        (about,) = device.reports()
    assert (about.id, about.question) == (TEN.id.hex(), TEN.question)
    assert [report.says for told in about.told if told.arrived for report in told.reports] == [
        report.says for report in server.reports
    ]
    assert [(told.arrived, told.at.isoformat()[:10]) for told in about.told] == [
        (True, "2027-01-02"),
        (True, "2027-01-03"),
        (False, "2027-01-04"),
    ]
    ((waits,),) = [told.reports for told in about.told if not told.arrived]
    assert waits.says == "from tea to coffee"
    assert "2027-01-04 00:00 UTC, waits to be sent" in str(about)


def test_the_preview_hangs_on_nothing_that_was_answered(tmp_path):
    """Nor does anything else but the words of what was drawn: with the same coins for those, all is the same."""
    shown = []
    for name, answers in (("a", []), ("b", ["tea"]), ("c", ["coffee", "tea", "neither"])):
        server = FakeServer()
        server.publish(TEN)
        with make_client(tmp_path / name, server) as device:
            handle = device.join(TEN.id)
            for answer in answers:
                handle.record(answer)
            device.flush()
            (about,) = device.reports()
        assert about.told == ()
        shown.append(str(about.coming[0]))
    assert len({*shown}) == 1
    assert "one of “no change”, “from no answer to tea”" in shown[0]
    assert f"({TEN.plan.tracks[0].randomizer.symbols} in all)" in shown[0]


def test_the_next_answer_is_due_when_it_is_given(tmp_path, server):
    """A millisecond before nothing is sent, and a second later it is."""
    with make_client(tmp_path, server) as device:
        device.join(TEN.id).record("tea")
        device.flush()
        ((coming,),) = (about.coming for about in device.reports())
        due = coming.at.timestamp()
        server.clock.now = due - 1
        assert device.flush().sent == 0
        server.clock.now = due + 1
        assert device.flush().sent == 1
