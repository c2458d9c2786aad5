"""What every store must do, whatever database holds it, with one process or several at it."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random
from threading import Barrier, Event

import numpy as np
import pytest
from changeling_aggregator.errors import Overtaken, StoreError
from changeling_aggregator.store import AtRest, Store
from changeling_aggregator.store.at_rest import IN_CLEAR
from changeling_aggregator.store.catalogue import drop
from changeling_aggregator.store.clock import KeptTime, keep_time, kept_time
from changeling_aggregator.store.counted import (
    add_attendance,
    add_refusals,
    add_tallies,
    refusals_of,
    seal_closings,
    sealed_period,
    tallies_of,
)
from changeling_aggregator.store.early_ends import add_end, published_ends
from changeling_aggregator.store.id_files import IdFile, registered_files, replace_files
from changeling_aggregator.store.log import (
    advance_arrival,
    advance_cursors,
    append,
    cursors_after,
    first_unfolded,
    hold_arrivals,
    is_one_statement,
    latest_arrival,
    open_stream,
    set_back_arrivals,
    stop_appending,
    unfolded,
    unread,
)
from changeling_aggregator.store.pruning import any_to_prune, hold, prune
from changeling_aggregator.store.runs import (
    CHUNK_BYTES,
    Run,
    RunName,
    chunks_near,
    chunks_of,
    drop_runs,
    put_runs,
    read_run,
    read_runs,
    runs_of,
)
from changeling_aggregator.store.schema import dropped, sealing_keys
from changeling_aggregator.store.sealing_keys import (
    KeyState,
    any_expired,
    destroy_expired,
    encrypt_again,
    encrypt_in_clear,
    key_lives,
    make_key,
    private_keys,
    publish_key,
    published_keys,
)
from changeling_aggregator.store.snapshots import (
    Looked,
    Lot,
    counted_lots,
    looked_at,
    put_looked,
    put_snapshots,
    shown_lots,
)
from changeling_aggregator.store.surveys import add_survey, public_surveys, published_surveys
from changeling_aggregator.store.tokens import (
    TokenScope,
    add_token,
    hash_of,
    new_token,
    revoke_token,
    tokens_by_hash,
)
from changeling_protocol import EarlyEnd, Odds, Refusal, SealingKey, UnixSeconds
from changeling_statistics import Attendance, NodeTally
from sqlalchemy import Connection, event, func, select, update

from ..aggregator.refolding import whole_log
from ..protocol.examples import AUTHORITY, hierarchical
from .stores import PLACES, Place

SURVEY, OTHER = b"survey of 16 by.", b"another survey.."
NODE, CLOSING = (SURVEY, 0, 1, 0), (SURVEY, 1)


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> Place:
    """Where a store lies."""
    return PLACES[request.param](request)


@pytest.fixture
def store(place: Place) -> Iterator[Store]:
    """An open store."""
    opened = place.open()
    yield opened
    opened.close()


@pytest.fixture
def beside(place: Place, store: Store) -> Iterator[Store]:  # noqa: ARG001
    """The same store, opened by another process, as it were."""
    opened = place.open()
    yield opened
    opened.close()


def stream_of(store: Store) -> int:
    with store.writing() as connection:
        return open_stream(connection)


def put(store: Store, stream: int, *envelopes: bytes, now: int = 0) -> None:
    """As a server does."""
    with store.writing(is_one_statement(store.engine, envelopes)) as connection:
        append(connection, stream, envelopes, now)


def fold_next(store: Store, most: int = 100) -> list[bytes]:
    """Moves the cursors over the next envelopes, as a fold does. Raises Overtaken."""
    with store.reading() as connection:
        envelopes = unread(connection, most, 2**20)
    with store.writing() as connection:
        advance_cursors(connection, cursors_after(envelopes))
    return [logged.body for logged in envelopes]


def logged(store: Store) -> list[bytes]:
    with store.reading() as connection:
        return [each.body for each in whole_log(connection)]


def tally(*slots: int) -> NodeTally:
    return NodeTally(sum(slots), np.array(slots, np.int64))


# Transactions


def test_a_transaction_that_raises_leaves_nothing(store: Store, beside: Store) -> None:
    """Neither an envelope nor a stream, nor the arrival that it took."""
    stream = stream_of(store)
    put(store, stream, b"kept", now=10)

    def broken() -> None:
        with store.writing() as connection:
            append(connection, stream, [b"lost"], 99)
            open_stream(connection)
            raise KeyError

    with pytest.raises(KeyError):
        broken()
    assert logged(beside) == [b"kept"]
    with beside.reading() as connection:
        assert latest_arrival(connection) == 10
    put(store, stream, b"next", now=10)
    assert logged(store) == [b"kept", b"next"]


def test_a_reader_sees_one_state_and_keeps_no_writer_waiting(store: Store, beside: Store) -> None:
    """What others commit while it reads is not there for it; for the next reader it is."""
    stream = stream_of(store)
    put(store, stream, b"first")
    with store.reading() as connection:
        assert unfolded(connection) == 1
        put(beside, stream, b"second")
        assert unfolded(connection) == 1
        assert len(unread(connection, 9, 999)) == 1
    with store.reading() as connection:
        assert unfolded(connection) == 2


def test_what_is_committed_is_there_when_the_store_is_opened_again(place: Place, store: Store) -> None:
    """By whoever opens it."""
    stream = stream_of(store)
    put(store, stream, b"envelope", now=7)
    store.close()
    again = place.open()
    assert logged(again) == [b"envelope"]
    assert stream_of(again) != stream
    again.close()


# The log


def test_streams_have_numbers_of_their_own_and_no_gaps(store: Store, beside: Store) -> None:
    """However many processes open one at once."""
    with ThreadPoolExecutor(4) as pool:
        numbers = list(pool.map(stream_of, [store, beside] * 10))
    assert len(set(numbers)) == 20
    put(store, numbers[0], b"a", b"b")
    put(beside, numbers[0], b"c")
    with store.reading() as connection:
        assert [each.position for each in whole_log(connection)] == [1, 2, 3]


def test_arrivals_never_decrease_and_follow_the_order_of_commits(store: Store) -> None:
    """However the clocks of two streams run, (arrival, stream, position) is the order of appending."""
    first, second = stream_of(store), stream_of(store)
    order = [(first, 100), (second, 100), (first, 100), (second, 40), (first, 300), (first, 10), (second, 301)]
    for number, (stream, now) in enumerate(order):
        put(store, stream, bytes([number]), now=now)
    with store.reading() as connection:
        envelopes = list(whole_log(connection))
        assert latest_arrival(connection) == 301
    assert [each.body[0] for each in envelopes] == list(range(len(order)))
    assert [each.arrival for each in envelopes] == [100, 100, 101, 101, 300, 300, 301]
    assert [each.position for each in envelopes if each.stream == first] == [1, 2, 3, 4]


def test_held_arrivals_never_go_back(store: Store) -> None:
    """Whatever the clock of the next appender shows, and if somebody would hold them earlier."""
    stream = stream_of(store)
    with store.writing() as connection:
        hold_arrivals(connection, 500)
        hold_arrivals(connection, 400)
        assert advance_arrival(connection, stream, 450) == 500
        assert advance_arrival(connection, stream, 501) == 501
        assert latest_arrival(connection) == 501


def test_reading_stops_at_the_bound_and_merges_streams(store: Store) -> None:
    """A batch is the first envelopes of all streams together, at most so many or so many bytes."""
    streams = [stream_of(store) for _ in range(3)]
    for number in range(9):
        put(store, streams[number % 3], bytes([number]) * 10, now=number)
    with store.reading() as connection:
        assert [each.body[0] for each in unread(connection, 5, 1000)] == [0, 1, 2, 3, 4]
        assert [each.body[0] for each in unread(connection, 100, 25)] == [0, 1, 2]
        assert first_unfolded(connection) == 0
    assert len(fold_next(store, 4)) == 4
    with store.reading() as connection:
        assert first_unfolded(connection) == 4
        assert unfolded(connection) == 5
    fold_next(store)
    with store.reading() as connection:
        assert (unread(connection, 9, 999), first_unfolded(connection), unfolded(connection)) == ([], None, 0)


def test_of_many_who_append_at_once_each_keeps_its_order_and_a_reader_misses_nothing(
    place: Place, store: Store
) -> None:
    """Four processes with clocks that jump, and one that reads along: what it sees later lies behind what it saw."""
    appended, done, at_once = 40, Event(), Barrier(5)

    def appender(number: int) -> list[bytes]:
        own, random, mine = place.open(), Random(number), []
        stream = stream_of(own)
        at_once.wait(100)
        for count in range(appended):
            envelopes = [bytes([number, count, i]) for i in range(random.randint(1, 3))]
            put(own, stream, *envelopes, now=random.randint(1, 50))
            mine += envelopes
        own.close()
        return mine

    def reader() -> list[tuple[int, int, int]]:
        own, seen = place.open(), []
        at_once.wait(100)
        last = False
        while not last:
            last = done.is_set()
            with own.reading() as connection:
                batch = unread(connection, 7, 2**20)
            while batch:
                seen += [each[:3] for each in batch]
                with own.writing() as connection:
                    advance_cursors(connection, cursors_after(batch))
                with own.reading() as connection:
                    batch = unread(connection, 7, 2**20)
        own.close()
        return seen

    with ThreadPoolExecutor(5) as pool:
        reading = pool.submit(reader)
        sent = list(pool.map(appender, range(4)))
        done.set()
        seen = reading.result(100)
    with store.reading() as connection:
        log = list(whole_log(connection))
    assert seen == sorted(seen) == [each[:3] for each in log]
    for number, mine in enumerate(sent):
        assert [each.body for each in log if each.body[0] == number] == mine
    positions = Counter(each.stream for each in log)
    assert {each.position for each in log if each.stream == log[0].stream} == set(
        range(1, positions[log[0].stream] + 1)
    )


def test_after_stop_appending_nothing_comes_until_the_transaction_ends(store: Store, beside: Store) -> None:
    """An appender waits, and its arrival is after what was held meanwhile."""
    stream, stopped = stream_of(beside), Event()

    def late() -> None:
        stopped.wait(100)
        put(beside, stream, b"late", now=5)

    with ThreadPoolExecutor(1) as pool:
        appending = pool.submit(late)
        with store.writing() as connection:
            stop_appending(connection)
            stopped.set()
            for _ in range(20):
                assert first_unfolded(connection) is None
            assert not appending.done()
            hold_arrivals(connection, 1000)
        appending.result(100)
    with store.reading() as connection:
        assert first_unfolded(connection) == 1000


def test_many_requests_count_as_deleted_by_one_statement(store: Store) -> None:
    """However many a fold finds to be of no use, in one transaction that uploads wait for; twice is as once."""
    many, statements = [(1, position) for position in range(1, 1001)], list[str]()

    def note(_connection: Connection, _cursor: object, statement: str, *_: object) -> None:
        statements.append(statement)

    event.listen(store.engine, "before_cursor_execute", note)
    with store.writing() as connection:
        for some in (many, many[500:], []):
            drop(connection, some)
        count = connection.execute(select(func.count()).select_from(dropped)).scalar_one()
    assert (sum("INSERT" in each for each in statements), count) == (2, 1000)


def test_arrivals_given_out_ahead_are_set_back(store: Store, beside: Store) -> None:
    """As far as nothing was sealed; what is not folded arrived then, too, and the order of appending stays."""
    first, second = stream_of(store), stream_of(store)
    put(store, first, b"folded", now=9000)
    fold_next(store)
    for number, stream in enumerate((second, first, second)):
        put(store, stream, bytes([number]), now=9000)
    with store.writing() as connection:
        hold_arrivals(connection, 100)
        stop_appending(connection)
        set_back_arrivals(connection, 50)
        assert latest_arrival(connection) == 100
    put(beside, first, b"next", now=60)
    put(beside, second, b"last", now=150)
    with store.reading() as connection:
        unseen = unread(connection, 9, 999)
        assert [each.arrival for each in whole_log(connection) if each.body == b"folded"] == [9000]
    assert [each.arrival for each in unseen[:3]] == [100, 100, 100]
    assert [each.body for each in unseen[3:]] == [b"next", b"last"]
    assert 100 < unseen[3].arrival < unseen[4].arrival == 150


def test_the_time_that_was_kept_is_there_for_the_next_process(store: Store, beside: Store) -> None:
    """None at first; then the last that was kept, also if it is earlier."""
    for kept in (KeptTime(0, False), KeptTime(2**41, True), KeptTime(2**40, False)):
        with store.writing() as connection:
            if kept.told:
                keep_time(connection, kept)
        with beside.reading() as connection:
            assert kept_time(connection) == kept


# The fold


def test_of_two_folders_that_read_the_same_one_is_overtaken_and_leaves_nothing(store: Store, beside: Store) -> None:
    """Also where their batches are of different lengths: both begin with the first that is unread."""
    stream, other = stream_of(store), stream_of(store)
    put(store, stream, b"1", now=1)
    put(store, other, b"2", now=2)
    with store.reading() as connection:
        long = unread(connection, 9, 999)
    with beside.reading() as connection:
        short = unread(connection, 1, 999)
    with store.writing() as connection:
        advance_cursors(connection, cursors_after(long))
        add_tallies(connection, {NODE: tally(1, 1)})

    def overtaken() -> None:
        with beside.writing() as connection:
            add_tallies(connection, {NODE: tally(5, 5)})
            advance_cursors(connection, cursors_after(short))

    with pytest.raises(Overtaken):
        overtaken()
    with store.reading() as connection:
        assert tallies_of(connection, SURVEY)[0, 1].reports == 2
        assert unfolded(connection) == 0


def test_whatever_is_folded_by_however_many_is_counted_once(place: Place, store: Store) -> None:
    """Three folders in small batches, each trying again when it was overtaken: together they count what is there."""
    streams = [stream_of(store) for _ in range(3)]
    for number in range(60):
        put(store, streams[number % 3], bytes([number]), now=number)

    def folder(most: int) -> int:
        own, counted = place.open(), 0
        while True:
            with own.reading() as connection:
                batch = unread(connection, most, 2**20)
            if not batch:
                own.close()
                return counted
            try:
                with own.writing() as connection:
                    advance_cursors(connection, cursors_after(batch))
                    add_tallies(connection, {NODE: tally(len(batch), 0)})
            except Overtaken:
                continue
            counted += len(batch)

    with ThreadPoolExecutor(3) as pool:
        assert sum(pool.map(folder, (2, 3, 5))) == 60
    with store.reading() as connection:
        assert tallies_of(connection, SURVEY)[0, 1].slots.tolist() == [60, 0]


def test_one_process_at_a_time_has_the_turn_to_fold(store: Store, beside: Store) -> None:
    """Another has it once it was given back, and what was written in a turn is kept."""
    stream = stream_of(store)
    with store.turn_to_fold() as writing, beside.turn_to_fold() as other:
        assert writing
        assert other is None
        with writing() as connection:
            append(connection, stream, [b"kept"], 0)
        with beside.turn_to_fold() as other:
            assert other is None
        put(beside, stream, b"too")
    with beside.turn_to_fold() as other:
        assert other
        with store.turn_to_fold() as writing:
            assert writing is None

        def broken() -> None:
            with other() as connection:
                append(connection, stream, [b"lost"], 0)
                raise KeyError

        with pytest.raises(KeyError):
            broken()
        with other() as connection:
            assert unfolded(connection) == 2
    assert logged(store) == [b"kept", b"too"]


def test_a_turn_is_given_back_whatever_was_raised_in_it(store: Store, beside: Store) -> None:
    """Also within one of its transactions."""

    def broken() -> None:
        with store.turn_to_fold() as writing:
            assert writing
            with writing():
                raise KeyError

    with pytest.raises(KeyError):
        broken()
    with beside.turn_to_fold() as other:
        assert other


def test_tallies_add_up_node_by_node(store: Store) -> None:
    """Of one survey, by track and node; sums beyond 32 bits."""
    with store.writing() as connection:
        add_tallies(connection, {NODE: tally(1, 0, 2), (SURVEY, 1, 7, 0): tally(2**40), (OTHER, 0, 1, 0): tally(9)})
    with store.writing() as connection:
        add_tallies(connection, {NODE: tally(0, 5, 1), (SURVEY, 1, 7, 0): tally(2**40)})
    with store.reading() as connection:
        held = tallies_of(connection, SURVEY)
    assert {key: (of.reports, of.slots.tolist()) for key, of in held.items()} == {
        (0, 1): (9, [1, 5, 3]),
        (1, 7): (2**41, [2**41]),
    }


def test_strata_and_attendance_add_up(store: Store) -> None:
    """Of one survey, of the strata that are asked for; those that nobody is in add nothing."""
    for _ in range(2):
        with store.writing() as connection:
            add_tallies(
                connection, {(SURVEY, 0, 1, 3): tally(1, 0), NODE: tally(0, 4), (SURVEY, 0, 1, 1000): tally(2, 2)}
            )
            add_attendance(
                connection,
                {
                    (SURVEY, 0, 4, 3): Attendance(5, 2, 1),
                    (SURVEY, 0, 4, 0): Attendance(2**40, 0, 0),
                    (SURVEY, 1, 4, 3): Attendance(7, 0, 7),
                    (OTHER, 0, 4, 3): Attendance(9, 9, 9),
                },
            )
    with store.writing() as connection:
        add_tallies(connection, {(SURVEY, 0, 1, 3): tally(1, 0), (SURVEY, 0, 1, 5): tally(0, 1)})
    with store.reading() as connection:
        of = {strata: tallies_of(connection, SURVEY, strata) for strata in (None, (), (3,), (0, 3), (0, 3, 5, 6, 1000))}
    assert {strata: each[0, 1].slots.tolist() for strata, each in of.items() if each} == {
        None: [7, 13],
        (3,): [3, 0],
        (0, 3): [3, 8],
        (0, 3, 5, 6, 1000): [7, 13],
    }
    assert of[()].attendance == {}
    assert of[3,].attendance == {(0, 4): Attendance(10, 4, 2), (1, 4): Attendance(14, 0, 14)}
    assert (
        of[None].attendance
        == of[0, 3].attendance
        == {
            (0, 4): Attendance(2**41 + 10, 4, 2),
            (1, 4): Attendance(14, 0, 14),
        }
    )


def test_refusals_of_all_processes_add_up(place: Place, store: Store) -> None:
    """Though each is the first to count them."""

    def refuse(_: int) -> None:
        own = place.open()
        for _ in range(10):
            with own.writing() as connection:
                add_refusals(connection, {(SURVEY, Refusal.LATE): 1, (SURVEY, Refusal.CLOSED): 2})
        own.close()

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(refuse, range(3)))
    with store.reading() as connection:
        assert refusals_of(connection, SURVEY) == {Refusal.LATE: 30, Refusal.CLOSED: 60}
        assert refusals_of(connection, OTHER) == {}


def test_ids_are_found_and_replaced_by_run(store: Store) -> None:
    """A run is read back in order whatever its length; of a few ids, the chunks that could hold them."""
    ids = [number.to_bytes(16) for number in range(CHUNK_BYTES // 16 * 2 + 5)]
    with store.writing() as connection:
        put_runs(connection, [(CLOSING, 0, b"".join(ids)), (CLOSING, 1, b"\xff" * 16), ((OTHER, 1), 0, ids[0])])
    with store.reading() as connection:
        assert runs_of(connection, [CLOSING, (SURVEY, 2), (OTHER, 1)]) == {
            CLOSING: [Run(0, ids[0], 3 * CHUNK_BYTES), Run(1, b"\xff" * 16, 16)],
            (OTHER, 1): [Run(0, ids[0], 16)],
        }
        assert chunks_of(connection, [CLOSING, (SURVEY, 2), (OTHER, 1)]) == {
            CLOSING: {RunName(0, ids[0]): 3, RunName(1, b"\xff" * 16): 1},
            (OTHER, 1): {RunName(0, ids[0]): 1},
        }
        assert b"".join(read_run(connection, CLOSING, 0)) == b"".join(ids)
        assert read_runs(connection, [(CLOSING, 1), ((OTHER, 1), 0)]) == {CLOSING: [b"\xff" * 16], (OTHER, 1): [ids[0]]}
        assert b"".join(chunks_near(connection, CLOSING, 0, ids[3])) == b"".join(ids[: CHUNK_BYTES // 16])
        assert list(chunks_near(connection, (SURVEY, 2), 0, ids[3])) == []
    with store.writing() as connection:
        put_runs(connection, [(CLOSING, 2, ids[0])])
        drop_runs(connection, [(CLOSING, 0), (CLOSING, 1)])
        assert runs_of(connection, [CLOSING]) == {CLOSING: [Run(2, ids[0], 16)]}


def test_what_is_sealed_stays_sealed_and_its_ids_go(store: Store, beside: Store) -> None:
    """Sealing an earlier closing changes nothing, and tallies stay; other surveys have seals of their own."""
    with store.writing() as connection:
        for survey in (SURVEY, OTHER):
            for period in (1, 2, 3):
                put_runs(connection, [((survey, period), 0, bytes(16))])
        add_tallies(connection, {NODE: tally(4)})
        seal_closings(connection, SURVEY, 2)
    with beside.writing() as connection:
        seal_closings(connection, SURVEY, 1)
    with store.reading() as connection:
        assert (sealed_period(connection, SURVEY), sealed_period(connection, OTHER)) == (2, 0)
        assert {*runs_of(connection, [(SURVEY, period) for period in (1, 2, 3)])} == {(SURVEY, 3)}
        assert {*runs_of(connection, [(OTHER, 1)])} == {(OTHER, 1)}
        assert tallies_of(connection, SURVEY)[0, 1].reports == 4


def test_folded_envelopes_go_when_their_time_is_over(store: Store) -> None:
    """Not what waits to be folded, nor what arrived later, nor what is held as it came early."""
    stream = stream_of(store)
    for number in range(4):
        put(store, stream, bytes([number]), now=number)
    with store.writing() as connection:
        prune(connection, 100, 100)
    assert len(logged(store)) == 4
    fold_next(store, 3)
    with store.writing() as connection:
        hold(connection, {(stream, 1): 50})
        prune(connection, 2, 10)
    assert logged(store) == [b"\0", b"\2", b"\3"]
    with store.reading() as connection:
        assert not any_to_prune(connection, 2, 50)
        assert any_to_prune(connection, 3, 50)
        assert any_to_prune(connection, 2, 51)
    with store.writing() as connection:
        prune(connection, 3, 51)
    assert logged(store) == [b"\3"]
    assert fold_next(store) == [b"\3"]


# What is published


def test_a_survey_stays_as_it_was_published_first(store: Store, beside: Store) -> None:
    """By whichever process; the second is told that it was there."""
    with store.writing() as connection:
        assert add_survey(connection, SURVEY, b"signed")
    with beside.writing() as connection:
        assert not add_survey(connection, SURVEY, b"signed otherwise")
        assert add_survey(connection, OTHER, b"too")
    with store.reading() as connection:
        assert published_surveys(connection) == {OTHER: b"too", SURVEY: b"signed"}


def test_whether_results_are_public_is_changed_and_the_survey_is_not(store: Store, beside: Store) -> None:
    """A new survey's are not; publishing it again leaves that unless it says otherwise."""
    for public, shown in ((None, set()), (True, {SURVEY}), (None, {SURVEY}), (False, set())):
        with beside.writing() as connection:
            add_survey(connection, SURVEY, b"signed", public)
        with store.reading() as connection:
            assert public_surveys(connection) == shown
            assert published_surveys(connection) == {SURVEY: b"signed"}


