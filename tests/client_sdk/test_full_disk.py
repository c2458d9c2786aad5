"""A disk without room: told as what it is, nothing half done, and a witness that is whole or not written."""

import os
import resource

import pytest
from changeling_client import Sidecar, StoreFull

from .device import PLAIN, Clock, FakeServer, client

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def test_a_file_that_may_not_grow_is_a_full_store_and_keeps_what_it_has(tmp_path):
    """Beyond a quota, record() raises StoreFull; where there is room again, it goes on from what stood before."""
    server = FakeServer(PLAIN)
    with client(tmp_path, server, Clock()) as device:
        device.join(PLAIN.id).record("tea")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            handle = (device := client(tmp_path, server, Clock())).join(PLAIN.id)
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
            try:
                handle.record("coffee")
            except StoreFull:
                code = 0
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            code += handle.answer() != "tea"
            handle.record("neither")
            device.close()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with client(tmp_path, server, Clock()) as device:
        assert device.join(PLAIN.id).answer() == "neither"


def test_a_witness_that_is_written_in_parts_is_written_whole(tmp_path, monkeypatch):
    """Half of it in place of the one before would be a witness of nothing, and silence its store for good."""
    seen, write = bytes(range(200)), os.write
    monkeypatch.setattr(os, "write", lambda handle, content: write(handle, content[: (len(content) + 1) // 2]))
    Sidecar(tmp_path / "witness").write(seen)
    monkeypatch.undo()
    assert Sidecar(tmp_path / "witness").read() == seen
