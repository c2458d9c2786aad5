"""A server whose log lies in a folder or an object store: what it acknowledges counts, and what is wrong is named."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from changeling_aggregator.errors import Unwritable
from changeling_aggregator.fold import check
from changeling_aggregator.ingest.bucketed import BucketWriter
from changeling_aggregator.segments import place_at
from changeling_aggregator.store import Store
from changeling_aggregator.store.catalogue import segment_bytes
from changeling_aggregator.store.counted import tallies_of
from changeling_aggregator.store.log import unread
from changeling_commands.__main__ import main as run
from changeling_protocol import Refusal

from .buckets import new_bucket, object_store
from .devices import body, envelope, report
from .serving import Cli, ServerProcess, eventually

pytestmark = [
    pytest.mark.filterwarnings("ignore:datetime.datetime.utcnow:DeprecationWarning"),
]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with object_store() as running:
        yield running


@pytest.fixture(params=["folder", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of segments."""
    if request.param == "folder":
        return str(tmp_path / "segments")
    return new_bucket(request.getfixturevalue("endpoint"))


def bodies(store: Store) -> list[bytes]:
    with store.reading() as connection:
        return [each.body for each in unread(connection, 100, 2**30)]


@pytest.mark.heavy
def test_what_a_server_acknowledged_is_counted_and_kept(tmp_path: Path, place: str) -> None:
    """Over HTTP, before and after a kill; and comes to the same when it is folded again."""
    with ServerProcess(tmp_path, "--movable-clock", "--segments", place) as server:
        server.move_clock(1_800_000_000)
        asked, key = server.new_survey(), server.key
        server.move_clock(1_800_000_000 + 480)
        assert server.upload(envelope(asked, key, [report(8, 3)])) == []
        server.fold()
        assert server.upload(envelope(asked, key, [report(8, 4)])) == []
        server.kill()
    with ServerProcess(tmp_path, "--movable-clock", "--segments", place) as server:
        assert server.upload(envelope(asked, key, [report(8, 5)])) == []
        server.fold()
    store = Store.open(tmp_path / "server.db")
    assert check(store) == []
    with store.reading() as connection:
        assert tallies_of(connection, asked.id)[0, 8].reports == 3
        assert segment_bytes(connection) > 1000
    assert store.bytes_kept() > 1000
    store.close()


def test_what_a_bucket_was_given_is_read_in_order(store: Store, endpoint: str) -> None:
    """Each commit an object; refusals are counted along with it."""
    writer = BucketWriter(store, place_at(new_bucket(endpoint)))
    writer.write([b"one", b"two"], {}, 5)
    writer.write([b"three"], {(b"survey of 16 by.", Refusal.UNOPENABLE): 1}, 4)
    writer.write([], {}, 9)
    assert bodies(store) == [b"one", b"two", b"three"]
    with store.reading() as connection:
        assert [each.arrival for each in unread(connection, 9, 999)] == [5, 5, 5]


def test_a_commit_that_failed_leaves_no_gap(store: Store, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the database or the object store failed: what comes then has the next positions."""
    writer = BucketWriter(store, place_at(new_bucket(endpoint)))
    writer.write([b"one"], {}, 5)
    with monkeypatch.context() as broken:
        broken.setattr("changeling_aggregator.ingest.bucketed.add_segment", lambda *_: False)
        with pytest.raises(Unwritable):
            writer.write([b"lost"], {}, 6)
    with monkeypatch.context() as broken:
        broken.setattr("changeling_aggregator.ingest.bucketed.write_segment", _unwritable)
        with pytest.raises(Unwritable):
            writer.write([b"lost"], {}, 6)
    writer.write([b"two"], {}, 7)
    assert bodies(store) == [b"one", b"two"]


def _unwritable(*_: object) -> None:
    raise Unwritable("broken")


def test_a_bucket_that_is_gone_is_named_and_credentials_are_not(endpoint: str) -> None:
    """In words of one line."""
    for act in (lambda place: place.put("a", b"x"), lambda place: [*place.kept("a")]):
        with pytest.raises(Unwritable, match="s3://nobody-has-this/log") as raised:
            act(place_at("s3://nobody-has-this/log"))
        assert "secret" not in str(raised.value)
        assert "\n" not in str(raised.value)
    place = place_at(new_bucket(endpoint))
    place.remove("what was never there")


def test_a_folder_that_cannot_be_used_turns_uploads_away_until_it_can(tmp_path: Path) -> None:
    """503 while it is gone, named in health; when it is back, all goes on by itself."""
    folder = tmp_path / "segments"
    with ServerProcess(tmp_path, "--movable-clock", "--segments", str(folder)) as server:
        server.move_clock(1_800_000_000)
        asked = server.new_survey()
        server.move_clock(1_800_000_000 + 480)
        assert server.upload(envelope(asked, server.key, [report(8, 3)])) == []
        server.fold()
        hidden = folder.rename(tmp_path / "elsewhere")

        def status() -> int:
            sealed = envelope(asked, server.key, [report(8, 4)])
            return server.http.post("/v1/uploads", content=body(sealed)).status_code

        assert eventually(status, 503)
        troubles = {each["name"]: each["detail"] for each in server.http.get("/readyz").json()["troubles"]}
        assert str(folder) in troubles["uploads"]
        hidden.rename(folder)
        assert eventually(status, 200)


def test_segments_are_listed_put_in_order_and_given_up_from_the_command_line(
    cli: Cli, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a store whose log lies in a folder."""
    from changeling_aggregator.ingest.journaled import JournalWriter
    from changeling_aggregator.segments.folder import Folder

    store = Store.open(tmp_path / "server.db")
    writer = JournalWriter(store, Folder(tmp_path / "segments", make=True), lambda: 5.0)
    writer.write([b"one", b"two"], {}, 5000)
    writer.close()
    store.close()
    shown = cli("segments", "list", "--store", "server.db")
    assert "  1-2  " in shown
    assert "2 to count" in shown
    assert "0 segments were written anew, 0 files" in cli("segments", "compact", "--store", "server.db")
    assert "0 streams recovered" in cli("segments", "recover", "--store", "server.db")
    assert run(["segments", "recover", "--store", "server.db", "--give-up", "1"]) == 1
    assert "nothing waits for a journal of stream 1" in " ".join(capsys.readouterr().err.split())
