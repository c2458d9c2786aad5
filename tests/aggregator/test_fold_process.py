"""The fold against the contract of fold engines, here and in processes of its own; killed, told to end, beside others;
what it never shows; and `changeling fold`."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, nullcontext, suppress
from multiprocessing import active_children
from pathlib import Path
from typing import TypeAlias

import pytest
from changeling_aggregator import FoldDied, StoreError, opening
from changeling_aggregator.fold import (
    FoldEngine,
    FoldProcess,
    FoldReport,
    Opened,
    OpeningProcesses,
    SeenIds,
    TallyDifference,
    check,
    fold,
    open_requests,
)
from changeling_aggregator.ingest import Registry
from changeling_aggregator.server import FoldLoop, MovableClock, ServerSettings, Service, health, service
from changeling_aggregator.store import AtRest, Store, TokenScope
from changeling_aggregator.testing import FoldEngineContract, sql
from changeling_aggregator.testing.services import small_bucket
from changeling_aggregator.testing.serving import command_of, offspring, running
from changeling_commands import main as run
from changeling_protocol import Calendar, UnixSeconds

from ..contracts.stores import PLACES
from ..protocol.examples import PINNED, survey
from .devices import END, START, Log, body, envelope, report
from .serving import ServerProcess, eventually, in_process


class Embedded:
    """The fold of this process."""

    def __init__(self, store: Store) -> None:
        self._store, self._seen = store, SeenIds()

    def await_start(self) -> None:
        """It needs no start."""

    def fold(self, now: UnixSeconds, *, closing: bool) -> FoldReport:
        return fold(self._store, now, closing=closing, seen=self._seen)

    def close(self) -> None:
        """Nothing runs."""


class TestEmbeddedFold(FoldEngineContract):
    """On each database, and with a log in a bucket."""

    @pytest.fixture(params=[*PLACES, "bucket"])
    def where(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    @pytest.fixture
    def store(self, where: str, request: pytest.FixtureRequest) -> Iterator[Store]:
        with closing(PLACES[where if where in PLACES else "sqlite"](request).open()) as store:
            yield store

    @pytest.fixture
    def place(self, where: str) -> Iterator[str | None]:
        with small_bucket() if where == "bucket" else nullcontext() as bucket:
            yield bucket and bucket.place

    @pytest.fixture
    def engine(self, store: Store) -> FoldEngine:
        return Embedded(store)


def test_a_fold_in_a_process_of_its_own_counts_the_same(store: Store) -> None:
    """By the same code, whose log lies in a file; and stands by while another folds."""
    engine = FoldProcess(store.place, store.at_rest)
    FoldEngineContract().test_it_counts_what_the_reference_counts(store, engine, None)
    engine.close()


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
    (folding,) = (each for each in active_children() if each.name == "fold")
    folding.kill()
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
RUBBISH = [body(bytes(300)) for _ in range(300)]


@pytest.fixture(scope="module")
def openers() -> Iterator[Openers]:
    """Two processes that open, and their numbers."""
    several, before = OpeningProcesses(2), {*active_children()}
    several.start()
    several(RUBBISH, {}, {})
    yield several, [each.pid for each in {*active_children()} - before if each.pid]
    for each in {*active_children()} - before:
        each.kill()  # one may wait for a lock that the killed one had, and keep this process from ending


def both(log: Log, openers: Openers, requests: list[bytes]) -> tuple[Opened, Opened]:
    """What they open, and what one process does; the same uploads in the same order."""
    with log.store.view() as view:
        needs = {log.survey.id: log.survey}, view.private_keys()
    several, alone = openers[0](requests, *needs), open_requests(requests, *needs)
    assert {kind: sheaf.joined() for kind, sheaf in several.sheaves.items()} == alone.sheaves
    return several, alone


def test_little_is_opened_without_starting_processes() -> None:
    """Which would take longer than opening it."""
    before = {*active_children()}
    assert OpeningProcesses(2)(RUBBISH * 4, {}, {}).envelopes == 1200
    assert {*active_children()} == before


def test_openers_give_what_one_process_gives(log: Log, openers: Openers) -> None:
    """In the same order, whatever is refused, however the requests are cut into pieces."""
    requests = [
        body(*(envelope(log.survey, log.key, [report(1)]) for _ in range(number % 3 + 1)), bytes(200 + number))
        for number in range(250)
    ]
    several, alone = both(log, openers, requests)
    assert several.envelopes == alone.envelopes > 700
    assert (several.refused, several.rubbish) == (alone.refused, [])


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
    some, others = ([body(envelope(log.survey, log.key, [report(period)])) for _ in range(300)] for period in (1, 2))
    for requests in (some, others):
        for pid in openers[1]:
            os.kill(pid, signal.SIGSTOP)
        began = time.monotonic()
        assert both(log, openers, requests)[0].envelopes == 300
        assert time.monotonic() - began < 8
        for pid in openers[1]:
            os.kill(pid, signal.SIGCONT)
    both(log, openers, some)


def test_an_opener_that_is_killed_is_replaced(openers: Openers) -> None:
    """The call in which that is seen, which the others may be too quick for, fails; others open what comes next."""
    os.kill(openers[1][0], signal.SIGKILL)
    assert eventually(lambda: running(openers[1][0]), False)

    def open_until_it_is_seen() -> None:
        while True:
            assert openers[0](RUBBISH, {}, {}).envelopes == 300

    with pytest.raises((OSError, EOFError)):
        open_until_it_is_seen()
    assert openers[0](RUBBISH * 10, {}, {}).envelopes == 3000
    assert {each.pid for each in active_children()} - {*openers[1]}


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
        log = Log.of(Store.open(server.store_path, AtRest(secret)), survey())
        server.move_clock(END)
        log.append(END, *[envelope(log.survey, log.key, [report(8)])] * 4000)  # more than is opened without processes
        server.fold()
        assert log.tallies()[0, 8][0] == 1
        with log.store.view() as view:
            private = view.private_keys()[log.key.id].private_bytes_raw()
        with encrypted.view() as view, pytest.raises(StoreError):
            view.private_keys()
        before = set(offspring(server.process.pid))
        folding = [pid for pid in before if b"spawn_main" in command_of(pid)]
        assert len(folding) > 1 or os.cpu_count() == 1
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


def test_a_server_that_does_not_fold_tells_how_long_nobody_has(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Degraded once that is long, with 200 as it takes uploads; well again once another process has folded."""
    monkeypatch.setattr(service, "EVERY_SECONDS", 0.02)
    log = Log.of(store, survey())
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


