"""A server whose folder or object store fails: uploads are answered 503 and come again, health names what is wrong, all
goes on by itself, and what was acknowledged is counted, each upload once and no other."""

import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from changeling_aggregator.segments import LEAST_FREE_BYTES, Folder
from changeling_aggregator.store import Store
from changeling_aggregator.testing import SegmentedStore
from changeling_aggregator.testing.bucket import NOT_HERE, WELL, Conduct, small_bucket
from changeling_protocol import Calendar, SealingKey, Survey

from ..protocol.examples import survey
from .clocks import END, GRACE, START
from .devices import Log, body, envelope, report
from .serving import ServerProcess, eventually

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]


@dataclass
class Sending:
    """Sends answers to a server, each of an entry of its own, and counts those that were acknowledged."""

    server: ServerProcess
    asked: Survey
    key: SealingKey
    acknowledged: int = 0

    def send(self) -> int:
        """The status of one more."""
        sealed = envelope(self.asked, self.key, [report(8, 3)])
        answer = self.server.http.post("/v1/uploads", content=body(sealed))
        self.acknowledged += answer.status_code == 200
        assert answer.status_code == 200 or int(answer.headers["retry-after"]) > 0
        return answer.status_code

    def is_turned_away(self, *words: str) -> None:
        """Uploads are, after a while, and health says so in these words."""
        assert eventually(self.send, 503)
        told = self.server.http.get("/readyz")
        troubles = {each["name"]: each["detail"] for each in told.json()["troubles"]}
        assert told.status_code == 503
        assert [word for word in words if word not in troubles["uploads"]] == [], troubles

    def is_well_again(self) -> None:
        """Though nobody sends; and then all that was acknowledged is counted, and nothing else."""
        assert eventually(lambda: self.server.http.get("/readyz").json()["status"], "ok")
        assert self.send() == 200
        self.server.fold()
        with closing(Store.open(self.server.store_path)) as store, store.view() as view:
            assert view.tallies(self.asked.id)[0, 8].reports == self.acknowledged


@contextmanager
def serving(tmp_path: Path, place: str) -> Iterator[Sending]:
    """A server with a survey, in which all goes well to begin with."""
    with ServerProcess(tmp_path, "--movable-clock", "--segments", place) as server:
        server.move_clock(START)
        sending = Sending(server, server.new_survey(), server.key)
        server.move_clock(END)
        yield sending


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own."""
    path = tmp_path / "disk"
    path.mkdir()
    try:
        mounted("-t", "tmpfs", "-o", f"size={LEAST_FREE_BYTES + 2**23}", "none", path)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no file system can be mounted here: {error}")
    yield path
    unmounted(path)


def mounted(*words: object) -> None:
    subprocess.run(["mount", *map(str, words)], check=True, timeout=20)


def unmounted(*places: Path) -> None:
    subprocess.run(["umount", "--lazy", *map(str, places)], check=True, timeout=20)


def test_a_folder_that_is_gone_turns_uploads_away_until_it_is_back(tmp_path: Path) -> None:
    """Also where another folder is in its place, which is taken for nobody's."""
    folder = tmp_path / "segments"
    with serving(tmp_path, str(folder)) as sending:
        assert sending.send() == 200
        hidden = folder.rename(tmp_path / "elsewhere")
        sending.is_turned_away(str(folder))
        folder.mkdir()
        sending.is_turned_away(str(folder), "is not the one")
        folder.rmdir()
        hidden.rename(folder)
        sending.is_well_again()


def test_a_disk_that_is_full_or_read_only_turns_uploads_away_until_it_is_not(tmp_path: Path, disk: Path) -> None:
    """With less than what is left free, to the last byte, and where it cannot be written at all."""
    with serving(tmp_path, str(disk / "segments")) as sending:
        assert sending.send() == 200
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(2**24))
        sending.is_turned_away("the disk of segments is full")
        with pytest.raises(OSError, match="No space left"), ballast.open("ab") as file:
            file.write(bytes(2**26))
        sending.is_turned_away("the disk of segments is full")
        ballast.unlink()
        sending.is_well_again()
        view = tmp_path / "view"
        view.mkdir()
        mounted("--bind", disk, view)  # beside it, as nothing becomes read-only where files are open
        mounted("-o", "remount,bind,ro", view)
        mounted("--bind", view, disk)
        try:
            sending.is_turned_away(str(disk), "be written")  # by who looks, or by who writes
        finally:
            unmounted(view, disk)
        sending.is_well_again()


@pytest.mark.parametrize(
    ("conduct", "words"),
    [
        (Conduct(does=False, status=403), "403"),
        (Conduct(does=False, status=None), ""),
        (Conduct(after=100), "does not answer within 10 seconds"),
    ],
    ids=["wrong credentials", "silent", "keeps what it does not answer for"],
)
def test_an_object_store_that_fails_turns_uploads_away_until_it_does_not(
    tmp_path: Path, conduct: Conduct, words: str
) -> None:
    """Whatever it does instead of what it is asked."""
    with small_bucket() as bucket, serving(tmp_path, bucket.place) as sending:
        assert sending.send() == 200
        bucket.conduct = lambda _, __: conduct
        sending.is_turned_away(bucket.place, words)
        bucket.conduct = lambda _, __: WELL
        sending.is_well_again()


def test_a_bucket_that_is_made_later_is_waited_for(tmp_path: Path) -> None:
    """The server starts without; nobody starts it again."""
    with small_bucket() as bucket:
        bucket.conduct = lambda _, __: NOT_HERE
        with serving(tmp_path, bucket.place) as sending:
            sending.is_turned_away(bucket.place, "404")
            bucket.conduct = lambda _, __: WELL
            sending.is_well_again()


@pytest.mark.parametrize("damage", [None, b"damaged"], ids=["lost", "damaged"])
def test_a_segment_that_is_lost_or_damaged_is_named_and_uploads_are_taken(
    tmp_path: Path, folder: Folder, damage: bytes | None
) -> None:
    """Nothing after it is counted until it is put back: then all is."""
    store = SegmentedStore.open(tmp_path / "server.db")
    log = Log.of(store, survey(calendar=Calendar(START, 60, 8), grace=GRACE, skew=5))
    log.append(END, envelope(log.survey, log.key, [report(8, 3)]))
    (segment,) = folder.path.glob("*.parquet")
    whole, said = segment.read_bytes(), tmp_path / "said"
    segment.unlink()
    if damage is not None:
        segment.write_bytes(damage + whole[len(damage) :])
    with ServerProcess(tmp_path, "--movable-clock", "--segments", folder.name, log=said) as server:
        server.move_clock(END + 1)
        sending = Sending(server, log.survey, log.key, acknowledged=1)
        assert eventually(lambda: server.http.get("/readyz").status_code, 503)
        assert server.http.get("/readyz").json()["troubles"][0]["name"] == "fold"
        assert segment.name in said.read_text()
        assert sending.send() == 200
        segment.write_bytes(whole)
        sending.is_well_again()
    store.close()
