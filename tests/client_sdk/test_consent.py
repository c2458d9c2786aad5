"""Without consent nothing is kept and nothing is sent, at once and for good."""

import random
import re
import shutil
import signal
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from itertools import product

import pytest
from changeling_client import ClientError, Recorded, Silenced, Status, StoreBusy, StoreUnusable, SurveyHandle, outbox
from changeling_protocol import Group, Joint, KaryResponse, Odds, StateSpace, TimeBounded, Track

from .device import PLAIN, START, URL, Clock, FakeServer, answering, asking, client, on_disk

OTHER = PLAIN.asking(question="And what would you rather?")
EVERYTHING = asking(
    Group.jointly(
        [Track(1, KaryResponse(StateSpace(3), Odds(3, 1)), 0, 8, reported=6) for _ in range(9)],
        Joint(Odds(99, 1), 9, (4,) * 9, (6,) * 9),
    ),
    constraint=TimeBounded(300),
)
"""With slots, drawn nodes, and the time of the first mutation."""
KEY = b"K" * 32
keyed = pytest.mark.parametrize("key", [None, KEY], ids=["plain", "key"])


def everything_in(path):
    """All that the store holds of answers, chances and keys, as it stands in the file, or how it begins."""
    store = sqlite3.connect(path / "store.db")
    queries = (
        "SELECT private FROM entries",
        "SELECT nodes FROM drawn",
        "SELECT reports FROM closings UNION SELECT id FROM closings",
        "SELECT signed FROM sealing_keys",
        "SELECT payload FROM surveys",
    )
    found = [{piece[:40] for (piece,) in store.execute(query) if piece} for query in queries]
    store.close()
    return found


def lived(tmp_path, key=None):
    """A device in mid survey: answers recorded and reported, some acknowledged, some waiting."""
    server, clock = FakeServer(EVERYTHING, OTHER), Clock(START + 1)
    with client(tmp_path, server, clock, key=key) as device:
        handle = device.join(EVERYTHING.id, entries=3)
        asked = device.join(b"unknown survey..", signed=None)
        asked.record("an answer to a survey that is not known")
        for period, answer in ((0, "tea"), (1, "coffee"), (2, "neither")):
            clock.now = START + 60 * period + 30
            handle.record(answer, period)
            clock.now += 50
            server.reply = (lambda _: None) if period < 2 else answering(503)
            device.flush()
        clock.now += 1
        handle.record("tea", 2)
    server.requests.clear()
    server.reply = lambda _: None
    return server, clock


def assert_nothing_left(tmp_path, pieces):
    """No piece of any kind is found; one of a few bytes may stand in any file by chance."""
    content = on_disk(tmp_path)
    for kind in pieces:
        telling = [piece for piece in kind if len(piece) > 8]
        assert telling
        assert not any(piece in content for piece in telling)
    for word in (b"an answer to a survey", b"What do you drink?"):
        assert word not in content


def test_without_consent_from_the_start_nothing_is_made(tmp_path, joined):
    """No file, no folder, no witness, no request; whatever the app calls."""
    told = []
    options = {"witness": tmp_path / "data" / "witness", "on_error": told.append}
    handle, device, server, _ = joined(PLAIN, folder="data", consent=False, **options)
    assert [handle.record("tea"), handle.retract()] == [Recorded.DROPPED] * 2
    assert (handle.status, handle.survey, handle.answer(), handle.ledger()) == (Status.NOT_JOINED, None, None, None)
    assert device.at(START + 80).flush().sent == 0
    device.leave(PLAIN.id)
    device.set_consent(False)
    assert (device.consent, device.ledger().spent) == (False, 0)
    assert (list(tmp_path.iterdir()), server.requests, told) == ([], [], [])


def test_consent_that_is_given_later_counts_from_then_on(joined):
    """What was recorded before is nowhere, and the app joins as if it were started now; a survey that was left then
    says so without consent too."""
    handle, device, *_ = joined(PLAIN, now=START + 70, consent=False)
    handle.record("tea")
    device.set_consent(True)
    assert handle.status is Status.NOT_JOINED
    assert (device.join(PLAIN.id).status, handle.answer()) == (Status.JOINED, None)
    assert handle.record("coffee") is Recorded.COUNTED
    assert device.at(START + 140).flush().sent == 1
    device.set_consent(False)
    assert handle.status is Status.LEFT


