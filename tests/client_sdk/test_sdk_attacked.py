"""Lives that an enemy would choose: backups, twins and thieves, a witness in place; each test is named by the claim."""

import os
import shutil
import signal
import sqlite3
import threading
import time
from dataclasses import replace
from email.utils import formatdate

import pytest
from changeling_client import Callbacks, Client, ClientError, Recorded, Silenced, Status, StoreBusy
from changeling_protocol import (
    AtMost,
    Group,
    KaryResponse,
    MutationSpace,
    ReleasePlan,
    StateSpace,
    Track,
    head_of,
    key_id,
)
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tests.coins import SeededCoins

from ..protocol.examples import AUTHORITY, PINNED, survey
from .device import LATE, PLAIN, START, TRUTHFUL, Clock, FakeServer, client, signed_key
from .loopback import serving

OTHER = PLAIN.asking(question="And what else?")


class Box:
    """A witness in the app's memory; it can be made to fail."""

    def __init__(self):
        self.kept, self.fails = None, False

    def witness(self):
        return Callbacks(lambda: self.kept, self._write)

    def _write(self, seen):
        if self.fails:
            raise OSError
        self.kept = seen


def put_back(backup, live):
    for each in [*live.glob("store.db"), *live.glob("store.db-*")]:
        each.unlink()
    for each in backup.glob("store.db*"):
        if each.is_file():
            shutil.copy(each, live / each.name)


def backed_up(live, backup):
    backup.mkdir()
    for each in live.glob("store.db*"):
        if each.is_file():
            shutil.copy(each, backup / each.name)


def ids_at(server, period):
    return {closing.id for closing in server.closings() if closing.period == period}


def test_of_two_stores_that_drew_equally_often_the_witness_admits_one(tmp_path):
    """Killed between drawing and telling the witness; an older store is put back and answers; then the killed one."""
    live, server, clock, box = tmp_path / "live", FakeServer(PLAIN), Clock(), Box()
    with client(live, server, clock, witness=box.witness()) as device:
        device.join(PLAIN.id).record("tea")
    backed_up(live, tmp_path / "old")
    clock.now, box.fails = START + 80, True
    with client(live, server, clock, witness=box.witness()) as device:
        assert "witness" in device.flush().trouble
    assert not server.bodies
    backed_up(live, tmp_path / "killed")
    box.fails = False
    for backup in ("old", "killed", "old", "killed"):
        put_back(tmp_path / backup, live)
        with client(live, server, clock, witness=box.witness()) as device:
            device.flush()
    assert len(ids_at(server, 1)) <= 1


def test_of_two_clones_with_one_witness_one_answers(tmp_path):
    """Each in a folder of its own, so that no lock keeps them apart: the second flushes while the first draws."""
    first, second, server, clock, box = tmp_path / "1", tmp_path / "2", FakeServer(PLAIN), Clock(), Box()
    with client(first, server, clock, witness=box.witness()) as device:
        device.join(PLAIN.id).record("tea")
    backed_up(first, second)
    clock.now = START + 80

    class Meanwhile(SeededCoins):
        flushed = False

        def below(self, n):
            if not self.flushed:
                self.flushed = True
                with client(second, server, clock, witness=box.witness()) as clone:
                    clone.flush()
            return super().below(n)

    told = []
    with client(first, server, clock, Meanwhile(1), witness=box.witness(), on_error=told.append) as device:
        device.flush()
        assert len(ids_at(server, 1)) == 1
        device.flush()
        assert device.join(PLAIN.id).status is Status.SILENCED
    assert len(ids_at(server, 1)) == 1
    assert [type(each) for each in told] == [Silenced]


def test_a_backup_laid_over_the_living_files_is_noticed(tmp_path):
    """As `cp -r` does it: files that are there keep their numbers, and get the old content."""
    live, server, clock = tmp_path / "live", FakeServer(PLAIN), Clock()
    with client(live, server, clock, witness=live / "witness") as device:
        device.join(PLAIN.id).record("tea")
        clock.now = START + 80
        device.flush()
    shutil.copytree(live, tmp_path / "backup")
    with client(live, server, clock, witness=live / "witness") as device:
        clock.now = START + 140
        device.flush()
    shutil.copytree(tmp_path / "backup", live, dirs_exist_ok=True)
    with client(live, server, clock, witness=live / "witness") as device:
        device.flush()
    assert len(ids_at(server, 2)) == 1