def test_a_token_is_known_by_its_hash_until_it_is_revoked(store: Store, beside: Store) -> None:
    """With its name, scopes and date, to every process."""
    first, second = new_token(), new_token()
    with store.writing() as connection:
        kept = add_token(connection, first, "me", {TokenScope.READ, TokenScope.FOLD}, UnixSeconds(2.5))
        other = add_token(connection, second, "tea app", {TokenScope.UPLOAD}, UnixSeconds(1.0))
    with beside.reading() as connection:
        assert list(tokens_by_hash(connection).items()) == [(hash_of(second), other), (hash_of(first), kept)]
    assert (kept.name, kept.scopes, kept.created) == ("me", {TokenScope.READ, TokenScope.FOLD}, 2)
    with beside.writing() as connection:
        assert revoke_token(connection, kept.id) == kept
        with pytest.raises(ValueError, match="there is no token"):
            revoke_token(connection, kept.id)
    with store.reading() as connection:
        assert list(tokens_by_hash(connection)) == [hash_of(second)]


def test_an_early_end_stays_as_it_was_published_first(store: Store, beside: Store) -> None:
    """The same again changes nothing; one after another period is refused, whichever process brings it."""
    with store.writing() as connection:
        assert add_end(connection, EarlyEnd(SURVEY, 3), b"signed")
    with beside.writing() as connection:
        assert not add_end(connection, EarlyEnd(SURVEY, 3), b"signed")
        assert add_end(connection, EarlyEnd(OTHER, 4), b"too")
        with pytest.raises(ValueError, match="ended after period 3 before"):
            add_end(connection, EarlyEnd(SURVEY, 4), b"signed otherwise")
    with store.reading() as connection:
        assert published_ends(connection) == {SURVEY: EarlyEnd(SURVEY, 3), OTHER: EarlyEnd(OTHER, 4)}


