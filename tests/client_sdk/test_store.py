"""The store: sound or silent, durable, and free of what was erased."""

import errno
import os
import resource
import sqlite3
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random

import pytest
from changeling_client import Client, Recorded, StoreBusy, StoreFull, StoreReadOnly, StoreUnusable
from changeling_client.testing import stored
from changeling_protocol import AtMost, KaryResponse, MutationSpace, Track, head_of
from changeling_protocol.wire import UPLOADS

from tests.coins import SeededCoins

from ..protocol.examples import hierarchical, joint_plan, survey
from .device import (
    LATE,
    PLAIN,
    START,
    TRUTHFUL,
    Clock,
    FakeServer,
    answering,
    asking,
    client,
    ended,
    forked,
    on_disk,
    options,
)


def opened(file, key=None):
    """A client of the store in this file."""
    return Client(**options(path=file, key=key))


@pytest.fixture
def used(tmp_path):
    """A closed store with a survey and an answer."""
    with client(tmp_path, FakeServer(PLAIN), Clock()) as device:
        device.join(PLAIN.id).record("tea")
    return tmp_path / "store.db"


def marked(name, change):
    """Changes a number in the file's head."""

    def damage(file):
        with closing(sqlite3.connect(file)) as connection:
            (number,) = connection.execute(f"PRAGMA {name}").fetchone()
            connection.execute(f"PRAGMA {name} = {number + change}")

    return damage


def cut(size):
    return lambda file: os.truncate(file, size)


def torn(file):
    content = bytearray(file.read_bytes())
    for page in range(4096, len(content), 4096):
        content[page : page + 64] = b"\xaa" * 64
    file.write_bytes(content)


