"""The fold in processes of its own: killed, told to end, beside others; and what it never shows."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from multiprocessing import active_children
from pathlib import Path
from typing import TypeAlias

import pytest
from changeling_aggregator import FoldDied, Overloaded, StoreError, ingest, opening
from changeling_aggregator.fold import FoldProcess, fold
from changeling_aggregator.ingest import Committer, Registry
from changeling_aggregator.opening import OpeningProcesses, open_requests
from changeling_aggregator.server import FoldLoop, MovableClock, ServerSettings, Service, health, service
from changeling_aggregator.store import AtRest, Store, TokenScope
from changeling_aggregator.testing.serving import offspring, running
from changeling_protocol import Calendar, UnixSeconds

from ..protocol.examples import PINNED, survey
from .devices import SURVEYS, Log, body, envelope, report, upload
from .serving import ServerProcess, eventually, in_process

START, END = 1_800_000_000, 1_800_000_480


@pytest.fixture
def log(store: Store) -> Log:
    return Log.of(store, survey(calendar=Calendar(START, 60, 8)))


@pytest.mark.heavy
def test_a_fold_that_ended_says_why_and_the_next_one_counts(
    log: Log, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Killed, it is started again, and what it had not kept counts once. Where its store cannot be opened it tells
    whoever asked, each time, without a traceback of its own."""
    place = tmp_path / "server.db"
    process = FoldProcess(place, log.store.at_rest)
    process.await_start()
    process.fold(END, closing=True)
    log.append_reports(END, [report(1)])
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(FoldDied):
        process.fold(END, closing=True)
    hidden = place.with_suffix(".hidden")
    place.rename(hidden)
    place.mkdir()
    with pytest.raises(StoreError):
        process.await_start()
    place.rmdir()
    hidden.rename(place)
    process.await_start()
    assert process.fold(END, closing=True).reports == 1
    process.close()
    assert log.tallies()[0, 1][0] == 1
    assert "Traceback" not in capfd.readouterr().err


Openers: TypeAlias = tuple[OpeningProcesses, list[int]]


@pytest.fixture(scope="module")
def openers() -> Iterator[Openers]:
    """Two processes that open, and their numbers."""
    several, before = OpeningProcesses(2), {*active_children()}
    several([body(bytes(300)) for _ in range(300)], {}, {})
    yield several, [each.pid for each in {*active_children()} - before if each.pid]
    for each in {*active_children()} - before:
        each.kill()  # one may wait for a lock that the killed one had, and keep this process from ending


def test_openers_give_what_one_process_gives(log: Log, openers: Openers) -> None:
    """In the same order, whatever is refused, however the requests are cut into pieces."""
    with log.store.view() as view:
        keys = view.private_keys()
    requests = [
        body(*(envelope(log.survey, log.key, [report(1)]) for _ in range(number % 3 + 1)), bytes(200 + number))
        for number in range(250)
    ]
    surveys = {log.survey.id: log.survey}
    several, alone = openers[0](requests, surveys, keys), open_requests(requests, surveys, keys)
    assert several.envelopes == alone.envelopes > 700
    assert (several.refused, several.rubbish) == (alone.refused, [])
    assert {kind: sheaf.joined() for kind, sheaf in several.sheaves.items()} == alone.sheaves


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a place behind all others")
def test_openers_stand_behind_whatever_else_runs(openers: Openers) -> None:
    """Also the server that takes uploads: it would else wait for a processor whenever it wakes up."""
    assert len(openers[1]) == 2
    assert eventually(lambda: {os.sched_getscheduler(each) for each in openers[1]}, {os.SCHED_IDLE})