def test_of_many_who_publish_one_survey_one_is_the_first(place: Place, store: Store) -> None:
    """Each in a transaction that goes on after it was told so."""

    def publish(number: int) -> bool:
        own = place.open()
        with own.writing() as connection:
            first = add_survey(connection, SURVEY, b"signed")
            add_survey(connection, bytes([number]) * 16, b"own")
        own.close()
        return first

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(publish, range(4))) == 1
    with store.reading() as connection:
        assert len(published_surveys(connection)) == 5


def test_a_key_is_published_once_and_its_private_half_destroyed_when_it_is_over(store: Store, beside: Store) -> None:
    """Published again as it is it changes nothing; with other dates, or not made here, it is refused."""
    with store.writing() as connection:
        key = SealingKey(make_key(connection, IN_CLEAR), 10, 20)
        unsigned = make_key(connection, IN_CLEAR)
    signed = key.signed_by(AUTHORITY)
    with beside.writing() as connection:
        assert publish_key(connection, key, signed)
    with store.writing() as connection:
        assert not publish_key(connection, key, signed)
        with pytest.raises(ValueError, match="other dates"):
            publish_key(connection, SealingKey(key.public, 10, 21), b"signed otherwise")
        with pytest.raises(ValueError, match="did not make"):
            publish_key(connection, SealingKey(bytes(31) + b"\7", 0, 1), b"signed")
    with store.reading() as connection:
        (published,) = published_keys(connection).values()
        assert (published.key, published.signed) == (key, signed)
        assert len(private_keys(connection, IN_CLEAR)) == 2
        assert not any_expired(connection, 20)
        assert any_expired(connection, 21)
    with store.writing() as connection:
        assert (destroy_expired(connection, 20), destroy_expired(connection, 21)) == (0, 1)
    store.forget_overwritten(changed=True)
    with beside.reading() as connection:
        (left,) = private_keys(connection, IN_CLEAR).values()
        assert left.public_key().public_bytes_raw() == unsigned
        assert published_keys(connection) == {}


