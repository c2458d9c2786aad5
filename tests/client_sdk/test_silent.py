"""A silent app runs on where nothing can be kept; a strict one hears what its calls would give away."""

import warnings

import pytest
from changeling_client import AsyncClient, Client, ClientError, Flushed, Recorded, Status, StoreReadOnly, StoreUnusable
from changeling_client.testing import FakeServer, make_survey

SURVEY = make_survey(answers=("tea", "coffee"), periods=10)


def options(server, **more):
    usual = {
        "server": server.url,
        "authority": server.authority,
        "max_epsilon": 10_000,
        "background": False,
        "transport": server.transport,
    }
    return {**usual, **more}


def homeless(monkeypatch):
    """As a service without a home, for which no folder is known."""

    def nobody(*_, **__):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr("platformdirs.user_data_path", nobody)
    return {"app": "org.example.tea"}


def damaged(folder):
    (folder / "store.db").write_bytes(b"something else")
    return {"path": folder / "store.db"}


@pytest.mark.parametrize(("what", "error"), [("homeless", StoreReadOnly), ("damaged", StoreUnusable)])
def test_where_nothing_can_be_kept_a_silent_app_runs_on(tmp_path, monkeypatch, what, error):
    """No call raises, each returns as if nothing were known, and the app is told why; another app hears it raised."""
    place, told, server = homeless(monkeypatch) if what == "homeless" else damaged(tmp_path), [], FakeServer()
    server.publish(SURVEY)
    with pytest.raises(error):
        Client(**options(server, **place))
    with Client(**options(server, silent=True, on_error=told.append, **place)) as client:
        assert [type(each) for each in told] == [error]
        survey = client.join(SURVEY.id)
        assert (survey.record("tea"), survey.retract()) == (Recorded.DROPPED, Recorded.DROPPED)
        assert (survey.answer(), survey.survey, survey.ledger(), survey.reason) == (None, None, None, "")
        assert survey.status is Status.NOT_JOINED
        survey.stratum({})
        assert client.flush() == Flushed(0, 0, 0, None)
        assert (client.reports(), client.ledger().surveys, client.ledger().spent) == ((), (), 0)
    assert all(isinstance(each, ClientError) for each in told)


def test_a_store_that_fails_later_silences_nothing_but_its_errors(tmp_path):
    """A record that cannot be kept is DROPPED and told; when the store can be read again, all goes on."""
    server, told = FakeServer(), []
    server.publish(SURVEY)
    path = tmp_path / "store.db"
    with Client(**options(server, silent=True, path=path, on_error=told.append, clock=server.clock)) as client:
        survey = client.join(SURVEY.id)
        client.flush()
        client._device.store._disconnect()
        content = path.read_bytes()
        path.write_bytes(bytes(len(content)))
        assert survey.record("tea") is Recorded.DROPPED
        assert [type(each) for each in told] == [StoreUnusable]
        for each in tmp_path.glob("store.db-*"):
            each.unlink()
        path.write_bytes(content)
        assert survey.record("tea") is Recorded.COUNTED
        assert survey.answer() == "tea"


def test_an_asynchronous_client_takes_it_as_well(tmp_path):
    """Its arguments are those of the other."""
    AsyncClient(**options(FakeServer(), silent=True, **damaged(tmp_path)))


def test_a_strict_app_is_warned_of_calls_that_tell_when_an_answer_was_given(tmp_path):
    """By a real clock: `record` right after the first `join`, and what asks the server right after `record`."""
    server = FakeServer()
    server.publish(SURVEY)
    with Client(**options(server, path=tmp_path / "store.db", strict=True)) as client:
        survey = client.join(SURVEY.id)
        with pytest.warns(UserWarning, match="`record` follows the first `join` at once"):
            survey.record("tea")
        client._device._first_join = float("-inf")
        for name, call in (("flush", lambda: client.flush(timeout=0)), ("leave", lambda: client.leave(SURVEY.id))):
            survey.record("coffee")
            with pytest.warns(UserWarning, match=f"`{name}` follows `record` at once"):
                call()


def test_what_gives_nothing_away_is_not_warned_of(tmp_path):
    """Nor is an app that is not strict, or a test with a clock of its own."""
    server = FakeServer()
    server.publish(SURVEY)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number, more in enumerate(({"strict": False}, {"strict": True, "clock": server.clock})):
            with Client(**options(server, path=tmp_path / f"{number}.db", **more)) as client:
                client.join(SURVEY.id).record("tea")
                client.flush()
        with Client(**options(server, path=tmp_path / "1.db", strict=True)) as client:
            client.flush()
            client.join(SURVEY.id).record("coffee")