DAMAGES = {
    "empty": cut(0),
    "cut within the header": cut(50),
    "cut after a page": cut(4096),
    "torn pages": torn,
    "text": lambda file: file.write_text("not a database, but long enough to be read as the header of one" * 20),
    "of a later version": marked("user_version", 1),
    "of an earlier commit, with one byte where slots have two": marked("user_version", -1),
    "of another application": marked("application_id", 7),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_store_that_is_not_sound_means_silence(used, name):
    """It raises StoreUnusable each time, is left as it is, and no fresh one is made in its place."""
    DAMAGES[name](used)
    before = used.read_bytes()
    for _ in range(2):
        with pytest.raises(StoreUnusable, match=str(used)):
            opened(used)
    assert used.read_bytes() == before


def test_a_folder_that_is_missing_is_made(tmp_path):
    """With those above it, so that an app's first launch needs no installer; folder and files, which hold answers and
    show when they were written, are their owner's alone. Beside the store there is an empty lock."""
    folder = tmp_path / "above" / "missing"
    opened(folder / "store.db").close()
    assert {file.name for file in folder.iterdir()} == {"store.db", "store.db.lock"}
    assert (folder / "store.db.lock").read_bytes() == b""
    if os.name == "posix":
        assert not any(each.stat().st_mode & 0o077 for each in (folder, *folder.iterdir()))


def test_where_no_folder_can_be_made_the_error_says_so(tmp_path):
    """No bare OSError reaches the app."""
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(StoreReadOnly, match=r"no store can be made at .*taken"):
        opened(tmp_path / "taken" / "store.db")


def test_every_commit_is_on_disk(used):
    """Write-ahead log, synchronous=FULL, secure deletion and foreign keys hold on every connection."""
    names = ("journal_mode", "synchronous", "secure_delete", "foreign_keys")
    with client(used.parent, FakeServer(), Clock()) as device, device.store.transaction() as db:
        assert [db.execute(f"PRAGMA {name}").fetchone()[0] for name in names] == ["wal", 2, 1, 1]


WEEKLY = asking(Track(1, KaryResponse(MutationSpace(3), TRUTHFUL), 0, 8), constraint=AtMost(50))
"""Every period that closes forgets the mutations before its last one."""


KEY = b"K" * 32
"""Under a key every piece is written under a nonce of its own, so that old ones can be told from new."""


def pieces(device, *others) -> set[bytes]:
    """What the store keeps of its entries' answers, and in other columns, as it stands in the file: so it can be looked
    for there."""
    query = " UNION ".join(f"SELECT {each}" for each in ("private FROM entries", "reports FROM closings", *others))
    with device.store.transaction() as db:
        return {piece for (piece,) in db.execute(query)}


IDS = "id FROM closings WHERE id != x''"
"""Those that are not acknowledged yet."""


@pytest.mark.heavy
def test_what_is_erased_is_in_no_gap_of_a_page(tmp_path, begin):
    """SQLite overwrites what it deletes, not what it leaves behind as it splits and merges pages: over the life of
    hundreds of entries that grow and move about, nothing is left in database or log, while it is open, that has been
    overwritten, nor an id that was acknowledged."""
    chance = Random(2)  # without VACUUM every seed that was tried leaves some behind
    asked = [WEEKLY.asking(question=f"q{number}") for number in range(5)]
    device, server, clock = begin(*asked, max_epsilon=10**6, key=KEY)
    past = set()
    flushed = device.flush()
    sizes = {device.join(each.id, entries=size): size for each in asked for size in [chance.randint(1, 200)]}
    for moment in range(0, 320, 20):
        clock.now = START + moment
        for handle, size in sizes.items():
            for _ in range(chance.randint(1, size)):
                clock.now += 0.01
                handle.record(chance.choice(WEEKLY.answers), chance.randrange(size))
            past |= pieces(device, IDS)
        content = on_disk(tmp_path)
        assert all(piece in content for piece in pieces(device, IDS))
        server.reply = answering(503) if chance.random() < 0.3 else lambda _: None
        waited, flushed = flushed.waiting, device.flush()
        if not flushed.sent and flushed.waiting == waited:
            continue  # nothing was answered, so nothing is rewritten
        content = on_disk(tmp_path)
        kept = pieces(device, IDS)
        assert not [each for each in past - kept if each in content]
        past |= kept
    assert len(past) > 300


class Crowded:
    """A connection to a disk that has no room for a second copy of the store."""

    def __init__(self, connection):
        self._connection = connection

    def __getattr__(self, name):
        return getattr(self._connection, name)

    def execute(self, statement, *values):
        if statement == "VACUUM":
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorname = "SQLITE_FULL"
            raise error
        return self._connection.execute(statement, *values)


@contextmanager
def crowded(device):
    roomy = device.store._connection
    device.store._connection = Crowded(roomy)
    yield
    device.store._connection = roomy


@contextmanager
def read_for_long(device):
    with closing(sqlite3.connect(device.store.file, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM entries").fetchone()
        yield
        reader.execute("COMMIT")


@pytest.mark.timed
@pytest.mark.parametrize("hindered", [crowded, read_for_long])
def test_what_cannot_be_erased_now_stalls_nothing_and_is_erased_later(tmp_path, joined, hindered):
    """On a full disk, or while somebody reads an older state: records and flushes go on at once, and the next flush
    erases, though nothing new is due."""
    handle, device, *_ = joined(WEEKLY, key=KEY)
    handle.record("tea")
    (forgotten,) = pieces(device)
    with hindered(device):
        begun = time.monotonic()
        assert device.at(START + 80).flush().sent == 1
        assert handle.record("coffee") is Recorded.COUNTED
        took = time.monotonic() - begun
        assert forgotten not in pieces(device)
        assert forgotten in on_disk(tmp_path)
    assert device.flush().sent == 0
    assert forgotten not in on_disk(tmp_path)
    assert took < 2  # a wait for the reader is one of BUSY_SECONDS, 5


def test_states_are_forgotten_when_no_open_node_needs_them(joined):
    """While (4, 8] is open the states at 4 and after are kept; at the end nothing."""
    handle, device, _, clock = joined(PLAIN)
    kept = []
    answers = {1: "tea", 3: "coffee", 6: "neither"}
    for period in range(1, 9):
        if period in answers:
            clock.now = START + 60 * period - 50
            handle.record(answers[period])
        device.at(START + 60 * period + 20).flush()
        ((entry, _),) = stored(device, PLAIN.id)
        kept.append([state for _, state in entry.held[0].states])
    assert handle.answer() is None
    assert kept == [[1]] * 2 + [[1, 2]] + [[2]] * 2 + [[2, 3]] * 2 + [[]]


def test_after_the_end_the_files_are_the_same_byte_for_byte_whatever_was_recorded(tmp_path, joined, monkeypatch):
    """Main file and log: no row, freed page or counter is left of the changelog, the counts or the nodes drawn. The
    number by which a witness knows the store, which is drawn as it is made, is the same in all of them here."""
    monkeypatch.setattr(os, "urandom", bytes)
    asked, files = survey(joint_plan(3, 8), grace=10**6), []
    flushes = {60 * period + 20 for period in range(1, 8)}
    for life in ({}, {10: "tea"}, {10: "tea", 200: "coffee", 300: None, 310: "tea"}, {470: "neither"}):
        folder = tmp_path / f"{len(files)}"
        handle, device, *_ = joined(asked, folder=folder.name, coins=SeededCoins(5))
        for second in sorted({*life, *flushes}):
            device.at(START + second)
            if second in life:
                handle.retract() if life[second] is None else handle.record(life[second])
            if second in flushes:
                device.flush()
        assert device.at(LATE).flush().waiting == 0
        files.append({path.name: path.read_bytes() for path in folder.iterdir() if not path.name.endswith("-shm")})
        device.close()
    assert all(each == files[0] for each in files)
    assert files[0]["store.db-wal"] == b""


def test_threads_share_a_client(joined):
    """Records and flushes from four threads at once neither fail nor lose anything."""
    handle, device, server, clock = joined(PLAIN, entries=40)
    clock.now = START + 80

    def work(first):
        for entry in range(first, 40, 4):
            handle.record("tea", entry)
            device.flush()

    with ThreadPoolExecutor(4) as threads:
        assert [*threads.map(work, range(4))] == [None] * 4
    assert [handle.answer(entry) for entry in range(40)] == ["tea"] * 40
    assert device.flush().waiting == 0
    symbols = {}
    for answered, reports in server.answers():
        assert symbols.setdefault(answered.id, reports) == reports
    assert len(symbols) == 40


def test_a_survey_that_cannot_be_read_silences_no_other(used, begin):
    """Such as one that this version refuses: it is silent, and whoever asks for it is told; the others go on."""
    with closing(sqlite3.connect(used)) as connection:
        connection.execute("UPDATE surveys SET payload = x'c1'")
        connection.commit()
    device, server, clock = begin(PLAIN, WEEKLY)
    assert device.join(WEEKLY.id).record("tea") is Recorded.COUNTED
    handle = device.join(PLAIN.id)
    for asked in (lambda: handle.survey, lambda: handle.record("tea"), handle.answer):
        with pytest.raises(StoreUnusable, match="a survey that cannot be read"):
            asked()
    assert device.at(START + 80).flush().sent == 1
    assert {head_of(envelope).survey for envelope in server.envelopes} == {WEEKLY.id}
    assert device._device.next_due_ms() > 1000 * clock.now
    assert device.ledger().spent == PLAIN.epsilon + WEEKLY.epsilon


@pytest.mark.skipif(not hasattr(os, "setuid") or os.geteuid() != 0, reason="another user can be had by root only")
@pytest.mark.parametrize("what", ["a folder", "a file"])
def test_where_nothing_may_be_written_the_error_says_so(what):
    """A folder in which no file can be made, or a file of somebody else's: StoreReadOnly, with its name."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        file = Path(folder) / "store.db"
        if what == "a file":
            opened(file).close()
            file.chmod(0o644)

        def act():
            os.setuid(65_534)
            with pytest.raises(StoreReadOnly, match=str(file)):
                opened(file).join(PLAIN.id)

        assert ended(forked(act)) == 0


def test_where_there_is_no_room_the_error_says_so_and_nothing_is_changed(joined):
    """StoreFull from whatever writes; with room again all goes on."""
    handle, device, server, clock = joined(WEEKLY, entries=400)
    handle.record("tea")
    connection = device.store._connection
    connection.execute("PRAGMA max_page_count = 1")  # as many as there are
    with pytest.raises(StoreFull, match=r"no room for .*store\.db"):
        device.join(b"another survey..", entries=5_000, signed=None)
    assert device._device.find(b"another survey..") is None
    assert (handle.answer(), device.ledger().spent) == ("tea", WEEKLY.epsilon)
    clock.now = START + 80
    with pytest.raises(StoreFull):
        device.flush()
    connection.execute("PRAGMA max_page_count = 1000000")
    assert device.flush().sent == 400
    assert len({closing.id for closing in server.closings()}) == 400


def test_under_a_key_no_answer_stands_in_the_file_as_it_is(tmp_path, joined):
    """Neither states, slots, and answers that wait for a survey, nor symbols: pieces that a store without a key has are
    found in none with one."""
    known = None
    for folder, key in (("plain", None), ("sealed", KEY)):
        handle, device, server, _ = joined(WEEKLY, folder=folder, key=key, coins=SeededCoins(3), now=START + 1)
        server.reply = answering(503, on=UPLOADS)
        device.join(b"unknown survey..", signed=None).record("an answer to a survey that is not known")
        handle.record("tea")
        assert device.at(START + 80).flush().waiting == 1
        handle.record("coffee")
        known = known or pieces(device)
        assert handle.answer() == "coffee"
        device.close()
    plain, seals = on_disk(tmp_path / "plain"), on_disk(tmp_path / "sealed")
    assert len(known) == 3
    assert all(piece in plain for piece in known)
    assert not any(piece in seals for piece in (*known, b"an answer to a survey", KEY))


def test_no_transaction_of_a_flush_answers_more_than_a_record_may_wait_for(joined):
    """Of 10,000 closings that are due at once, each transaction draws some hundreds, and a record gets in between."""
    handle, device, *_ = joined(PLAIN, entries=1_250)
    drew = [0]

    def count(statement):
        if statement.startswith("BEGIN"):
            drew.append(0)
        drew[-1] += statement.startswith("INSERT INTO closings")

    device.store._connection.set_trace_callback(count)
    assert device.at(LATE).flush().sent == 10_000
    assert handle.ledger(1_249).answered_period == 8
    assert sum(drew) == 10_000
    assert max(drew) <= 512 + 64


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_file_that_may_not_grow_is_a_full_store_and_keeps_what_it_has(joined):
    """Beyond a quota, record() raises StoreFull; where there is room again, it goes on from what stood before."""
    handle, *_ = joined(PLAIN)
    handle.record("tea")

    def act():
        assert handle.answer() == "tea"
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        with pytest.raises(StoreFull):
            handle.record("coffee")
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert handle.answer() == "tea"
        handle.record("neither")

    assert ended(forked(act)) == 0
    assert handle.answer() == "neither"


@pytest.mark.skipif(os.name != "posix", reason="a limit of POSIX")
@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.EACCES, errno.EISDIR])
def test_a_lock_file_that_cannot_be_opened_is_a_client_error(joined, monkeypatch, number):
    """No descriptor is left, or somebody else's file is in its place."""
    _, device, *_ = joined(PLAIN)
    genuine = os.open

    def limited(path, *args, **more):
        if str(path).endswith(".lock"):
            raise OSError(number, os.strerror(number))
        return genuine(path, *args, **more)

    monkeypatch.setattr(os, "open", limited)
    with pytest.raises(StoreBusy if number in (errno.EMFILE, errno.ENFILE) else StoreReadOnly):
        device.flush()
    monkeypatch.undo()
    assert device.flush().trouble is None


@pytest.mark.parametrize("known", [True, False])
def test_with_a_key_no_length_hangs_on_an_answer(begin, known):
    """Of a survey that is not known yet the answers themselves wait; of one that is, their numbers."""
    answers, lengths = tuple(f"{number}" * (1 + number % 7) for number in range(200)), set()
    asked = PLAIN.asking(answers=answers, plan=hierarchical(200, 8, (1,), TRUTHFUL))
    for number in (0, 6, 127, 128, 199):
        device = begin(asked, folder=f"{number}", key=KEY).device
        device.join(asked.id, **({} if known else {"signed": None})).record(answers[number])
        with device.store.transaction() as db:
            lengths.add(db.execute("SELECT length(private) FROM entries").fetchone())
    assert len(lengths) == 1