def test_of_published_keys_one_is_valid_at_a_time(store: Store) -> None:
    """One that would be valid along with another is refused with the dates to use; what joins is not."""
    with store.writing() as connection:
        middle, *others = [make_key(connection, IN_CLEAR) for _ in range(4)]
        assert publish(connection, SealingKey(middle, 1000, 2000))
        for begins, expires in ((0, 1001), (1999, 3000), (1200, 1300), (0, 9000)):
            with pytest.raises(
                ValueError, match=r"--begins 1970-01-01T00:33:20Z or later, .* 1970-01-01T00:16:40Z or e"
            ):
                publish(connection, SealingKey(others[0], begins, expires))
        assert publish(connection, SealingKey(others[0], 2000, 3000))
        assert publish(connection, SealingKey(others[1], 5, 1000))
        assert len(published_keys(connection)) == 3


def test_of_keys_that_many_publish_at_once_one_is_valid_at_a_time(place: Place, store: Store) -> None:
    """Whoever is second is refused, though the first was not there when it began."""
    with store.writing() as connection:
        publics = [make_key(connection, IN_CLEAR) for _ in range(4)]
    at_once = Barrier(4)

    def publish_own(public: bytes) -> bool:
        own = place.open()
        at_once.wait(100)
        try:
            with own.writing() as connection:
                return publish(connection, SealingKey(public, 10, 20))
        except ValueError:
            return False
        finally:
            own.close()

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(publish_own, publics)) == 1
    with store.reading() as connection:
        assert len(published_keys(connection)) == 1


