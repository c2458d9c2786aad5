"""The fold in processes of its own: killed, told to end, beside others; and what it never shows."""

import asyncio
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from multiprocessing import active_children
from pathlib import Path

import pytest
from changeling_aggregator import opening
from changeling_aggregator.errors import FoldDied, Overloaded, StoreError
from changeling_aggregator.fold import FoldProcess, fold
from changeling_aggregator.ingest import Committer, Registry
from changeling_aggregator.logs import log_failure
from changeling_aggregator.opening import OpeningProcesses, open_requests
from changeling_aggregator.server.service import REST_SECONDS, FoldLoop
from changeling_aggregator.store import AtRest, Store, TokenScope
from changeling_aggregator.testing.serving import offspring, running
from changeling_protocol import Calendar, UnixSeconds

from ..protocol.examples import PINNED, survey
from .devices import Log, body, envelope, report
from .serving import ServerProcess, eventually
from .uploads import SURVEYS, upload

START, END = 1_800_000_000, 1_800_000_480


@pytest.fixture
def log(store: Store) -> Log:
    return Log.of(store, survey(calendar=Calendar(START, 60, 8)))


def test_a_fold_that_is_killed_says_so_and_the_next_one_counts(log: Log, tmp_path: Path) -> None:
    """It is started again; what it had not kept counts once."""
    process = FoldProcess(tmp_path / "server.db", log.store.at_rest)
    process.await_start()
    process.fold(END, closing=True)
    log.append_reports(END, [report(1)])
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(FoldDied):
        process.fold(END, closing=True)
    process.await_start()
    assert process.fold(END, closing=True).reports == 1
    process.close()
    assert log.tallies()[0, 1][0] == 1