def test_a_survey_that_was_left_stays_left_though_a_backup_is_put_back(tmp_path):
    """With the witness in place, nothing is sent after it was left."""
    live, server, clock, box = tmp_path / "live", FakeServer(PLAIN), Clock(), Box()
    with client(live, server, clock, witness=box.witness()) as device:
        device.join(PLAIN.id).record("tea")
        clock.now = START + 80
        device.flush()
    backed_up(live, tmp_path / "old")
    with client(live, server, clock, witness=box.witness()) as device:
        device.leave(PLAIN.id)
    put_back(tmp_path / "old", live)
    clock.now, sent = START + 140, len(server.bodies)
    with client(live, server, clock, witness=box.witness()) as device:
        assert device.join(PLAIN.id).record("coffee") is Recorded.DROPPED
        device.flush()
    assert len(server.bodies) == sent


def test_consent_that_was_withdrawn_stays_withdrawn_though_a_backup_is_put_back(tmp_path):
    """Also where it is given again: the surveys of before stay left."""
    live, server, clock, box = tmp_path / "live", FakeServer(PLAIN), Clock(), Box()
    with client(live, server, clock, witness=box.witness()) as device:
        device.join(PLAIN.id).record("tea")
        clock.now = START + 80
        device.flush()
    backed_up(live, tmp_path / "old")
    client(live, server, clock, witness=box.witness(), consent=False).close()
    put_back(tmp_path / "old", live)
    clock.now, sent = START + 140, len(server.bodies)
    with client(live, server, clock, witness=box.witness()) as device:
        device.join(PLAIN.id)
        device.flush()
    assert len(server.bodies) == sent


def test_what_a_lost_store_has_spent_counts_on(tmp_path):
    """The witness outlives the store, and the sum of all surveys stays within max_epsilon."""
    live, server, clock, box = tmp_path / "live", FakeServer(PLAIN, OTHER), Clock(), Box()
    most = PLAIN.epsilon * 3 / 2
    with client(live, server, clock, witness=box.witness(), max_epsilon=most) as device:
        device.join(PLAIN.id).record("tea")
        clock.now = START + 80
        device.flush()
    put_back(tmp_path, live)  # nothing: the store is gone
    with client(live, server, clock, witness=box.witness(), max_epsilon=most) as device:
        assert device.ledger().spent == PLAIN.epsilon
        with pytest.raises(ClientError, match="above"):
            device.join(OTHER.id)


def cohort(space):
    plan = ReleasePlan((Group((Track(1, KaryResponse(space, TRUTHFUL), 0, 8),)),))
    return survey(plan, constraint=AtMost(2), closed=True, grace=10**6)


@pytest.mark.parametrize("space", [MutationSpace(3), StateSpace(3), StateSpace(3, null=False)])
def test_nobody_is_inserted_late_into_a_closed_cohort(tmp_path, space):
    """The survey is asked for in its first period, and comes in the third, as does the first answer: the cost counts
    with answers from the first period on."""
    asked = cohort(space)
    server, clock = FakeServer(asked), Clock(START + 1)
    with client(tmp_path, server, clock, strict=False) as device:
        handle = device.join(asked.id, signed=None)
        clock.now = START + 130
        handle.record("tea")
        device.flush()
        clock.now = LATE
        device.flush()
        assert handle.status is Status.REFUSED
    assert not server.bodies


@pytest.mark.parametrize("brings", [True, False])
def test_what_counts_nothing_goes_to_loopback_alone(tmp_path, brings):
    """Surveys of a client for development are not counted, so a relay elsewhere must not get them."""
    relayed = replace(PLAIN, relay="https://relay.example")
    server, clock = FakeServer(relayed), Clock()
    with client(tmp_path, server, clock, url="http://127.0.0.1:1", development=True) as device:
        device.join(relayed.id, **({} if brings else {"signed": None})).record("tea")
        clock.now = START + 80
        device.flush()
        device.flush()
        assert server.bodies
        assert device.ledger().spent == relayed.epsilon


