"""Stores with flipped bits, and hosts without home, threads or files to open: ClientErrors, and withdrawing wipes."""

import errno
import os
import random
import re
import shutil
import threading
from contextlib import suppress
from functools import partial

import pytest
from changeling_client import Client, ClientError, StoreBusy, StoreReadOnly, SurveyHandle

from ..protocol.examples import PINNED
from .device import START, URL, FakeServer, client
from .test_consent import EVERYTHING, OTHER, everything_in, lived, on_disk


@pytest.fixture(scope="module")
def device(tmp_path_factory):
    """The folder of a device in mid survey, and what is in its store of answers and chances."""
    folder = tmp_path_factory.mktemp("device")
    _, clock = lived(folder)
    return folder, everything_in(folder)[:4], clock


def flipped(folder, to, seed):
    """A copy of the store with one to eight bits flipped: anywhere, at the head of a page, or in a survey's row."""
    chance, file = random.Random(seed), to / "store.db"
    shutil.copytree(folder, to)
    content = bytearray(file.read_bytes())
    rows = [found.start() for found in re.finditer(re.escape(URL.encode()), content)]
    for _ in range(chance.choice([1, 1, 2, 8])):
        page = 4096 * chance.randrange(len(content) // 4096)
        row = chance.choice(rows) + chance.randrange(-30, 30)
        at = chance.choice([chance.randrange(len(content)), page + chance.randrange(64), row])
        content[max(at, 100)] ^= 1 << chance.randrange(8)
    file.write_bytes(content)


def withdrawn_leaves_nothing(device, to, seed):
    """Withdraws with the store open where it can be opened, or from a start without consent; looks for what is left."""
    folder, pieces, clock = device
    flipped(folder, to, seed)
    server = FakeServer(EVERYTHING, OTHER)
    opened = None
    with suppress(ClientError):
        opened = client(to, server, clock)
    if opened is None or seed % 2:
        with suppress(ClientError):
            opened.close() if opened is not None else None
        client(to, server, clock, consent=False).close()
    else:
        opened.set_consent(False)
        opened.close()
    content = on_disk(to)
    for kind in pieces:
        assert not [piece for piece in kind if len(piece) > 8 and piece in content], seed
    assert b"an answer to a survey" not in content
    assert not server.requests


@pytest.mark.parametrize("seeds", [range(36), pytest.param(range(1_000, 1_200), marks=pytest.mark.heavy)], ids=len)
def test_withdrawing_from_a_store_with_flipped_bits_leaves_nothing(tmp_path, device, seeds):
    """Whatever fails inside: then the store is destroyed."""
    for seed in seeds:
        withdrawn_leaves_nothing(device, tmp_path / f"{seed}", seed)


def every_call(opened):
    with suppress(ValueError):  # the number of its entries may be damaged, and then this one is another
        opened.join(EVERYTHING.id, entries=3)
    handle = SurveyHandle(EVERYTHING.id, opened._device)
    for entry in range(3):
        yield partial(handle.record, "coffee", entry)
        yield partial(handle.answer, entry)
        yield partial(handle.ledger, entry)
    yield from (lambda: handle.survey, lambda: handle.status, lambda: handle.reason)
    yield from (opened.flush, opened.ledger, opened.reports, partial(opened.explain, EVERYTHING.id))
    yield from (partial(opened.leave, OTHER.id), partial(opened.leave, EVERYTHING.id))


def test_a_store_with_flipped_bits_raises_client_errors_alone(tmp_path, device):
    """From every call, and none holds a piece of the store."""
    folder, pieces, clock = device
    for seed in range(40):
        to = tmp_path / f"{seed}"
        flipped(folder, to, seed)
        clock.now = START + 300
        server = FakeServer(EVERYTHING, OTHER)
        with suppress(ClientError), client(to, server, clock, strict=False) as opened:
            for call in every_call(opened):
                try:
                    call()
                except ClientError as error:
                    told = repr(error).encode()
                    assert not [piece for kind in pieces for piece in kind if len(piece) > 8 and piece in told]
        clock.now = START + 200


def options(**more):
    return {"server": URL, "authority": PINNED, "max_epsilon": 1, "witness": None, **more}


def test_without_a_home_the_error_says_what_to_pass(monkeypatch):
    """As of a service whose user has no folder."""

    def nowhere():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr("pathlib.Path.home", nowhere)
    monkeypatch.setattr("platformdirs.user_data_path", lambda *_args, **_options: nowhere())
    with pytest.raises(StoreReadOnly, match="pass `path` and `witness`"):
        Client(app="org.example.tea", **options())


def test_without_a_thread_the_app_goes_on(tmp_path, monkeypatch):
    """It is told so, records are kept, and reporting begins with a later call when there are threads again."""
    told, start = [], threading.Thread.start

    def refuse(_self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with Client(path=tmp_path / "store.db", on_error=told.append, **options()) as opened:
        handle = opened.join(bytes(16))
        handle.record("tea")
        assert isinstance(told[0], ClientError)
        assert "no thread" in str(told[0])
        monkeypatch.setattr(threading.Thread, "start", start)
        handle.record("coffee")
        assert [thread for thread in threading.enumerate() if thread.name == "changeling"]


@pytest.mark.skipif(os.name != "posix", reason="a limit of POSIX")
@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.EACCES, errno.EISDIR])
def test_a_lock_file_that_cannot_be_opened_is_a_client_error(begin, monkeypatch, number):
    """No descriptor is left, or somebody else's file is in its place."""
    opened = begin(OTHER).device
    opened.join(OTHER.id)
    genuine = os.open

    def limited(path, *args, **more):
        if str(path).endswith(".lock"):
            raise OSError(number, os.strerror(number))
        return genuine(path, *args, **more)

    monkeypatch.setattr(os, "open", limited)
    with pytest.raises(StoreBusy if number in (errno.EMFILE, errno.ENFILE) else StoreReadOnly):
        opened.flush()
    monkeypatch.undo()
    assert opened.flush().trouble is None
