"""The package as an app embeds it: what it imports and is made with, and where it runs though nothing can be kept."""

import subprocess
import sys
import threading
import time
import warnings

import httpx
import pytest
from changeling_client import Callbacks, Client, ClientError, Flushed, Recorded, Status, StoreReadOnly, StoreUnusable
from changeling_client.testing import FakeServer, make_survey
from changeling_protocol import SystemCoins

from ..protocol.examples import PINNED
from .device import PLAIN, URL

LOOPBACK = "http://127.0.0.1:8000"
BAD = [
    *(({"server": url}, "https") for url in ("http://statistics.example", "ftp://x", "statistics.example", "https://")),
    *(({"server": url}, "https") for url in ("https://a/?q=1", "http://10.0.0.1")),
    ({"server": "https://alice:secret@statistics.example"}, "credentials"),
    *(({"authority": keys}, r"authority|low order") for keys in ([], (), PINNED[0], [PINNED[0][:31]], ("x" * 32,))),
    *(({"authority": [key]}, r"authority|low order") for key in (bytes(32), b"\1" + bytes(31))),
    *(({"max_epsilon": most}, "max_epsilon") for most in (0, -1, float("nan"), float("inf"), "much")),
    *(({"key": key}, "32 bytes") for key in (b"", b"secret".ljust(31), "secret".ljust(32))),
    *(({"upload_token": token}, "upload token must") for token in ("", "a secret", "secret\r\nx: y", "secreträger")),
    *(({"proxy": url}, "proxy's URL must be like") for url in ("p.example", "ftp://alice:secret@p.example", "http://")),
    ({"proxy": "http://p.example", "transport": httpx.MockTransport(print)}, "one of the two"),
    *(({"server": f"https://{host}", "development": True}, "loopback") for host in ("localhost.example", "10.0.0.1")),
    *(({"path": path}, "the store is a file") for path in ("", ".")),
    *(({"path": None, "app": app}, "name of a folder") for app in ("", "..", "a/b", "a\\b", "a\0b")),
    ({"path": None}, "told one of these"),
    ({"app": "org.example.tea"}, "told one of these"),
    *(
        ({"path": None, "database": "postgresql://db.example.org/app", "witness": witness}, "`SharedCallbacks`")
        for witness in (Callbacks(lambda: None, print), "witness")
    ),
    ({"path": None, "database": "secret=", "witness": None}, "connection string"),
]
"""What each of them says, in place of a client's argument; a secret has the word in it."""


def made(**options):
    return Client(**{"server": URL, "authority": PINNED, "max_epsilon": 1, "path": "store.db", **options})


@pytest.mark.parametrize(("options", "words"), BAD)
def test_a_bad_argument_is_told_and_makes_nothing(tmp_path, monkeypatch, options, words):
    """A plain ValueError, whose words hold no secret; no file, no folder and no witness is made."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=words) as raised:
        made(**options)
    assert "secret" not in str(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_an_argument_that_is_missing_or_unknown_is_named(tmp_path):
    """As Python does it for any call; nobody passes coins that can be foreseen, in place of the operating system's."""
    with made(path=tmp_path / "store.db") as client:
        assert type(client._device.coins) is SystemCoins
    with pytest.raises(TypeError, match="takes no argument coins"):
        made(path=tmp_path / "store.db", coins=None)
    with pytest.raises(TypeError, match="needs the argument authority, max_epsilon"):
        Client(server=URL)


@pytest.mark.parametrize("url", [LOOPBACK, "http://localhost:1/", "http://[::1]:9", f"{URL}/base/"])
def test_loopback_and_paths_are_fine(tmp_path, url):
    """A development server on loopback needs no certificate."""
    made(path=tmp_path / "store.db", server=url).close()


ON_REQUEST = {"async_client", "explanation", "reports", "postgresql", "handover", "testing", "editions"}
"""What the bound of the wheel's test on what every app loads leaves out."""
NUMBERS = {"numpy", "scipy", "changeling_statistics", "changeling_aggregator", "changeling_simulations"}
LIFE = """
import sys
from changeling_client import Client
print(*sys.modules)
client = Client(server="http://127.0.0.1:9", authority=[{key!r}], max_epsilon=1, path={path!r}, background=False)
client.join(bytes(16)).record("tea")
print(*sys.modules)
assert "could not be reached" in client.flush().trouble
client.close()
print(*sys.modules)
"""