@pytest.mark.parametrize("known", [True, False])
def test_with_a_key_no_length_hangs_on_an_answer(tmp_path, known):
    """Of a survey that is not known yet the answers themselves wait; of one that is, their numbers."""
    answers = tuple(f"{number}" * (1 + number % 7) for number in range(200))
    space = MutationSpace(200)
    asked = survey(
        ReleasePlan((Group((Track(1, KaryResponse(space, TRUTHFUL), 0, 8),)),)), answers=answers, grace=10**6
    )
    server, clock, lengths = FakeServer(asked), Clock(), set()
    for number in (0, 6, 127, 128, 199):
        folder = tmp_path / f"{number}"
        with client(folder, server, clock, key=b"k" * 32) as device:
            handle = device.join(asked.id, **({} if known else {"signed": None}))
            handle.record(answers[number])
            with device.store.transaction() as db:
                lengths.add(db.execute("SELECT length(private) FROM entries").fetchone())
    assert len(lengths) == 1


def test_after_a_flush_no_answer_that_was_changed_is_in_any_file(tmp_path):
    """Nothing need be due."""
    server, clock = FakeServer(PLAIN), Clock()
    with client(tmp_path, server, clock, key=b"k" * 32) as device:
        handle = device.join(PLAIN.id)
        handle.record("tea")
        with device.store.transaction() as db:
            (before,) = db.execute("SELECT private FROM entries").fetchone()
        handle.record("coffee")
        device.flush()
        assert not [each for each in tmp_path.iterdir() if each.is_file() and before in each.read_bytes()]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_that_is_forked_in_the_middle_of_drawing_sends_nothing_of_it(tmp_path):
    """By a signal handler, say, after which both go on: one of them answers."""
    server, clock = FakeServer(PLAIN), Clock()
    reader, writer = os.pipe()

    class Forking(SeededCoins):
        child = None

        def below(self, n):
            if self.child is None:
                self.child = os.fork()
            return os.urandom(8)[0] % n

    coins = Forking(1)
    device = client(tmp_path, server, clock)
    device.join(PLAIN.id).record("tea")
    clock.now, device._device.coins = START + 80, coins
    try:
        device.flush()
        device.flush()
    except ClientError:
        pass
    finally:
        if coins.child == 0:
            os.write(writer, b"".join(ids_at(server, 1)))
            os._exit(0)
    os.waitpid(coins.child, 0)
    os.close(writer)
    sent = os.read(reader, 99)
    assert len(ids_at(server, 1)) == 1
    assert sent in (b"", *ids_at(server, 1))
    device.close()
    with client(tmp_path, server, clock) as device:
        assert device.join(PLAIN.id).answer() == "tea"
        device.flush()
    assert len(ids_at(server, 1)) == 1


def interrupted(device, handler):
    """Runs the handler in the middle of a record's transaction."""

    def handle(*_):
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        handler()

    signal.signal(signal.SIGUSR1, handle)
    clock = device._device.settings.clock
    from changeling_client import recording

    genuine = recording.record

    def record(*args, **options):
        signal.raise_signal(signal.SIGUSR1)
        return genuine(*args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recording, "record", record)
        yield clock


def test_a_signal_handler_that_records_and_closes_loses_nothing(tmp_path):
    """As on SIGTERM, in the middle of a record: both are on disk."""
    server, clock = FakeServer(PLAIN), Clock()
    device = client(tmp_path, server, clock)
    handle = device.join(PLAIN.id, entries=2)

    def handler():
        assert handle.record("coffee", 1) is Recorded.PENDING
        device.close()

    for _ in interrupted(device, handler):
        assert handle.record("tea", 0) is Recorded.COUNTED
    with client(tmp_path, server, clock) as device:
        handle = device.join(PLAIN.id, entries=2)
        assert [handle.answer(0), handle.answer(1)] == ["tea", "coffee"]