@keyed
@pytest.mark.parametrize("running", [True, False], ids=["at any time", "while the app was not running"])
def test_when_consent_is_withdrawn_no_byte_is_left(tmp_path, key, running):
    """Neither of what entries remember and drew, nor of symbols, ids and keys, nor of what the survey asks: not in the
    file, its log or its free pages. Nothing is sent."""
    server, clock = lived(tmp_path, key)
    pieces = everything_in(tmp_path)
    content = on_disk(tmp_path)
    assert all(piece in content for kind in pieces for piece in kind)
    with client(tmp_path, server, clock, key=key, consent=running) as device:
        if running:
            device.set_consent(False)
        assert_nothing_left(tmp_path, pieces)
        assert device.flush().sent == 0
    assert_nothing_left(tmp_path, pieces)
    assert server.requests == []


def test_a_survey_that_consent_was_withdrawn_from_never_resumes(tmp_path):
    """Not when it is asked for again, not with another client, not if the server was never reached; one that was not
    known to the store before is joined. What it has cost is told without consent too."""
    server, clock = lived(tmp_path)
    with client(tmp_path, server, clock) as device:
        device.set_consent(False)
        assert (device.ledger().spent, device.reports()) == (EVERYTHING.epsilon, ())
        device.set_consent(True)
        handles = [device.join(EVERYTHING.id, entries=3), device.join(b"unknown survey..", signed=None)]
        for handle in handles:
            assert handle.status is Status.LEFT
            assert handle.record("tea") is Recorded.DROPPED
    with client(tmp_path, server, clock) as device:
        handle = device.join(EVERYTHING.id, entries=3)
        assert handle.status is Status.LEFT
        assert handle.record("tea") is Recorded.DROPPED
        assert device.ledger().spent == EVERYTHING.epsilon
        assert device.at(START + 400).flush().sent == 0
        assert server.requests == []
        assert device.join(OTHER.id).record("tea") is Recorded.COUNTED


@keyed
def test_leaving_one_survey_leaves_no_byte_of_it_and_the_others_as_they_are(tmp_path, begin, key):
    """And it is for good."""
    device, server, _ = begin(EVERYTHING, OTHER, now=START + 1, key=key)
    left, stays = device.join(EVERYTHING.id, entries=3), device.join(OTHER.id)
    for handle in (left, stays):
        handle.record("coffee")
    server.reply = answering(503)
    assert device.at(START + 80).flush().waiting == 4
    with device.store.transaction() as db:
        rows = [
            row
            for table in ("entries", "closings", "drawn")
            for row in db.execute(f"SELECT * FROM {table} WHERE survey = ?", (EVERYTHING.id,))
        ]
    pieces = {piece for row in rows for piece in row[1:] if isinstance(piece, bytes)}
    assert len(pieces) > 9
    device.leave(EVERYTHING.id.hex())
    content = on_disk(tmp_path)
    assert not [piece for piece in (*pieces, EVERYTHING.payload) if piece in content]
    assert [about.id for about in device.reports()] == [OTHER.id.hex()]
    server.reply = lambda _: None
    assert device.flush().sent == 1
    assert (left.status, left.record("tea"), left.answer()) == (Status.LEFT, Recorded.DROPPED, None)
    assert (stays.status, stays.answer()) == (Status.JOINED, "coffee")
    device = begin(after=device, key=key).device
    assert device.join(EVERYTHING.id, entries=3).status is Status.LEFT
    assert device.ledger().spent == EVERYTHING.epsilon + OTHER.epsilon


@pytest.mark.parametrize("before", ["never heard of", "refused"])
def test_a_survey_can_be_left_before_it_was_joined(begin, before):
    """It is not joined later, though the app asks for it."""
    device, server, _ = begin(PLAIN, max_epsilon=0.1 if before == "refused" else 100)
    if before == "refused":
        device.join(PLAIN.id, signed=None)
        device.flush()
    device.leave(PLAIN.id)
    server.requests.clear()
    device = begin(after=device).device
    handle = device.join(PLAIN.id)
    assert (handle.status, handle.record("tea")) == (Status.LEFT, Recorded.DROPPED)
    device.flush()
    assert (device.ledger().spent, server.requests) == (0, [])