def test_a_key_whose_private_half_is_gone_is_not_published(store: Store) -> None:
    """Neither one that was, which is listed no more, nor one that never was."""
    with store.writing() as connection:
        key = SealingKey(make_key(connection, IN_CLEAR), 10, 20)
        unsigned = SealingKey(make_key(connection, IN_CLEAR), 20, 30)
        publish(connection, key)
        destroy_expired(connection, 21)
        connection.execute(update(sealing_keys).values(private=None))
        assert published_keys(connection) == {}
        with pytest.raises(ValueError, match="private half is destroyed"):
            publish(connection, unsigned)
        states = {life.id: life.state(25) for life in key_lives(connection)}
    assert states == {key.id: KeyState.DESTROYED, unsigned.id: KeyState.DESTROYED}


def test_the_life_of_a_key(store: Store) -> None:
    """From unsigned over pending and active to expired; its last second is one in which it is active."""
    with store.writing() as connection:
        key = SealingKey(make_key(connection, IN_CLEAR), 10, 20)
        (life,) = key_lives(connection)
        assert life.state(15) is KeyState.UNSIGNED
        publish(connection, key)
        (life,) = key_lives(connection)
    assert [life.state(now).value for now in (9, 10, 20, 21)] == ["pending", "active", "active", "expired"]