def test_what_openers_have_no_time_for_is_opened_all_the_same(
    log: Log, openers: Openers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By whoever calls, while others keep the processors busy, who waits for them once and not for each of some sixteen
    pieces; what they answer later belongs to no other call."""
    monkeypatch.setattr(opening, "MOST_SILENCE_SECONDS", 0.3)
    with log.store.view() as view:
        keys = view.private_keys()
    surveys = {log.survey.id: log.survey}
    some, others = ([body(envelope(log.survey, log.key, [report(period)])) for _ in range(300)] for period in (1, 2))
    for requests in (some, others):
        for pid in openers[1]:
            os.kill(pid, signal.SIGSTOP)
        began = time.monotonic()
        starved, alone = openers[0](requests, surveys, keys), open_requests(requests, surveys, keys)
        assert time.monotonic() - began < 8
        for pid in openers[1]:
            os.kill(pid, signal.SIGCONT)
        assert starved.envelopes == 300
        assert {kind: sheaf.joined() for kind, sheaf in starved.sheaves.items()} == alone.sheaves
    again = openers[0](some, surveys, keys)
    assert {kind: sheaf.joined() for kind, sheaf in again.sheaves.items()} == open_requests(some, surveys, keys).sheaves


def test_an_opener_that_is_killed_is_replaced(openers: Openers) -> None:
    """The call in which that is seen, which the others may be too quick for, fails; the next one opens everything."""
    requests = [body(bytes(300)) for _ in range(300)]
    os.kill(openers[1][0], signal.SIGKILL)
    assert eventually(lambda: running(openers[1][0]), False)

    def open_until_it_is_seen() -> None:
        while True:
            assert openers[0](requests, {}, {}).envelopes == 300

    with pytest.raises((OSError, EOFError)):
        open_until_it_is_seen()
    assert openers[0](requests, {}, {}).envelopes == 300


def test_a_token_is_revoked_though_the_fold_fails(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """For as long as that lasts, too."""
    with log.store.transaction() as writing:
        token = writing.add_token("text", "who left", [TokenScope.READ], UnixSeconds(0.0))
    registry = Registry(log.store)
    registry.refresh()
    with log.store.transaction() as writing:
        writing.revoke_token(token.id)

    def fail(*_: object, **__: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr("changeling_aggregator.server.service.fold", fail)
    with pytest.raises(OSError, match="disk"):
        FoldLoop(log.store, registry, lambda: END).fold_now()
    assert not registry.tokens


@pytest.mark.heavy
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of other processes")
def test_what_a_server_starts_shows_no_key_is_started_again_and_ends_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the store key, which may stand in the environment of the server alone, nor a private sealing key is in
    arguments or environment of a process that it starts. Uploads are taken while a killed fold is started, and count.
    """
    secret = os.urandom(32)
    monkeypatch.setenv("CHANGELING_STORE_KEY", secret.hex())
    with ServerProcess(tmp_path, "--movable-clock") as server, closing(Store.open(server.store_path)) as encrypted:
        server.move_clock(START)
        log = Log.of(Store.open(server.store_path, AtRest(secret)), survey(calendar=Calendar(START, 60, 8)))
        server.fold()
        server.move_clock(END)
        server.upload(*(envelope(log.survey, log.key, [report(8)]) for _ in range(400)))
        server.fold()
        assert log.tallies()[0, 8][0] == 400
        with log.store.view() as view:
            private = view.private_keys()[log.key.id].private_bytes_raw()
        with encrypted.view() as view, pytest.raises(StoreError):
            view.private_keys()
        before = set(offspring(server.process.pid))
        assert before
        for pid in before:
            shown = Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
            assert not [each for each in (secret, private) if each in shown or each.hex().encode() in shown]
        for pid in before:
            with suppress(ProcessLookupError):  # those that the fold had started end with it
                os.kill(pid, signal.SIGKILL)
        assert server.upload(*(envelope(log.survey, log.key, [report(7)]) for _ in range(400))) == []
        assert eventually(lambda: any(map(running, set(offspring(server.process.pid)) - before)), True)
        server.fold()
        assert log.tallies()[0, 7][0] == 400
        assert eventually(lambda: server.http.get("/readyz").json()["status"], "ok")
        others = offspring(server.process.pid)
        assert others
        server.kill()
        assert eventually(lambda: any(map(running, others)), False)
        log.store.close()


@pytest.mark.heavy
def test_a_server_that_is_stopped_as_soon_as_it_listens_ends(tmp_path: Path) -> None:
    """Its fold's process is there before the app has started, and waits for nobody when that never comes to start."""
    (tmp_path / "authority.pub").write_text(PINNED[0].hex())
    words = [sys.executable, "-m", "changeling_commands", "serve", "--port", "0"]
    words += ["--store", str(tmp_path / "server.db"), "--authority", str(tmp_path / "authority.pub")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("changeling listens on")
        process.terminate()
        assert process.wait(60) == 0


def test_rubbish_goes_when_it_is_folded(log: Log) -> None:
    """What does not open is deleted at once, but not from beside what counts; the refusals tell."""
    sound = envelope(log.survey, log.key, [report(1)])
    altered = sound[:-1] + bytes([sound[-1] ^ 1])
    log.store.append({log.stream: [body(altered), body(sound, altered), body(altered, altered)]}, END * 1000)
    fold(log.store, END)
    assert log.refused() == {"unopenable": 4}
    with log.store.view() as view:
        assert [each.body for each in sorted(view.kept_requests())] == [body(sound, altered)]
    log.append_reports(END, [report(1)])
    fold(log.store, END)
    assert log.tallies()[0, 1][0] == 2


def test_a_full_store_takes_no_uploads_until_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """503 with Retry-After, and health says why; by itself it takes them again."""
    store = Store.open(tmp_path / "server.db")
    taking = Committer(store, lambda: float(END), most_unfolded=2)
    taking.start()
    monkeypatch.setattr(ingest, "LOOK_SECONDS", 0.0)

    async def append_four() -> list[object]:
        return [
            await asyncio.gather(taking.append(upload(b"upload"), SURVEYS), return_exceptions=True) for _ in range(4)
        ]

    heard = [error for (error,) in asyncio.run(append_four())]  # type: ignore[misc]
    assert heard[:3] == [None, None, None]
    assert isinstance(heard[3], Overloaded)
    assert "wait to be counted" in (taking.trouble or "")
    taking.most_unfolded = 10
    assert eventually(lambda: taking.trouble, None)
    taking.most_store_bytes = 1
    assert isinstance(asyncio.run(append_four())[3][0], Overloaded)  # type: ignore[index]
    assert "due to go" in (taking.trouble or "")
    taking.close()
    store.close()


def test_a_store_takes_what_its_disk_has_room_for_unless_it_is_told(tmp_path: Path) -> None:
    """Nine tenths of what is free, and a request for each KiB of that; a setting counts before the disk."""
    store = Store.open(tmp_path / "server.db")
    for segments in (None, str(tmp_path / "segments")):
        by_itself = Committer(store, lambda: float(END), segments=segments)
        free = shutil.disk_usage(tmp_path).free
        assert abs(by_itself.most_store_bytes - 0.9 * free) < 0.01 * free
        assert by_itself.most_unfolded == by_itself.most_store_bytes // 1024
        assert abs((by_itself.free_bytes() or 0) - free) < 0.01 * free
    told = Committer(store, lambda: float(END), 2**40, 10**7)
    assert (told.most_store_bytes, told.most_unfolded) == (2**40, 10**7)
    store.close()


def test_a_server_that_does_not_fold_tells_how_long_nobody_has(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Degraded once that is long, with 200 as it takes uploads; well again once another process has folded."""
    monkeypatch.setattr(service, "EVERY_SECONDS", 0.02)
    log = Log.of(store, survey(calendar=Calendar(START, 60, 8)))
    with in_process(Service(store, ServerSettings(PINNED, MovableClock(START + 60), folds=False))) as get:

        def troubles() -> list[dict[str, str]]:
            return [each for each in get("/readyz").json()["troubles"] if each["name"] == "fold"]

        assert troubles() == []
        log.append_reports(START + 60, [report(1)])
        monkeypatch.setattr(health, "MOST_UNFOLDED_SECONDS", 0.5)
        assert eventually(lambda: len(troubles()), 1)
        told = get("/readyz")
        assert (told.status_code, told.json()["status"]) == (200, "degraded")
        assert troubles()[0]["detail"].startswith("this server does not fold, and for ")
        assert log.tallies() == {}
        fold(store, START + 60.0)
        monkeypatch.setattr(health, "MOST_UNFOLDED_SECONDS", 60.0)
        assert eventually(troubles, [])
        assert log.tallies()[0, 1][0] == 1


@pytest.mark.heavy
def test_what_a_server_that_does_not_fold_acknowledged_in_segments_is_counted_by_another(tmp_path: Path) -> None:
    """Though it was killed, and the other reads the catalogue alone."""
    with (
        ServerProcess(tmp_path, "--movable-clock", "--no-fold", "--segments", str(tmp_path / "segments")) as server,
        closing(Store.open(server.store_path)) as store,
    ):
        key, asked = server.new_key(), server.new_survey()
        server.move_clock(asked.calendar.time(1) + asked.skew + asked.spread + 1)
        for _ in range(2):
            assert server.upload(envelope(asked, key, [report(1)])) == []
        assert server.fold() == {"envelopes": 0, "reports": 0, "refused": {}}
        server.kill()
        assert fold(store, asked.calendar.time(1) + 1000.0, closing=False).reports == 2