def test_a_damaged_store_is_destroyed_without_consent(tmp_path):
    """Nobody can tell what is in it; so nothing stays. With consent it is left as it is."""
    server, clock = lived(tmp_path)
    pieces = everything_in(tmp_path)
    file = tmp_path / "store.db"
    content = bytearray(file.read_bytes())
    content[:40] = b"\xaa" * 40
    file.write_bytes(content)
    with pytest.raises(ClientError):
        client(tmp_path, server, clock)
    assert file.read_bytes() == bytes(content)
    with file.open("rb") as blocks, client(tmp_path, server, clock, consent=False) as device:
        assert not file.exists()
        assert not any(blocks.read())
        assert device.flush().sent == 0
    assert_nothing_left(tmp_path, pieces)


def test_a_file_that_is_no_store_is_not_destroyed(tmp_path):
    """Who names another's file as the store by mistake hears of it, without consent as with it."""
    file = tmp_path / "store.db"
    for content, given in product((b"a letter", b"", b"SQLite format 3\0" + bytes(84)), (True, False)):
        file.write_bytes(content)
        with pytest.raises(StoreUnusable):
            client(tmp_path, FakeServer(PLAIN), Clock(), consent=given)
        assert file.read_bytes() == content


def test_a_destroyed_store_is_remembered_by_its_witness(tmp_path, begin):
    """Its surveys are not joined by the store that is made when consent is given again."""
    told = []
    options = {"folder": "data", "witness": tmp_path / "witness", "on_error": told.append}
    device = begin(PLAIN, OTHER, **options).device
    device.join(PLAIN.id).record("tea")
    assert device.at(START + 80).flush().sent == 1
    device.close()
    (tmp_path / "data" / "store.db").write_bytes(b"damaged")
    device = begin(after=device, consent=False, **options).device
    device.set_consent(True)
    assert [type(error) for error in told] == [Silenced]
    assert device.join(PLAIN.id).status is Status.SILENCED
    assert device.join(OTHER.id).status is Status.JOINED


def test_what_another_process_still_reads_is_erased_when_the_app_starts_next(tmp_path):
    """The rows go at once; the app is told that old pages stay, and that is made up for."""
    server, clock = lived(tmp_path)
    pieces = everything_in(tmp_path)
    told = []
    reader = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM entries").fetchone()
    with client(tmp_path, server, clock, on_error=told.append) as device:
        device.set_consent(False)
    assert ["another process reads the store" in str(error) for error in told] == [True]
    reader.execute("COMMIT")
    assert reader.execute("SELECT count(*) FROM entries").fetchone() == (0,)
    reader.close()
    client(tmp_path, server, clock, consent=False).close()
    assert_nothing_left(tmp_path, pieces)


@pytest.mark.parametrize(
    ("when", "way"),
    [
        *product(("surveys", "keys", "as it seals"), ("consent", "leave")),
        *product(("surveys", "keys"), ("another process",)),
    ],
)
def test_at_every_step_of_a_flush_withdrawing_ends_it(joined, begin, monkeypatch, when, way):
    """While the survey or the keys are asked for, or before anything is sealed: once that has returned no upload leaves
    and no answer is kept, and the survey is never joined."""
    handle, device, server, _ = joined(PLAIN, **({"signed": None} if when == "surveys" else {}))
    withdraw = {
        "consent": lambda: device.set_consent(False),
        "leave": lambda: device.leave(PLAIN.id),
        "another process": lambda: begin(server=server, now=START + 80, consent=False),
    }[way]
    seal = outbox.seal

    def reply(request):
        if f"/{when}" in request.url.path:
            server.reply = lambda _: None
            thread = threading.Thread(target=withdraw)
            thread.start()
            thread.join(100)

    def sealed(*arguments):
        withdraw()
        return seal(*arguments)

    server.reply = reply
    if when == "as it seals":
        monkeypatch.setattr(outbox, "seal", sealed)
    device.at(START + 80).flush()
    assert (device.flush().sent, handle.record("coffee")) == (0, Recorded.DROPPED)
    device.set_consent(True)
    assert device.join(PLAIN.id).status is Status.LEFT
    assert device.ledger().spent == (0 if when == "surveys" else PLAIN.epsilon)
    assert "/v1/uploads" not in server.paths()


def test_withdrawing_can_be_tried_again_when_the_store_was_busy(tmp_path, joined, monkeypatch):
    """It has raised, and nothing was wiped; nothing is recorded or sent meanwhile."""
    monkeypatch.setattr("changeling_client.store.BUSY_SECONDS", 0.05)
    handle, device, server, _ = joined(PLAIN)
    handle.record("tea")
    with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as held:
        held.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusy):
            device.set_consent(False)
        assert handle.record("coffee") is Recorded.DROPPED
        device.at(START + 80).flush()
    device.set_consent(False)
    device.set_consent(True)
    assert handle.status is Status.LEFT
    assert not server.requests