def test_private_keys_are_encrypted_under_the_store_key(store: Store) -> None:
    """They open under it alone, also once it was replaced; what is stored says nothing of them."""
    first, second = (AtRest(bytes([number]) * 32) for number in (1, 2))
    with store.writing() as connection:
        make_key(connection, IN_CLEAR)
        assert encrypt_in_clear(connection, first)
        assert not encrypt_in_clear(connection, first)
        make_key(connection, first)
        private = private_keys(connection, first)
        assert not any(life.in_clear for life in key_lives(connection))
        for other in (IN_CLEAR, second):
            with pytest.raises(StoreError, match="store key"):
                private_keys(connection, other)
            with pytest.raises(StoreError, match="store key"):
                make_key(connection, other)
        assert encrypt_again(connection, first, second) == 2
        again = private_keys(connection, second)
        with pytest.raises(StoreError, match="another store key"):
            private_keys(connection, first)
        kept = connection.execute(select(sealing_keys.c.private)).scalars().all()
    assert {id_: each.private_bytes_raw() for id_, each in again.items()} == {
        id_: each.private_bytes_raw() for id_, each in private.items()
    }
    assert not any(each.private_bytes_raw() in stored for each in private.values() for stored in kept)


def publish(connection: Connection, key: SealingKey) -> bool:
    return publish_key(connection, key, key.signed_by(AUTHORITY))


