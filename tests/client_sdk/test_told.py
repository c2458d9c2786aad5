"""What an app's developer is told when something is wrong: what it was, where, and what to do."""

import re
from pathlib import Path

import changeling_client
import pytest
from changeling_client import (
    ClientError,
    Recorded,
    ServerTrouble,
    Silenced,
    Status,
    TooCostly,
)
from changeling_client.testing import FakeServer, make_client, make_survey

from .device import PLAIN, Clock, client
from .device import FakeServer as ContractServer

APP = (Path(__file__).parents[2] / "docs/app.md").read_text()
TEN = make_survey(periods=10)


def test_every_error_of_the_package_is_in_the_table_of_the_docs():
    """With what it means and what to do, in one row."""
    rows = [row for row in APP.splitlines() if row.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    errors = {
        name
        for name in changeling_client.__all__
        if isinstance(value := getattr(changeling_client, name), type) and issubclass(value, ClientError)
    }
    assert errors - {"ClientError"} <= named
    assert "`except ClientError`" in APP


def test_what_costs_too_much_on_loopback_names_the_option_for_development(tmp_path):
    """It is `changeling dev`, most likely, whose odds no app can afford; flush and the status say so."""
    told, url = [], "http://127.0.0.1:8080"
    with client(tmp_path, ContractServer(PLAIN), Clock(), url=url, max_epsilon=10, on_error=told.append) as device:
        handle = device.join(PLAIN.id, signed=None)
        flushed = device.flush()
        (error,) = told
        assert isinstance(error, TooCostly)
        assert str(error).endswith("above 10; to develop against a server on loopback, pass development=True")
        assert flushed.trouble == str(error)
        assert (handle.status, handle.reason) == (Status.REFUSED, f"TooCostly: {error}")


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


def test_an_app_whose_on_error_fails_is_told_so_in_the_log_and_goes_on(tmp_path, caplog):
    """The error that it was told is there as well."""
    server = FakeServer()
    with make_client(tmp_path, server, max_epsilon=0.1, on_error=lambda _: 1 / 0) as device:
        device.join(server.publish(TEN))
        assert "above 0.1" in device.flush().trouble
    assert [each.getMessage().split(":")[0] for each in caplog.records] == [
        "TooCostly",
        "the app's on_error has failed",
    ]


def test_a_survey_that_the_server_does_not_know_is_told_once(tmp_path):
    """With its id, as it may be a typo; the flush says it each time that it has asked."""
    server, told = FakeServer(), []
    with make_client(tmp_path, server, on_error=told.append) as device:
        device.join(TEN.id)
        for _ in range(3):
            sentence = f"{server.url} does not know the survey {TEN.id.hex()}: the server answered with status 404"
            assert device.flush().trouble == sentence
            server.clock.advance(days=1)
        (error,) = told
        assert isinstance(error, ServerTrouble)
        assert str(error) == sentence
        server.publish(TEN)
        assert device.flush().trouble is None


def test_what_cannot_be_explained_says_why(tmp_path):
    """A survey that is unknown, asked for, refused, left or silenced: each in a sentence that is true of it."""
    server = FakeServer()
    dear = make_survey(epsilon=100, question="Dear?")
    with make_client(tmp_path, server, max_epsilon=50) as device:
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


def test_a_silenced_store_names_both_files_and_how_to_start_anew(tmp_path):
    """A developer who deletes the store by hand is told of the witness, and deletes it as well."""
    server, told, store, witness = FakeServer(), [], tmp_path / "changeling.db", tmp_path / "witness"
    options = {"witness": witness, "on_error": told.append, "max_epsilon": 100}
    server.publish(asked := make_survey(epsilon=8))

    def joined():
        with make_client(tmp_path, server, **options) as device:
            handle = device.join(asked.id)
            device.flush()
            server.clock.advance(days=1)
            device.flush()
            if handle.status is Status.SILENCED:
                with pytest.raises(ValueError, match="silent for good on this device"):
                    device.explain(asked.id)
            return handle.status

    def delete(*files):
        for file in files:
            file.unlink()

    assert joined() is Status.JOINED
    delete(*tmp_path.glob("changeling.db*"))
    assert joined() is Status.SILENCED
    (error,) = told
    assert isinstance(error, Silenced)
    assert f"{store} is not the store that its witness, {witness}, saw" in str(error)
    delete(*tmp_path.glob("changeling.db*"), *witness.iterdir())
    witness.rmdir()
    assert joined() is Status.JOINED


@pytest.mark.parametrize("path", ["", "."])
def test_a_path_that_is_no_file_is_refused(tmp_path, monkeypatch, path):
    """An empty one is the present folder."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="the store is a file"):
        make_client(tmp_path, FakeServer(), path=path)


def test_a_tilde_is_the_home_folder(tmp_path, monkeypatch):
    """Of the store and of its witness."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    with make_client(tmp_path / "own", FakeServer(), path="~/kept/changeling.db", witness="~/witness"):
        pass
    assert (tmp_path / "kept/changeling.db").exists()
    assert (tmp_path / "witness").exists()


def test_none_is_no_answer_where_mistakes_are_errors(tmp_path):
    """Who means that there is none any more is told of the call for it."""
    server = FakeServer()
    server.publish(TEN)
    with make_client(tmp_path, server) as device:
        handle = device.join(TEN.id)
        device.flush()
        with pytest.raises(ValueError, match="`retract`"):
            handle.record(None)


def test_a_test_that_publishes_something_else_is_told_so():
    """As is one that gives its answers as one text, of which each letter would be an answer."""
    with pytest.raises(TypeError, match="a survey is published"):
        FakeServer().publish("x")
    with pytest.raises(ValueError, match="the answers are a list of texts"):
        make_survey(answers="tea")


def test_without_consent_a_survey_is_not_joined_and_was_not_left(tmp_path):
    """It can be joined as soon as there is consent; one that was left cannot, and says so without consent too."""
    server = FakeServer()
    server.publish(TEN)
    with make_client(tmp_path, server, consent=False) as device:
        handle = device.join(TEN.id)
        assert handle.status is Status.NOT_JOINED
        device.set_consent(True)
        assert handle.status is Status.NOT_JOINED
        device.join(TEN.id)
        device.flush()
        assert handle.status is Status.JOINED
        device.set_consent(False)
        assert handle.status is Status.LEFT