@pytest.mark.xfail(strict=True, reason="whoever leaves waits for what its own process sends, not for another's")
def test_nothing_is_sent_once_another_process_has_left(joined, begin):
    """Two clients of one store, as processes have them: the one leaves while the other is about to send."""
    handle, first, server, _ = joined(PLAIN)
    second, sent = begin(server=server, now=START + 80).device, []
    handle.record("tea")
    server_then = first._device._servers.at("https://statistics.example")
    upload = server_then.upload

    def about_to(envelopes, deadline):
        leaving = threading.Thread(target=second.leave, args=(PLAIN.id,))
        leaving.start()
        leaving.join(30)
        sent.append(leaving.is_alive())
        return upload(envelopes, deadline)

    server_then.upload = about_to
    first.at(START + 80).flush()
    assert sent == [True] or not server.bodies


def test_a_signal_handler_may_leave_while_its_thread_sends(joined):
    """What is under way ends, and nobody waits for ever."""
    handle, device, server, _ = joined(PLAIN)
    asked, answers, main = threading.Event(), threading.Event(), threading.get_ident()

    def reply(request):
        if request.method == "POST" and not asked.is_set():
            asked.set()
            answers.wait(100)

    def stuck(*_):
        raise AssertionError("it is stuck")

    def later():
        asked.wait(100)
        time.sleep(0.3)  # until the flush waits
        signal.pthread_kill(main, signal.SIGUSR1)

    server.reply = reply
    handle.record("tea")
    signal.signal(signal.SIGUSR1, lambda *_: device.leave(PLAIN.id))
    signal.signal(signal.SIGALRM, stuck)
    threading.Thread(target=later).start()
    signal.alarm(60)
    device.at(START + 80).flush()
    signal.alarm(0)
    answers.set()
    assert handle.status is Status.LEFT


def test_records_and_joins_that_race_with_a_withdrawal_leave_nothing(tmp_path, joined):
    """Threads that record and join without end: none fails, and when `set_consent` has returned nothing is kept."""
    handle, device, *_ = joined(PLAIN)
    stop = threading.Event()

    def work(number):
        while not stop.is_set():
            handle.record(("tea", "coffee")[number % 2])
            device.join(bytes([number]) * 16, signed=None).record("an answer of somebody's")

    with ThreadPoolExecutor(4) as threads:
        at_work = [threads.submit(work, number) for number in range(4)]
        try:
            for _ in range(3):
                device.set_consent(False)
                assert b"an answer of somebody's" not in on_disk(tmp_path)
                with closing(sqlite3.connect(tmp_path / "store.db")) as db:
                    assert db.execute("SELECT count(*) FROM entries").fetchone() == (0,)
                device.set_consent(True)
            device.set_consent(False)
        finally:
            stop.set()
    assert [each.result() for each in at_work] == [None] * 4
    assert b"an answer of somebody's" not in on_disk(tmp_path)


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
        if seed % 2:
            opened.close()
            opened = None
    if opened is None:
        opened = client(to, server, clock, consent=False)
    opened.set_consent(False)
    opened.close()
    assert_nothing_left(to, pieces)
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


def test_a_sound_database_of_the_host_is_not_destroyed_for_the_lock_beside_it(tmp_path):
    """Named as the store by mistake, with a lock of the host's own, as `filelock` names it: it never was a store."""
    place = tmp_path / "store.db"
    with closing(sqlite3.connect(place)) as theirs, theirs:
        theirs.execute("CREATE TABLE orders (id INTEGER)")
    (tmp_path / "store.db.lock").touch()
    before = place.read_bytes()
    with suppress(StoreUnusable):
        client(tmp_path, FakeServer(), Clock(), consent=False).close()
    assert place.exists()
    assert place.read_bytes() == before


def test_a_store_whose_head_is_damaged_is_destroyed_without_consent(tmp_path):
    """With the mark the number of SQLite's format as well, which stands before it in the same 28 bytes: all else is
    there, and the answers are."""
    server, clock = lived(tmp_path)
    pieces = everything_in(tmp_path)
    file = tmp_path / "store.db"
    content = bytearray(file.read_bytes())
    content[44:72] = b"\xff" * 28
    file.write_bytes(content)
    with suppress(StoreUnusable):
        client(tmp_path, server, clock, consent=False).close()
    assert_nothing_left(tmp_path, pieces)