def test_a_fold_whose_store_cannot_be_opened_says_why_and_is_started_again(
    log: Log, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Without a traceback of its own: whoever asked is told, each time, and logs it."""
    place = tmp_path / "server.db"
    process = FoldProcess(place, log.store.at_rest)
    hidden = place.with_suffix(".hidden")
    place.rename(hidden)
    place.mkdir()
    for _ in range(2):
        with pytest.raises(StoreError):
            process.await_start()
    place.rmdir()
    hidden.rename(place)
    process.await_start()
    assert process.fold(END, closing=True).reports == 0
    process.close()
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("error", [StoreError("shutting down"), FoldDied("shutting down"), OSError("shutting down")])
def test_what_is_no_defect_is_logged_in_one_line(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise error
    except type(error):
        log_failure(logging.getLogger("changeling"), "the fold failed", error)
    assert [(each.getMessage(), each.exc_info) for each in caplog.records] == [("the fold failed: shutting down", None)]


def test_openers_give_what_one_process_gives(log: Log) -> None:
    """In the same order, whatever is refused, however the requests are cut into pieces."""
    with log.store.view() as view:
        keys = view.private_keys()
    requests = [
        body(*(envelope(log.survey, log.key, [report(1)]) for _ in range(number % 3 + 1)), bytes(200 + number))
        for number in range(250)
    ]
    surveys = {log.survey.id: log.survey}
    several = OpeningProcesses(2)(requests, surveys, keys)
    alone = open_requests(requests, surveys, keys)
    assert several.envelopes == alone.envelopes > 700
    assert several.refused == alone.refused
    assert several.rubbish == alone.rubbish == []
    assert several.sheaves.keys() == alone.sheaves.keys()
    for kind, sheaf in several.sheaves.items():
        assert sheaf.numbers == alone.sheaves[kind].numbers
        assert b"".join(sheaf.closings) == b"".join(alone.sheaves[kind].closings)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a place behind all others")
def test_openers_stand_behind_whatever_else_runs(log: Log) -> None:
    """Also the server that takes uploads: it would else wait for a processor whenever it wakes up."""
    openers, before = OpeningProcesses(2), {*active_children()}
    openers([body(bytes(300)) for _ in range(300)], {log.survey.id: log.survey}, {})
    started = {each.pid for each in {*active_children()} - before}
    assert len(started) == 2
    assert eventually(lambda: {os.sched_getscheduler(each) for each in started if each}, {os.SCHED_IDLE})


def test_what_openers_have_no_time_for_is_opened_all_the_same(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """By whoever calls, while others keep the processors busy, who waits for them once and not for each of some sixteen
    pieces; what they answer later belongs to no other call."""
    monkeypatch.setattr(opening, "MOST_SILENCE_SECONDS", 1.0)
    with log.store.view() as view:
        keys = view.private_keys()
    surveys = {log.survey.id: log.survey}
    some, others = ([body(envelope(log.survey, log.key, [report(period)])) for _ in range(300)] for period in (1, 2))
    openers, before = OpeningProcesses(2), {*active_children()}
    assert openers(some, surveys, keys).envelopes == 300
    started = [each.pid for each in {*active_children()} - before if each.pid]
    for requests in (some, others):
        for pid in started:
            os.kill(pid, signal.SIGSTOP)
        began = time.monotonic()
        starved, alone = openers(requests, surveys, keys), open_requests(requests, surveys, keys)
        assert time.monotonic() - began < 8
        for pid in started:
            os.kill(pid, signal.SIGCONT)
        assert starved.envelopes == 300
        assert {kind: sheaf.joined() for kind, sheaf in starved.sheaves.items()} == alone.sheaves
    again = openers(some, surveys, keys)
    assert {kind: sheaf.joined() for kind, sheaf in again.sheaves.items()} == open_requests(some, surveys, keys).sheaves


def test_an_opener_that_is_killed_is_replaced(log: Log) -> None:
    """The call in which that is seen fails; the next one opens everything."""
    with log.store.view() as view:
        keys = view.private_keys()
    requests, surveys = [body(bytes(300)) for _ in range(300)], {log.survey.id: log.survey}
    openers, before = OpeningProcesses(2), {*active_children()}
    assert openers(requests, surveys, keys).envelopes == 300
    victim, *_ = {*active_children()} - before
    victim.kill()
    victim.join()
    with pytest.raises((OSError, EOFError)):
        openers(requests, surveys, keys)
    assert openers(requests, surveys, keys).envelopes == 300


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


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of other processes")
def test_no_key_is_in_arguments_or_environment_of_any_process_that_a_server_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the store key, which may stand in the environment of the server alone, nor a private sealing key."""
    secret = os.urandom(32)
    monkeypatch.setenv("CHANGELING_STORE_KEY", secret.hex())
    with ServerProcess(tmp_path, "--movable-clock") as server:
        server.move_clock(START)
        store = Store.open(server.store_path, AtRest(secret))
        log = Log.of(store, survey(calendar=Calendar(START, 60, 8)))
        server.fold()
        server.move_clock(END)
        server.upload(*(envelope(log.survey, log.key, [report(8)]) for _ in range(400)))
        server.fold()
        assert log.tallies()[0, 8][0] == 400
        with store.view() as view:
            private = view.private_keys()[log.key.id].private_bytes_raw()
        started = offspring(server.process.pid)
        assert started
        for pid in started:
            shown = Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
            assert not [each for each in (secret, private) if each in shown or each.hex().encode() in shown]
        store.close()


def test_a_killed_fold_is_started_again_and_nothing_outlives_a_killed_server(tmp_path: Path) -> None:
    """Uploads are taken while it is started, and count. Whoever holds keys ends with the process that gave them."""
    with ServerProcess(tmp_path, "--movable-clock") as server:
        server.move_clock(START)
        key, asked = server.new_key(), server.new_survey()
        server.move_clock(asked.calendar.time(1) + asked.skew + asked.spread + 1)
        assert server.fold()["envelopes"] == 0
        before = set(offspring(server.process.pid))
        for pid in before:
            with suppress(ProcessLookupError):  # those that the fold had started end with it
                os.kill(pid, signal.SIGKILL)
        assert server.upload(*(envelope(asked, key, [report(1)]) for _ in range(400))) == []
        assert eventually(lambda: any(map(running, set(offspring(server.process.pid)) - before)), True)
        assert server.reports(asked) == {(0, 1): 400}
        assert eventually(lambda: server.http.get("/readyz").json()["status"], "ok")
        others = offspring(server.process.pid)
        assert others
        server.kill()
        assert eventually(lambda: any(map(running, others)), False)


@pytest.mark.heavy
@pytest.mark.parametrize("after", [0.0, 0.1])
def test_a_server_that_is_stopped_as_soon_as_it_listens_ends(tmp_path: Path, after: float) -> None:
    """Its fold's process is there before the app has started, and waits for nobody when that never comes to start."""
    words = [
        sys.executable,
        "-m",
        "changeling_commands",
        "serve",
        "--port",
        "0",
        "--store",
        str(tmp_path / "server.db"),
    ]
    (tmp_path / "authority.pub").write_text(PINNED[0].hex())
    words += ["--authority", str(tmp_path / "authority.pub")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("changeling listens on")
        time.sleep(after)
        process.terminate()
        assert process.wait(60) == 0


@pytest.mark.timed
@pytest.mark.heavy
def test_sigterm_waits_for_no_backlog(tmp_path: Path) -> None:
    """Out within five seconds of SIGTERM to all its processes; what was left in the log counts later."""
    log = Log.of(Store.open(tmp_path / "server.db"), survey(calendar=Calendar(START, 60, 8)))
    sealed = [envelope(log.survey, log.key, [report(1, id_=bytes(16))]) for _ in range(10)]
    one = envelope(log.survey, log.key, [report(8)])
    log.append(END, *([*sealed, one] * 10_000))
    with ServerProcess(tmp_path, "--movable-clock") as server:
        while waiting(log.store) == 110_000:  # pytest-timeout ends a fold that never begins
            time.sleep(0.05)
        began = time.monotonic()
        for pid in (*offspring(server.process.pid), server.process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        server.process.wait(60)
        assert time.monotonic() - began < 5
    assert waiting(log.store) > 0
    fold(log.store, END)
    assert log.tallies()[0, 1][0] == 1
    assert log.tallies()[0, 8][0] == 1
    log.store.close()


def waiting(store: Store) -> int:
    with store.view() as view:
        return view.unfolded()


def test_rubbish_goes_when_it_is_folded(log: Log) -> None:
    """What does not open is deleted at once, but not from beside what counts; the refusals tell."""
    sound = envelope(log.survey, log.key, [report(1)])
    altered = sound[:-1] + bytes([sound[-1] ^ 1])
    with log.store.transaction() as writing:
        writing.append(log.stream, [body(altered), body(sound, altered), body(altered, altered)], END * 1000)
    fold(log.store, END)
    assert log.refused() == {"unopenable": 4}
    with log.store.view() as view:
        assert [each.body for each in sorted(view.kept_requests())] == [body(sound, altered)]
    log.append_reports(END, [report(1)])
    fold(log.store, END)
    assert log.tallies()[0, 1][0] == 2


def test_a_full_store_takes_no_uploads_until_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """503 with Retry-After, and health says why; by itself it takes them again."""
    from changeling_aggregator.ingest import committer

    store = Store.open(tmp_path / "server.db")
    taking = Committer(store, lambda: float(END), most_unfolded=2)
    taking.start()
    monkeypatch.setattr(committer, "LOOK_SECONDS", 0.0)

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


def test_a_fold_rests_while_nothing_waits(log: Log) -> None:
    """An idle server asks its fold every few seconds; at once where something was appended, or the clock moved."""
    now = float(END)
    folds = FoldLoop(log.store, Registry(log.store), lambda: UnixSeconds(now))
    assert not folds._may_rest()
    folds.fold_now()
    assert folds._may_rest()
    now += REST_SECONDS
    assert not folds._may_rest()
    folds.fold_now()
    assert folds._may_rest()
    log.append_reports(END, [report(1)])
    assert not folds._may_rest()
    now -= 1
    folds.fold_now()
    now -= 1
    assert not folds._may_rest(), "the clock went back"
