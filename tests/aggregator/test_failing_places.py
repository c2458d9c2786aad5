"""A server whose disk, folder or object store fails: uploads are answered 503 and come again, health names what is
wrong, all goes on by itself, and what was acknowledged is counted, each upload once and no other."""

import subprocess
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pytest
from changeling_aggregator import segments
from changeling_aggregator.segments import LEAST_FREE_BYTES, Folder
from changeling_aggregator.store import Store
from changeling_aggregator.testing import SegmentedStore, tallies_in
from changeling_aggregator.testing.services import NOT_HERE, WELL, Conduct, small_bucket
from changeling_protocol import SealingKey, Survey

from ..protocol.examples import survey
from .devices import END, START, Log, body, envelope, report
from .serving import ADMIN, ServerHere, ServerProcess, eventually

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]


@dataclass
class Sending:
    """Sends answers to a server, each of an entry of its own, and counts those that were acknowledged."""

    server: ServerProcess
    asked: Survey
    key: SealingKey
    acknowledged: int = 0

    @classmethod
    def to(cls, server: ServerProcess) -> Self:
        """With a survey that is over."""
        server.move_clock(START)
        sending = cls(server, server.new_survey(), server.key)
        server.move_clock(END)
        return sending

    def upload(self, answers: int = 1) -> bytes:
        return body(*(envelope(self.asked, self.key, [report(8, 3)]) for _ in range(answers)))

    def send(self, upload: bytes | None = None, answers: int = 1) -> int:
        """The status of an upload, one more if none is given."""
        answer = self.server.http.post("/v1/uploads", content=upload or self.upload(answers))
        self.acknowledged += answers * (answer.status_code == 200)
        assert answer.status_code == 200 or (answer.status_code == 503 and int(answer.headers["retry-after"]) > 0)
        return answer.status_code

    def status(self) -> str:
        answer: str = self.server.http.get("/readyz").json()["status"]
        return answer

    def troubles(self) -> dict[str, str]:
        return {each["name"]: each["detail"] for each in self.server.http.get("/readyz").json()["troubles"]}

    def is_turned_away(self, *words: str) -> None:
        """Uploads are, after a while, and health says so in these words."""
        assert eventually(self.send, 503)
        assert self.server.http.get("/readyz").status_code == 503
        troubles = self.troubles()
        assert [word for word in words if word not in troubles["uploads"]] == [], troubles

    def is_well_again(self) -> None:
        """Though nobody sends; and then all that was acknowledged is counted, and nothing else."""
        assert eventually(self.status, "ok")
        assert self.send() == 200
        self.server.fold()
        with closing(Store.open(self.server.store_path)) as store, store.view() as view:
            assert tallies_in(view, self.asked)[0, 8].reports == self.acknowledged


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own, in memory."""
    path = tmp_path / "disk"
    path.mkdir()
    try:
        mounted("-t", "tmpfs", "-o", f"size={LEAST_FREE_BYTES + 2**25}", "none", path)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no file system can be mounted here: {error}")
    yield path
    unmounted(path)


def mounted(*words: object) -> None:
    subprocess.run(["mount", *map(str, words)], check=True, timeout=20)


def unmounted(*places: Path) -> None:
    subprocess.run(["umount", "--lazy", *map(str, places)], check=True, timeout=20)


def fill(ballast: Path, left: int = 0) -> None:
    """Take all of its disk but so many bytes."""
    with ballast.open("ab", buffering=0) as file:
        for size in (2**20, 4096):
            with suppress(OSError):
                while file.write(bytes(size)):
                    pass
        file.truncate(ballast.stat().st_size - left)


def test_a_folder_that_is_gone_another_full_or_read_only_turns_uploads_away(tmp_path: Path, disk: Path) -> None:
    """A folder in its place is taken for nobody's; of a disk some is left free, and none may be."""
    folder = disk / "segments"
    with ServerHere(tmp_path, segments=str(folder)) as server:
        sending = Sending.to(server)
        assert sending.send() == 200
        hidden = folder.rename(disk / "elsewhere")
        sending.is_turned_away(str(folder))
        folder.mkdir()
        sending.is_turned_away(str(folder), "is not the one")
        folder.rmdir()
        hidden.rename(folder)
        sending.is_well_again()
        for left in (LEAST_FREE_BYTES // 2, 0):
            fill(disk / "ballast", left)
            sending.is_turned_away("the disk of segments is full")
        (disk / "ballast").unlink()
        sending.is_well_again()
        view = tmp_path / "view"
        view.mkdir()
        mounted("--bind", disk, view)  # beside it, as nothing becomes read-only where files are open
        mounted("-o", "remount,bind,ro", view)
        mounted("--bind", view, disk)
        try:
            sending.is_turned_away(str(folder), "be written")  # by who looks, or by who writes
        finally:
            unmounted(view, disk)
        sending.is_well_again()


def test_an_object_store_that_fails_turns_uploads_away_until_it_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it does instead of what it is asked; one that is made later is waited for, and nobody starts the server
    again."""
    monkeypatch.setattr(segments, "SECONDS", 2)
    with small_bucket() as bucket:
        bucket.conduct = lambda _, __: NOT_HERE
        with ServerHere(tmp_path, segments=bucket.place) as server:
            sending = Sending.to(server)
            sending.is_turned_away(bucket.place, "404")
            for conduct, words in (
                (Conduct(does=False, status=403), "403"),
                (Conduct(does=False, status=None), ""),
                (Conduct(after=20), "does not answer within 2 seconds"),
            ):
                bucket.conduct = lambda _, __: WELL
                sending.is_well_again()
                bucket.conduct = lambda _, __, conduct=conduct: conduct  # type: ignore[misc]
                sending.is_turned_away(bucket.place, words)
            bucket.conduct = lambda _, __: WELL
            sending.is_well_again()


def test_a_segment_that_is_lost_or_damaged_is_named_and_uploads_are_taken(
    tmp_path: Path, folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing after it is counted until it is put back: then all is."""
    store = SegmentedStore.open(tmp_path / "server.db")
    log = Log.of(store, survey())
    log.append(END, envelope(log.survey, log.key, [report(8, 3)]))
    store.close()
    (segment,) = folder.path.glob("*.parquet")
    whole = segment.read_bytes()
    segment.unlink()
    with ServerHere(tmp_path, segments=folder.name) as server:
        server.move_clock(END + 1)
        sending = Sending(server, log.survey, log.key, acknowledged=1)
        for damaged in (None, b"damaged" + whole[7:]):
            if damaged is not None:
                segment.write_bytes(damaged)
                caplog.clear()
            assert eventually(lambda: server.http.get("/readyz").status_code, 503)
            assert next(iter(sending.troubles())) == "fold"
            assert eventually(lambda: segment.name in caplog.text, True)
            assert sending.send() == 200
        segment.write_bytes(whole)
        sending.is_well_again()


def test_a_disk_that_is_full_under_the_store_loses_nothing_acknowledged(disk: Path) -> None:
    """To its last byte, by another program, again and again: neither folding nor an upload harms what is there. What
    was turned away is sent again, and counts once."""
    with ServerProcess(disk, "--movable-clock") as server:
        sending = Sending.to(server)
        for fold in (True, False):
            for _ in range(10):
                assert sending.send(answers=20) == 200
            fill(disk / "ballast")
            uploads = [sending.upload(20) for _ in range(20)]
            turned_away = [each for each in uploads if sending.send(each, 20) == 503]
            if fold:
                assert server.http.post("/v1/fold", headers=ADMIN).status_code in (200, 503)
            assert eventually(lambda: server.http.get("/readyz").status_code, 503)
            assert {"store", "uploads"} & {*sending.troubles()}
            (disk / "ballast").unlink()
            assert eventually(sending.status, "ok"), "though nobody sent anything"
            assert {sending.send(each, 20) for each in turned_away} <= {200}
        sending.is_well_again()
