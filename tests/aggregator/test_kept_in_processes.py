"""What the processes of a server are given, and what they would leave of their memory."""

from pathlib import Path

import pytest

from .serving import ServerProcess

STORE_KEY = "5a" * 32


def children_of(process: int) -> list[Path]:
    """Where the kernel tells of the processes that one has started."""
    numbers = (path for path in Path("/proc").iterdir() if path.name.isdecimal())
    return [path for path in numbers if _parent(path) == process]


def _parent(process: Path) -> int | None:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:  # it has ended
        return None


@pytest.mark.skipif(not Path("/proc/self/limits").exists(), reason="only Linux tells of other processes")
def test_no_process_that_a_server_starts_is_given_the_store_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may stand in the environment of the server alone. And none leaves a core file, in which keys would be."""
    monkeypatch.setenv("CHANGELING_STORE_KEY", STORE_KEY)
    with ServerProcess(tmp_path) as server:
        server.fold()
        children = children_of(server.process.pid)
        assert children
        for process in children:
            for told in ("environ", "cmdline"):
                assert STORE_KEY.encode() not in (process / told).read_bytes()
        for process in (Path(f"/proc/{server.process.pid}"), *children):
            (limit,) = (each for each in (process / "limits").read_text().splitlines() if "core file" in each)
            assert limit.split()[4] == "0"
