"""A disk that another program fills to its last byte under a server, again and again: a real one, in memory."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from .devices import body, envelope, report
from .serving import ADMIN, ServerProcess, eventually

MIB = 2**20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 MiB; skipped where nobody may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode:
        pytest.skip("no disk can be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(filler: Path) -> None:
    """Take all that is left of its disk."""
    with filler.open("ab", buffering=0) as file:
        for size in (MIB, 4096):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                pass


@pytest.mark.heavy
def test_a_disk_that_is_full_is_named_and_nothing_acknowledged_is_lost(disk: Path) -> None:
    """Uploads are turned away, and neither folding nor an upload harms what is there; with room all goes on by itself.

    What was turned away is sent again, and counts once.
    """
    with ServerProcess(disk, "--movable-clock") as server:
        server.move_clock(1_800_000_000)
        key, asked = server.key, server.new_survey()
        server.move_clock(asked.calendar.time(1) + 16)
        acknowledged = 0
        for fold in (True, False, True):
            for _ in range(10):
                assert server.upload(*(envelope(asked, key, [report(1)]) for _ in range(20))) == []
                acknowledged += 20
            filler = disk / "filler"
            fill(filler)
            turned_away = []
            for _ in range(40):
                content = body(*(envelope(asked, key, [report(1)]) for _ in range(20)))
                answer = server.http.post("/v1/uploads", content=content)
                assert answer.status_code in (200, 503)
                acknowledged += 20 * (answer.status_code == 200)
                turned_away += [content] * (answer.status_code == 503)
            if fold:
                assert server.http.post("/v1/fold", headers=ADMIN).status_code in (200, 503)
            assert eventually(lambda: server.http.get("/readyz").status_code, 503)
            assert {"store", "uploads"} & {each["name"] for each in server.http.get("/readyz").json()["troubles"]}
            filler.unlink()
            assert eventually(lambda: server.http.get("/readyz").json()["status"], "ok"), "though nobody sent anything"
            for content in turned_away:
                assert server.http.post("/v1/uploads", content=content).status_code == 200
                acknowledged += 20
        assert server.reports(asked) == {(0, 1): acknowledged}