def test_what_is_shown_is_kept_lot_by_lot(store: Store, beside: Store) -> None:
    """Another process reads the same; of a lot the last snapshot stays; what is new since a revision can be had."""
    plan = hierarchical(3, 8, (1, 2), Odds(3, 1))
    tally = NodeTally(5, np.array([1, 2, 2]))
    with store.writing() as connection:
        add_tallies(connection, {(SURVEY, 0, 2, 0): tally, (SURVEY, 1, 1, 0): tally, (SURVEY, 0, 3, 1): tally})
        add_attendance(connection, {(SURVEY, 0, 2, 0): Attendance(7, 1, 1)})
        counted = counted_lots(connection, SURVEY, plan, 0, 2)
        assert {key: (lot.attendance, set(lot.nodes)) for key, lot in counted.items()} == {
            (2, 0, 0): (Attendance(7, 1, 1), {(0, 2), (1, 1)})
        }
        assert counted_lots(connection, SURVEY, plan, 2, 3).keys() == {(3, 0, 1)}
        put_snapshots(connection, SURVEY, 1, {**counted, (3, 0, 1): Lot()}, [])
        put_looked(connection, SURVEY, Looked(1, 0, 3, 9))
        put_snapshots(connection, SURVEY, 2, {(3, 0, 1): Lot(Attendance(4))}, [(3, 0, 1)])
        put_looked(connection, SURVEY, Looked(2, 2, 3, 9))
    with beside.reading() as connection:
        shown = shown_lots(connection, SURVEY)
        assert shown.keys() == {(2, 0, 0), (3, 0, 1)}
        assert shown[2, 0, 0].counts == {None: 7, (0, 2): 5, (1, 1): 5}
        assert shown[2, 0, 0].nodes[0, 2].slots.tolist() == [1, 2, 2]
        assert {key: lot.attendance.heard for key, lot in shown_lots(connection, SURVEY, since=1).items()} == {
            (3, 0, 1): 4
        }
        assert shown_lots(connection, SURVEY, after=2, until=2) == {}
        assert looked_at(connection) == {SURVEY: Looked(2, 2, 3, 9)}


def test_files_of_ids_take_each_others_place_at_once(store: Store, beside: Store) -> None:
    """All or none; who would replace files that another has replaced meanwhile is overtaken, and keeps nothing."""
    first, second, third = (IdFile("/a/place", f"ids-{number}", SURVEY, number) for number in range(3))
    with store.writing() as connection:
        replace_files(connection, [], [first, second])
    with beside.reading() as connection:
        assert registered_files(connection) == [first, second]
    with beside.writing() as connection:
        replace_files(connection, [first], [third])
    with pytest.raises(Overtaken), store.writing() as connection:
        replace_files(connection, [first, second], [])
    with store.reading() as connection:
        assert registered_files(connection) == [second, third]