def test_a_signal_handler_that_looks_at_the_store_loses_no_record(tmp_path):
    """What it may not see in the middle of a transaction it is told so, and what it records is kept."""
    server, clock = FakeServer(PLAIN), Clock()
    device = client(tmp_path, server, clock)
    handle = device.join(PLAIN.id, entries=3)

    def handler():
        handle.record("coffee", 1)
        with pytest.raises(StoreBusy):
            device.ledger()
        handle.record("neither", 2)

    for _ in interrupted(device, handler):
        assert handle.record("tea", 0) is Recorded.COUNTED
    assert [handle.answer(entry) for entry in range(3)] == ["tea", "coffee", "neither"]
    device.close()


@pytest.mark.xfail(strict=True, reason="whoever leaves waits for what its own process sends, not for another's")
def test_nothing_is_sent_once_another_process_has_left(tmp_path):
    """Two clients of one store, as processes have them: the one leaves while the other is about to send."""
    server, clock = FakeServer(PLAIN), Clock()
    first, second = client(tmp_path, server, clock), client(tmp_path, server, clock)
    first.join(PLAIN.id).record("tea")
    clock.now, sent = START + 80, []
    server_then = first._device._servers.at("https://statistics.example")
    upload = server_then.upload

    def about_to(envelopes, deadline):
        leaving = threading.Thread(target=second.leave, args=(PLAIN.id,))
        leaving.start()
        leaving.join(30)
        sent.append(leaving.is_alive())
        return upload(envelopes, deadline)

    server_then.upload = about_to
    first.flush()
    assert sent == [True] or not server.bodies
    first.close()
    second.close()


@pytest.mark.xfail(strict=True, reason="keys are valid by the device's time less its lead, which a server makes up")
def test_a_server_whose_clock_is_behind_does_not_bring_back_a_key_that_has_expired(tmp_path):
    """Whoever got hold of an old key could open what is sealed to it."""
    server, clock = FakeServer(PLAIN), Clock()
    old = X25519PrivateKey.from_private_bytes(b"o" * 32)
    server.keys = [signed_key(old, 0, START - 10**6)]
    with client(tmp_path, server, clock) as device:
        device.join(PLAIN.id).record("tea")
        clock.now = START + 80
        device.flush()
        server.headers = {"date": formatdate(START - 2 * 10**6, usegmt=True)}
        clock.now = START + 200
        device.flush()
        device.flush()
    stale = key_id(old.public_key().public_bytes_raw())
    assert not [envelope for envelope in server.envelopes if head_of(envelope).key == stale]


ONE_PERIOD = pytest.mark.xfail(strict=True, reason="nothing tells a leap by one period from a period that has passed")


@pytest.mark.parametrize("ahead", [pytest.param(60, marks=ONE_PERIOD), 120, 10**9])
def test_a_clock_that_leapt_answers_no_node_before_the_server_told_the_time(tmp_path, ahead):
    """Also by no more than a period."""
    server, clock = FakeServer(PLAIN), Clock(START + 1)
    with client(tmp_path, server, clock) as device:
        handle = device.join(PLAIN.id)
        clock.now = START + 30 + ahead
        server.headers = {"date": formatdate(START + 30, usegmt=True)}
        device.flush()
        assert handle.ledger().answered_period == 0


def test_withdrawing_can_be_tried_again_when_the_store_was_busy(tmp_path, monkeypatch):
    """It has raised, and nothing was wiped; nothing is recorded or sent meanwhile."""
    monkeypatch.setattr("changeling_client.store.BUSY_SECONDS", 0.05)
    server, clock = FakeServer(PLAIN), Clock()
    with client(tmp_path, server, clock) as device:
        handle = device.join(PLAIN.id)
        handle.record("tea")
        held = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
        held.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusy):
            device.set_consent(False)
        assert handle.record("coffee") is Recorded.DROPPED
        clock.now = START + 80
        device.flush()
        held.close()
        device.set_consent(False)
        device.set_consent(True)
        assert handle.status is Status.LEFT
    assert not server.requests


@pytest.mark.parametrize("now", [float("nan"), float("inf"), -float("inf"), 1e300, -1e300, 1e19, -5.0])
def test_no_clock_makes_a_record_fail(tmp_path, now):
    """Whatever it shows, a record is kept, and raises nothing but a ClientError."""
    server, clock = FakeServer(PLAIN), Clock()
    server.headers = {}
    with client(tmp_path, server, clock, strict=False) as device:
        known, unknown = device.join(PLAIN.id), device.join(OTHER.id, signed=None)
        clock.now = now
        for handle in (known, unknown):
            assert handle.record("tea") is not Recorded.DROPPED
        device.flush()
        clock.now = START + 1
        assert known.answer() == "tea"