LONG_AGO = 1_700_000_480


@pytest.fixture
def old_log(store: Store) -> Log:
    """Of a survey that ended then: the command goes by the true time."""
    return Log.of(store, survey(calendar=Calendar(LONG_AGO - 480, 60, 8)))


def test_the_command_folds_once_and_names_a_tally_that_the_log_does_not_give(
    old_log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says what it did. `--check` has a line for a survey, with no tally, and ends with 1; else with 0."""
    monkeypatch.setattr("signal.signal", lambda *_: None)  # of this process
    words = ["fold", "--store", str(tmp_path / "server.db")]
    old_log.append_reports(LONG_AGO, [report(1), report(2)])
    fold(old_log.store, LONG_AGO, closing=False)
    assert run([*words, "--check"]) == 0
    assert capsys.readouterr().out == "folding the kept log again comes to the same\n"
    sql(old_log.store, "UPDATE tallies SET reports = 7 WHERE track = 0 AND node = 2")
    assert check(old_log.store) == [TallyDifference(old_log.survey.id, 1, 0, 6)]
    assert run([*words, "--check"]) == 1
    said = f"survey {old_log.survey.id.hex()}: 1 nodes and 0 closings differ from what is stored, by 6 at most\n"
    assert capsys.readouterr().out == said
    old_log.append_reports(LONG_AGO, [report(3), report(4, 200)])
    assert run(words) == 0
    assert capsys.readouterr().out == "1 envelopes, 1 reports; refused: 1 symbol-out-of-range\n"
    assert old_log.tallies()[0, 3][0] == 1


def test_a_check_shows_no_difference_below_the_surveys_minimum(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would be a count that nobody may see, as after a restore, where nothing is counted again."""
    monkeypatch.setattr("signal.signal", lambda *_: None)
    old_log = Log.of(store, survey(calendar=Calendar(LONG_AGO - 480, 60, 8), minimum=5))
    old_log.append_reports(LONG_AGO, [report(1), report(2)])
    fold(old_log.store, LONG_AGO, closing=False)
    sql(old_log.store, "DELETE FROM log")
    sql(old_log.store, "UPDATE cursors SET deleted = position")
    assert run(["fold", "--store", str(tmp_path / "server.db"), "--check"]) == 1
    assert "2 nodes and 2 closings differ" in (said := capsys.readouterr().out)
    assert said.endswith("by fewer reports than its minimum\n")


@pytest.mark.heavy
def test_the_command_follows_until_it_is_told_to_end(old_log: Log, tmp_path: Path) -> None:
    """What is appended counts within seconds."""
    words = ["-m", "changeling_commands", "fold", "--store", str(tmp_path / "server.db"), "--follow"]
    with subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True) as following:
        try:
            assert following.stdout
            assert following.stdout.readline().startswith("changeling folds")
            old_log.append_reports(LONG_AGO, [report(1)])
            assert eventually(lambda: old_log.tallies().get((0, 1), (0,))[0], 1)
        finally:
            following.terminate()
        assert following.wait(200) == 0
