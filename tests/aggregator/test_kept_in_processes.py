"""What the processes of a server are given."""

from pathlib import Path

import pytest
from changeling_aggregator.testing.serving import offspring

from .serving import ServerProcess

STORE_KEY = "5a" * 32


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="only Linux tells of other processes")
def test_no_process_that_a_server_starts_is_given_the_store_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may stand in the environment of the server alone."""
    monkeypatch.setenv("CHANGELING_STORE_KEY", STORE_KEY)
    with ServerProcess(tmp_path) as server:
        server.fold()
        children = offspring(server.process.pid)
        assert children
        for process in children:
            for told in ("environ", "cmdline"):
                assert STORE_KEY.encode() not in Path(f"/proc/{process}/{told}").read_bytes()