@pytest.mark.timed
def test_a_slow_server_takes_no_time_from_another(tmp_path):
    """Whatever it does, what goes elsewhere is sent in the same flush, and not dropped at last."""
    slow, quick = replace(PLAIN, relay="https://a.example"), replace(OTHER, relay="https://z.example")
    server, clock, hosts = FakeServer(slow, quick), Clock(), []

    def crawl(request):
        hosts.append(request.url.host)
        if request.url.host == "a.example":
            time.sleep(0.7)

    with client(tmp_path, server, clock) as device:
        device.join(slow.id)
        device.join(quick.id)
        server.reply, clock.now = crawl, START + 80
        assert device.flush(0.5).sent == 1
    assert hosts.count("z.example") == 2


class Hanging:
    """A server that hears an upload and does not answer it until it is told to."""

    def __init__(self, server):
        self.server, self.asked, self.answers = server, threading.Event(), threading.Event()
        server.reply = self._reply

    def _reply(self, request):
        if request.method == "POST" and not self.asked.is_set():
            self.asked.set()
            self.answers.wait(100)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_works_on_though_the_parent_was_sending(tmp_path):
    """It flushes and leaves, and waits for no thread that it has not."""
    server, clock = FakeServer(PLAIN), Clock()
    device, hanging = client(tmp_path, server, clock), Hanging(server)
    device.join(PLAIN.id).record("tea")
    clock.now = START + 80
    flushing = threading.Thread(target=device.flush)
    flushing.start()
    assert hanging.asked.wait(100)
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(60)
        try:
            device.leave(PLAIN.id)
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    hanging.answers.set()
    flushing.join()
    device.close()
    assert status == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("call", ["record", "status", "answer", "ledger"])
def test_reporting_goes_on_in_a_process_that_became_a_daemon(tmp_path, call):
    """It forks, its parent ends, and joins nothing again: any call of a handle that it had begins the thread."""
    clock, heard = Clock(), threading.Event()

    def behave(connection, _stop):
        if connection.request().startswith(b"GET /v1/keys"):
            heard.set()

    def app(url):
        options = {"authority": PINNED, "max_epsilon": 10**6, "witness": None, "clock": clock}
        client = Client(path=tmp_path / "store.db", server=url, **options)
        handle = client.join(PLAIN.id, signed=PLAIN.signed_by(AUTHORITY))
        calls = {"record": lambda: handle.record("tea"), "status": lambda: handle.status}
        calls |= {"answer": handle.answer, "ledger": handle.ledger}
        client.flush()
        if os.fork() == 0:
            os.setsid()
            clock.now = START + 80  # only now is anything due
            calls[call]()
            time.sleep(10)
        os._exit(0)

    with serving(behave) as server:
        child = os.fork()
        if child == 0:
            try:
                app(server.url)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert heard.wait(9), "nobody asked for the keys"


def test_a_signal_handler_may_leave_while_its_thread_sends(tmp_path):
    """What is under way ends, and nobody waits for ever."""
    server, clock = FakeServer(PLAIN), Clock()
    device, hanging = client(tmp_path, server, clock), Hanging(server)
    handle = device.join(PLAIN.id)
    handle.record("tea")
    clock.now = START + 80

    class Stuck(Exception):
        pass

    def stuck(*_):
        raise Stuck

    signal.signal(signal.SIGUSR1, lambda *_: device.leave(PLAIN.id))
    signal.signal(signal.SIGALRM, stuck)
    main = threading.get_ident()

    def later():
        hanging.asked.wait(100)
        time.sleep(0.3)  # until the flush waits
        signal.pthread_kill(main, signal.SIGUSR1)

    threading.Thread(target=later).start()
    signal.alarm(60)
    device.flush()
    signal.alarm(0)
    hanging.answers.set()
    assert handle.status is Status.LEFT
    device.close()