def test_an_app_loads_what_it_needs_when_it_needs_it(tmp_path):
    """The import alone brings no cryptography and no database; a record no network; a whole life no numbers, no second
    kind of client, store or report, nothing to explain, and nothing for tests."""
    life = LIFE.format(key=PINNED[0], path=str(tmp_path / "store.db"))
    printed = subprocess.run([sys.executable, "-c", life], capture_output=True, text=True, check=True).stdout
    imported, recorded, reported = ({*line.split()} for line in printed.splitlines())
    assert {name for name in imported if name.startswith("changeling_")} == {
        "changeling_client",
        "changeling_client.client",
    }
    assert not imported & {"cryptography", "msgpack", "sqlite3", "dataclasses", "logging"}
    assert "changeling_protocol" in recorded
    assert "httpx" not in recorded
    assert "changeling_client.flushing" in reported
    assert not reported & NUMBERS
    assert not [name for name in reported if name.startswith("changeling_") and {*name.split(".")} & ON_REQUEST]


SURVEY = make_survey(answers=("tea", "coffee"), periods=10)


@pytest.mark.parametrize(("place", "error"), [({"app": "org.example.tea"}, StoreReadOnly), ({}, StoreUnusable)])
def test_where_nothing_can_be_kept_a_silent_app_runs_on(tmp_path, monkeypatch, place, error):
    """No call raises, each returns as if nothing were known, and the app is told why; another app hears it raised."""

    def homeless(*_, **__):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr("platformdirs.user_data_path", homeless)
    (tmp_path / "store.db").write_bytes(b"something else")
    place, told, server = place or {"path": tmp_path / "store.db"}, [], FakeServer()
    server.publish(SURVEY)
    options = {"server": server.url, "authority": server.authority, "transport": server.transport, **place}
    options |= {"max_epsilon": 10_000, "background": False}
    with pytest.raises(error):
        Client(**options)
    with Client(**options, silent=True, on_error=told.append) as client:
        assert [type(each) for each in told] == [error]
        survey = client.join(SURVEY.id)
        assert (survey.record("tea"), survey.retract()) == (Recorded.DROPPED, Recorded.DROPPED)
        assert (survey.answer(), survey.survey, survey.ledger(), survey.reason) == (None, None, None, "")
        assert survey.status is Status.NOT_JOINED
        survey.stratum({})
        assert client.flush() == Flushed(0, 0, 0, "the store cannot be used")
        assert (client.reports(), client.ledger().surveys) == ((), ())
        assert str(client.ledger()) == "What surveys have cost cannot be read at the moment."
    assert all(isinstance(each, ClientError) for each in told)


def test_a_store_that_fails_later_silences_nothing_but_its_errors(tmp_path, joined):
    """A record that cannot be kept is DROPPED and told; when the store can be read again, all goes on."""
    told, path = [], tmp_path / "store.db"
    survey, device, *_ = joined(PLAIN, silent=True, on_error=told.append)
    device.store._disconnect()
    content = path.read_bytes()
    path.write_bytes(bytes(len(content)))
    assert survey.record("tea") is Recorded.DROPPED
    assert [type(each) for each in told] == [StoreUnusable]
    for each in tmp_path.glob("store.db-*"):
        each.unlink()
    path.write_bytes(content)
    assert survey.record("tea") is Recorded.COUNTED
    assert survey.answer() == "tea"


def test_a_strict_app_is_warned_of_calls_that_tell_when_an_answer_was_given(kit):
    """By a real clock: `record` right after the first `join`, and what asks the server right after `record`."""
    client, server = kit(clock=time.time)
    survey = client.join(server.publish(SURVEY))
    with pytest.warns(UserWarning, match="`record` follows the first `join` at once"):
        survey.record("tea")
    client._device._first_join = float("-inf")
    for name, call in (("flush", lambda: client.flush(timeout=0)), ("leave", lambda: client.leave(SURVEY.id))):
        survey.record("coffee")
        with pytest.warns(UserWarning, match=f"`{name}` follows `record` at once"):
            call()


def test_what_gives_nothing_away_is_not_warned_of(tmp_path, kit):
    """Nor is an app that is not strict, or a test with a clock of its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number, more in enumerate(({"strict": False, "clock": time.time}, {})):
            client, server = kit(path=tmp_path / f"{number}.db", witness=None, **more)
            client.join(server.publish(SURVEY)).record("tea")
            client.flush()
        client, _ = kit(path=tmp_path / "1.db", witness=None, clock=time.time)
        client.flush()
        client.join(SURVEY.id).record("coffee")


def test_without_a_thread_the_app_goes_on(tmp_path, monkeypatch):
    """It is told so, records are kept, and reporting begins with a later call when there are threads again."""
    told, start = [], threading.Thread.start

    def refuse(_self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    options = {"server": URL, "authority": PINNED, "max_epsilon": 1, "witness": None}
    with Client(path=tmp_path / "store.db", on_error=told.append, **options) as opened:
        handle = opened.join(bytes(16))
        handle.record("tea")
        assert isinstance(told[0], ClientError)
        assert "no thread" in str(told[0])
        monkeypatch.setattr(threading.Thread, "start", start)
        handle.record("coffee")
        assert [thread for thread in threading.enumerate() if thread.name == "changeling"]
