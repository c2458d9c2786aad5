# mypy: disable-error-code="list-item, arg-type, dict-item, index, comparison-overlap, return-value"
"""The contract of a store: what each must do, whatever database holds it, with one process or several at it."""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random
from threading import Barrier, Event
from typing import TypeAlias

import numpy as np
import pytest
from changeling_protocol import (
    EarlyEnd,
    Group,
    KaryResponse,
    MutationSpace,
    Odds,
    Refusal,
    ReleasePlan,
    SealingKey,
    SurveyId,
    Track,
    UnixMilliseconds,
    UnixSeconds,
)
from changeling_statistics import Attendance, NodeTally
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ..errors import Overtaken, StoreError
from ..store import (
    CHUNK_BYTES,
    AtRest,
    IdFile,
    IdRun,
    KeptTime,
    KeyState,
    LoggedRequest,
    Lot,
    RunName,
    SnapshotProgress,
    Store,
    TokenScope,
    Transaction,
    View,
    cursors_after,
    hash_of,
    new_token,
)
from .stores import sql

Opener: TypeAlias = Callable[..., Store]
"""Opens one store, as another process would each time; takes what `Store.open` does behind the place."""

SURVEY, OTHER = SurveyId(b"survey of 16 by."), SurveyId(b"another survey..")
NODE, CLOSING = (SURVEY, 0, 1, 0), (SURVEY, 1)
AUTHORITY = Ed25519PrivateKey.generate()


def put(store: Store, stream: int, *envelopes: bytes, now: int = 0) -> None:
    """Append as a server does."""
    store.append(stream, envelopes, UnixMilliseconds(now))


def fold_next(store: Store, most: int = 100) -> list[bytes]:
    """Move the cursors over the next envelopes, as a fold does. Raises Overtaken."""
    with store.view() as view:
        envelopes = view.unread(most, 2**20)
    with store.transaction() as writing:
        writing.add(cursors_after(envelopes))
    return [logged.body for logged in envelopes]


def whole_log(view: View) -> list[LoggedRequest]:
    """All that is kept, in the log's order."""
    return sorted(view.kept_requests())


def logged(store: Store) -> list[bytes]:
    """The bodies of all that is kept, in the log's order."""
    with store.view() as view:
        return [each.body for each in whole_log(view)]


def tally(*slots: int) -> NodeTally:
    """A tally with these slots."""
    return NodeTally(sum(slots), np.array(slots, np.int64))


def publish(writing: Transaction, key: SealingKey) -> bool:
    """Publish a key as the authority signs it."""
    return writing.publish_key(key, key.signed_by(AUTHORITY))


def publish_surveys(writing: Transaction) -> None:
    """Publish both surveys."""
    for survey in (SURVEY, OTHER):
        writing.add_survey(survey, b"signed")


class StoreContract:
    """Subclass it with a fixture `open_store`, which gives what opens one new store as often as it is called."""

    @pytest.fixture
    def store(self, open_store: Opener) -> Iterator[Store]:
        """An open store."""
        opened = open_store()
        yield opened
        opened.close()

    @pytest.fixture
    def beside(self, open_store: Opener, store: Store) -> Iterator[Store]:  # noqa: ARG002
        """The same store, opened by another process, as it were."""
        opened = open_store()
        yield opened
        opened.close()

    # Transactions

    def test_a_transaction_that_raises_leaves_nothing(self, store: Store, beside: Store) -> None:
        """Neither an envelope nor a stream, nor the arrival that it took."""
        stream = store.open_stream(SURVEY)
        put(store, stream, b"kept", now=10)

        def broken() -> None:
            with store.transaction() as writing:
                writing.append(stream, [b"lost"], 99)
                writing.open_stream(SURVEY)
                raise KeyError

        with pytest.raises(KeyError):
            broken()
        assert logged(beside) == [b"kept"]
        with beside.view() as view:
            assert view.latest_arrival() == 10
        put(store, stream, b"next", now=10)
        assert logged(store) == [b"kept", b"next"]

    def test_a_reader_sees_one_state_and_keeps_no_writer_waiting(self, store: Store, beside: Store) -> None:
        """What others commit while it reads is not there for it; for the next reader it is."""
        stream = store.open_stream(SURVEY)
        put(store, stream, b"first")
        with store.view() as view:
            assert view.unfolded() == 1
            put(beside, stream, b"second")
            assert view.unfolded() == 1
            assert len(view.unread(9, 999)) == 1
        with store.view() as view:
            assert view.unfolded() == 2

    def test_what_is_committed_is_there_when_the_store_is_opened_again(self, open_store: Opener, store: Store) -> None:
        """By whoever opens it."""
        stream = store.open_stream(SURVEY)
        put(store, stream, b"envelope", now=7)
        store.close()
        again = open_store()
        assert logged(again) == [b"envelope"]
        assert again.open_stream(SURVEY) != stream
        again.close()

    # The log

    def test_streams_have_numbers_of_their_own_and_no_gaps(self, store: Store, beside: Store) -> None:
        """However many processes open one at once."""
        with ThreadPoolExecutor(4) as pool:
            numbers = list(pool.map(Store.open_stream, [store, beside] * 10, [SURVEY] * 20))
        assert len(set(numbers)) == 20
        put(store, numbers[0], b"a", b"b")
        put(beside, numbers[0], b"c")
        with store.view() as view:
            assert [each.position for each in whole_log(view)] == [1, 2, 3]

    def test_arrivals_never_decrease_and_follow_the_order_of_commits(self, store: Store) -> None:
        """However the clocks of two streams run, (arrival, stream, position) is the order of appending."""
        first, second = store.open_stream(SURVEY), store.open_stream(SURVEY)
        order = [(first, 100), (second, 100), (first, 100), (second, 40), (first, 300), (first, 10), (second, 301)]
        for number, (stream, now) in enumerate(order):
            put(store, stream, bytes([number]), now=now)
        with store.view() as view:
            envelopes = list(whole_log(view))
            assert view.latest_arrival() == 301
        assert [each.body[0] for each in envelopes] == list(range(len(order)))
        assert [each.arrival for each in envelopes] == [100, 100, 101, 101, 300, 300, 301]
        assert [each.position for each in envelopes if each.stream == first] == [1, 2, 3, 4]

    def test_held_arrivals_never_go_back(self, store: Store) -> None:
        """Whatever the clock of the next appender shows, and if somebody would hold them earlier."""
        stream = store.open_stream(SURVEY)
        with store.transaction() as writing:
            writing.raise_arrival_floor(500)
            writing.raise_arrival_floor(400)
            assert writing.advance_arrival(stream, 450) == 500
            assert writing.advance_arrival(stream, 501) == 501
            assert writing.latest_arrival() == 501

    def test_reading_stops_at_the_bound_and_merges_streams(self, store: Store) -> None:
        """A batch is the first envelopes of all streams together, at most so many or so many bytes."""
        streams = [store.open_stream(SURVEY) for _ in range(3)]
        for number in range(9):
            put(store, streams[number % 3], bytes([number]) * 10, now=number)
        with store.view() as view:
            assert [each.body[0] for each in view.unread(5, 1000)] == [0, 1, 2, 3, 4]
            assert [each.body[0] for each in view.unread(100, 25)] == [0, 1, 2]
            assert view.first_unfolded() == 0
        assert len(fold_next(store, 4)) == 4
        with store.view() as view:
            assert view.first_unfolded() == 4
            assert view.unfolded() == 5
        fold_next(store)
        with store.view() as view:
            assert (view.unread(9, 999), view.first_unfolded(), view.unfolded()) == ([], None, 0)

    def test_of_many_who_append_at_once_each_keeps_its_order_and_a_reader_misses_nothing(
        self, open_store: Opener, store: Store
    ) -> None:
        """Four processes with clocks that jump, and one that reads: what it sees later lies behind what it saw."""
        appended, done, at_once = 40, Event(), Barrier(5)

        def appender(number: int) -> list[bytes]:
            own, random, mine = open_store(), Random(number), []
            stream = own.open_stream(SURVEY)
            at_once.wait(100)
            for count in range(appended):
                envelopes = [bytes([number, count, i]) for i in range(random.randint(1, 3))]
                put(own, stream, *envelopes, now=random.randint(1, 50))
                mine += envelopes
            own.close()
            return mine

        def reader() -> list[tuple[int, int, int]]:
            own, seen = open_store(), []
            at_once.wait(100)
            last = False
            while not last:
                last = done.is_set()
                with own.view() as view:
                    batch = view.unread(7, 2**20)
                while batch:
                    seen += [each[:3] for each in batch]
                    with own.transaction() as writing:
                        writing.add(cursors_after(batch))
                    with own.view() as view:
                        batch = view.unread(7, 2**20)
            own.close()
            return seen

        with ThreadPoolExecutor(5) as pool:
            reading = pool.submit(reader)
            sent = list(pool.map(appender, range(4)))
            done.set()
            seen = reading.result(100)
        with store.view() as view:
            log = list(whole_log(view))
        assert seen == sorted(seen) == [each[:3] for each in log]
        for number, mine in enumerate(sent):
            assert [each.body for each in log if each.body[0] == number] == mine
        positions = Counter(each.stream for each in log)
        assert {each.position for each in log if each.stream == log[0].stream} == set(
            range(1, positions[log[0].stream] + 1)
        )

    def test_after_stop_appending_nothing_comes_until_the_transaction_ends(self, store: Store, beside: Store) -> None:
        """An appender waits, and its arrival is after what was held meanwhile."""
        stream, stopped = beside.open_stream(SURVEY), Event()

        def late() -> None:
            stopped.wait(100)
            put(beside, stream, b"late", now=5)

        with ThreadPoolExecutor(1) as pool:
            appending = pool.submit(late)
            with store.transaction() as writing:
                writing.stop_appending()
                stopped.set()
                for _ in range(20):
                    assert writing.first_unfolded() is None
                assert not appending.done()
                writing.raise_arrival_floor(1000)
            appending.result(100)
        with store.view() as view:
            assert view.first_unfolded() == 1000

    def test_arrivals_given_out_ahead_are_set_back(self, store: Store, beside: Store) -> None:
        """As far as nothing was sealed; what is not folded arrived then, too, and the order of appending stays."""
        first, second = store.open_stream(SURVEY), store.open_stream(SURVEY)
        put(store, first, b"folded", now=9000)
        fold_next(store)
        for number, stream in enumerate((second, first, second)):
            put(store, stream, bytes([number]), now=9000)
        with store.transaction() as writing:
            writing.raise_arrival_floor(100)
            writing.stop_appending()
            writing.set_back_arrivals(50)
            assert writing.latest_arrival() == 100
        put(beside, first, b"next", now=60)
        put(beside, second, b"last", now=150)
        with store.view() as view:
            unseen = view.unread(9, 999)
            assert [each.arrival for each in whole_log(view) if each.body == b"folded"] == [9000]
        assert [each.arrival for each in unseen[:3]] == [100, 100, 100]
        assert [each.body for each in unseen[3:]] == [b"next", b"last"]
        assert 100 < unseen[3].arrival < unseen[4].arrival == 150

    def test_the_time_that_was_kept_is_there_for_the_next_process(self, store: Store, beside: Store) -> None:
        """None at first; then the last that was kept, also if it is earlier."""
        for kept in (KeptTime(0, False), KeptTime(2**41, True), KeptTime(2**40, False)):
            with store.transaction() as writing:
                if kept.told:
                    writing.keep_time(kept)
            with beside.view() as view:
                assert view.kept_time() == kept

    # The fold

    def test_of_two_folders_that_read_the_same_one_is_overtaken_and_leaves_nothing(
        self, store: Store, beside: Store
    ) -> None:
        """Also where their batches are of different lengths: both begin with the first that is unread."""
        stream, other = store.open_stream(SURVEY), store.open_stream(SURVEY)
        put(store, stream, b"1", now=1)
        put(store, other, b"2", now=2)
        with store.view() as view:
            long = view.unread(9, 999)
        with beside.view() as view:
            short = view.unread(1, 999)
        with store.transaction() as writing:
            writing.add(cursors_after(long))
            writing.add({}, tallies={NODE: tally(1, 1)})

        def overtaken() -> None:
            with beside.transaction() as writing:
                writing.add({}, tallies={NODE: tally(5, 5)})
                writing.add(cursors_after(short))

        with pytest.raises(Overtaken):
            overtaken()
        with store.view() as view:
            assert view.tallies(SURVEY)[0, 1].reports == 2
            assert view.unfolded() == 0

    def test_whatever_is_folded_by_however_many_is_counted_once(self, open_store: Opener, store: Store) -> None:
        """Three folders in small batches, each trying again when it was overtaken: together they count all."""
        streams = [store.open_stream(SURVEY) for _ in range(3)]
        for number in range(60):
            put(store, streams[number % 3], bytes([number]), now=number)

        def folder(most: int) -> int:
            own, counted = open_store(), 0
            while True:
                with own.view() as view:
                    batch = view.unread(most, 2**20)
                if not batch:
                    own.close()
                    return counted
                try:
                    with own.transaction() as writing:
                        writing.add(cursors_after(batch))
                        writing.add({}, tallies={NODE: tally(len(batch), 0)})
                except Overtaken:
                    continue
                counted += len(batch)

        with ThreadPoolExecutor(3) as pool:
            assert sum(pool.map(folder, (2, 3, 5))) == 60
        with store.view() as view:
            assert view.tallies(SURVEY)[0, 1].slots.tolist() == [60, 0]

    def test_one_process_at_a_time_has_the_turn_to_fold(self, store: Store, beside: Store) -> None:
        """Another has it once it was given back, and what was written in a turn is kept."""
        stream = store.open_stream(SURVEY)
        with store.turn_to_fold() as turn, beside.turn_to_fold() as other:
            assert turn
            assert other is None
            with turn.transaction() as writing:
                writing.append(stream, [b"kept"], 0)
            with beside.turn_to_fold() as other:
                assert other is None
            put(beside, stream, b"too")
        with beside.turn_to_fold() as other:
            assert other
            with store.turn_to_fold() as turn:
                assert turn is None

            def broken() -> None:
                with other.transaction() as writing:
                    writing.append(stream, [b"lost"], 0)
                    raise KeyError

            with pytest.raises(KeyError):
                broken()
            with other.transaction() as writing:
                assert writing.unfolded() == 2
        assert logged(store) == [b"kept", b"too"]

    def test_a_turn_is_given_back_whatever_was_raised_in_it(self, store: Store, beside: Store) -> None:
        """Also within one of its transactions."""

        def broken() -> None:
            with store.turn_to_fold() as turn:
                assert turn
                with turn.transaction():
                    raise KeyError

        with pytest.raises(KeyError):
            broken()
        with beside.turn_to_fold() as other:
            assert other

    def test_tallies_add_up_node_by_node(self, store: Store) -> None:
        """Of one survey, by track and node; sums beyond 32 bits."""
        with store.transaction() as writing:
            writing.add({}, tallies={NODE: tally(1, 0, 2), (SURVEY, 1, 7, 0): tally(2**40), (OTHER, 0, 1, 0): tally(9)})
        with store.transaction() as writing:
            writing.add({}, tallies={NODE: tally(0, 5, 1), (SURVEY, 1, 7, 0): tally(2**40)})
        with store.view() as view:
            held = view.tallies(SURVEY)
        assert {key: (of.reports, of.slots.tolist()) for key, of in held.items()} == {
            (0, 1): (9, [1, 5, 3]),
            (1, 7): (2**41, [2**41]),
        }

    def test_strata_and_attendance_add_up(self, store: Store) -> None:
        """Of one survey, of the strata that are asked for; those that nobody is in add nothing."""
        for _ in range(2):
            with store.transaction() as writing:
                writing.add(
                    {}, tallies={(SURVEY, 0, 1, 3): tally(1, 0), NODE: tally(0, 4), (SURVEY, 0, 1, 1000): tally(2, 2)}
                )
                writing.add(
                    {},
                    attendance={
                        (SURVEY, 0, 4, 3): Attendance(5, 2, 1),
                        (SURVEY, 0, 4, 0): Attendance(2**40, 0, 0),
                        (SURVEY, 1, 4, 3): Attendance(7, 0, 7),
                        (OTHER, 0, 4, 3): Attendance(9, 9, 9),
                    },
                )
        with store.transaction() as writing:
            writing.add({}, tallies={(SURVEY, 0, 1, 3): tally(1, 0), (SURVEY, 0, 1, 5): tally(0, 1)})
        with store.view() as view:
            of = {strata: view.tallies(SURVEY, strata) for strata in (None, (), (3,), (0, 3), (0, 3, 5, 6, 1000))}
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

    def test_refusals_of_all_processes_add_up(self, open_store: Opener, store: Store) -> None:
        """Though each is the first to count them."""

        def refuse(_: int) -> None:
            own = open_store()
            for _ in range(10):
                with own.transaction() as writing:
                    writing.add_refusals({(SURVEY, Refusal.LATE): 1, (SURVEY, Refusal.CLOSED): 2})
            own.close()

        with ThreadPoolExecutor(3) as pool:
            list(pool.map(refuse, range(3)))
        with store.view() as view:
            assert view.refusals(SURVEY) == {Refusal.LATE: 30, Refusal.CLOSED: 60}
            assert view.refusals(OTHER) == {}

    def test_ids_are_found_and_replaced_by_run(self, store: Store) -> None:
        """A run is read back in order whatever its length; of a few ids, the chunks that could hold them."""
        ids = [number.to_bytes(16) for number in range(CHUNK_BYTES // 16 * 2 + 5)]
        with store.transaction() as writing:
            writing.put_runs([(CLOSING, 0, b"".join(ids)), (CLOSING, 1, b"\xff" * 16), ((OTHER, 1), 0, ids[0])])
        with store.view() as view:
            assert view.runs([CLOSING, (SURVEY, 2), (OTHER, 1)]) == {
                CLOSING: [IdRun(0, ids[0], 3 * CHUNK_BYTES), IdRun(1, b"\xff" * 16, 16)],
                (OTHER, 1): [IdRun(0, ids[0], 16)],
            }
            assert view.chunks([CLOSING, (SURVEY, 2), (OTHER, 1)]) == {
                CLOSING: {RunName(0, ids[0]): 3, RunName(1, b"\xff" * 16): 1},
                (OTHER, 1): {RunName(0, ids[0]): 1},
            }
            assert b"".join(view.read_run(CLOSING, 0)) == b"".join(ids)
            assert view.read_runs([(CLOSING, 1), ((OTHER, 1), 0)]) == {CLOSING: [b"\xff" * 16], (OTHER, 1): [ids[0]]}
            assert b"".join(view.chunks_near(CLOSING, 0, ids[3])) == b"".join(ids[: CHUNK_BYTES // 16])
            assert list(view.chunks_near((SURVEY, 2), 0, ids[3])) == []
        with store.transaction() as writing:
            writing.put_runs([(CLOSING, 2, ids[0])])
            writing.drop_runs([(CLOSING, 0), (CLOSING, 1)])
            assert writing.runs([CLOSING]) == {CLOSING: [IdRun(2, ids[0], 16)]}

    def test_what_is_sealed_stays_sealed_and_its_ids_go(self, store: Store, beside: Store) -> None:
        """Sealing an earlier closing changes nothing, and tallies stay; other surveys have seals of their own."""
        with store.transaction() as writing:
            publish_surveys(writing)
            for survey in (SURVEY, OTHER):
                for period in (1, 2, 3):
                    writing.put_runs([((survey, period), 0, bytes(16))])
            writing.add({}, tallies={NODE: tally(4)})
            writing.seal(SURVEY, 2)
        with beside.transaction() as writing:
            writing.seal(SURVEY, 1)
        with store.view() as view:
            assert (view.sealed_period(SURVEY), view.sealed_period(OTHER)) == (2, 0)
            assert {*view.runs([(SURVEY, period) for period in (1, 2, 3)])} == {(SURVEY, 3)}
            assert {*view.runs([(OTHER, 1)])} == {(OTHER, 1)}
            assert view.tallies(SURVEY)[0, 1].reports == 4

    def test_folded_requests_go_when_their_surveys_grace_is_over(self, store: Store) -> None:
        """Not what waits to be folded, nor what arrived later, nor what came early, nor another survey's."""
        stream, other = store.open_stream(SURVEY), store.open_stream(OTHER)
        for number in range(4):
            put(store, stream, bytes([number]), now=number)
        put(store, other, b"other", now=4)

        def delete(now: int) -> list[bytes]:
            with store.transaction() as writing:
                writing.apply_retention(now, {SURVEY: 10}, 1000)
            return logged(store)

        assert len(delete(2000)) == 5
        with store.transaction() as writing:
            writing.add({stream: (0, 3), other: (0, 1)}, needed_until={(stream, 1): 50})
        assert delete(12) == [b"\0", b"\2", b"\3", b"other"]
        with store.view() as view:
            assert not view.retention_due(12, {SURVEY: 10}, 1000)
            assert view.retention_due(13, {SURVEY: 10}, 1000)
            assert view.retention_due(51, {SURVEY: 49}, 1000)
        assert delete(13) == [b"\0", b"\3", b"other"]
        assert delete(51) == [b"\3", b"other"]
        assert delete(1005) == [b"\3"]
        assert fold_next(store) == [b"\3"]

    def test_many_requests_are_deleted_a_bounded_number_at_a_time(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whoever appends waits for a transaction; what is left is due at once, and goes with the next ones."""
        monkeypatch.setattr("changeling_aggregator.store.log._MOST_DELETED", 3)
        stream, early = store.open_stream(SURVEY), store.open_stream(OTHER)
        put(store, stream, *(bytes([number]) for number in range(7)))
        put(store, early, *(bytes([number]) for number in range(4)))
        kept = {(early, position): 10 for position in range(1, 5)}
        with store.transaction() as writing:
            writing.add({stream: (0, 7), early: (0, 4)}, needed_until=kept)
        left, due = [], True
        while due:
            with store.transaction() as writing:
                writing.apply_retention(100, {}, 10)
            left.append(len(logged(store)))
            with store.view() as view:
                due = view.retention_due(100, {}, 10)
        assert left == [5, 1, 0]

    # What is published

    def test_a_survey_stays_as_it_was_published_first(self, store: Store, beside: Store) -> None:
        """By whichever process; the second is told that it was there."""
        with store.transaction() as writing:
            assert writing.add_survey(SURVEY, b"signed")
        with beside.transaction() as writing:
            assert not writing.add_survey(SURVEY, b"signed otherwise")
            assert writing.add_survey(OTHER, b"too")
        with store.view() as view:
            assert view.signed_surveys() == {OTHER: b"too", SURVEY: b"signed"}

    def test_whether_results_are_public_is_changed_and_the_survey_is_not(self, store: Store, beside: Store) -> None:
        """A new survey's are not; publishing it again leaves that unless it says otherwise."""
        for public, shown in ((None, set()), (True, {SURVEY}), (None, {SURVEY}), (False, set())):
            with beside.transaction() as writing:
                writing.add_survey(SURVEY, b"signed", public)
            with store.view() as view:
                assert view.public_surveys() == shown
                assert view.signed_surveys() == {SURVEY: b"signed"}

    def test_a_token_is_known_by_its_hash_until_it_is_revoked(self, store: Store, beside: Store) -> None:
        """With its name, scopes and date, to every process."""
        first, second = new_token(), new_token()
        with store.transaction() as writing:
            kept = writing.add_token(first, "me", {TokenScope.READ, TokenScope.FOLD}, UnixSeconds(2.5))
            other = writing.add_token(second, "tea app", {TokenScope.UPLOAD}, UnixSeconds(1.0))
        with beside.view() as view:
            assert list(view.tokens().items()) == [(hash_of(second), other), (hash_of(first), kept)]
        assert (kept.name, kept.scopes, kept.created) == ("me", {TokenScope.READ, TokenScope.FOLD}, 2)
        with beside.transaction() as writing:
            assert writing.revoke_token(kept.id) == kept
            with pytest.raises(ValueError, match="there is no token"):
                writing.revoke_token(kept.id)
        with store.view() as view:
            assert list(view.tokens()) == [hash_of(second)]

    def test_an_early_end_stays_as_it_was_published_first(self, store: Store, beside: Store) -> None:
        """The same again changes nothing; one after another period is refused, whichever process brings it."""
        with store.transaction() as writing:
            with pytest.raises(ValueError, match="not published"):
                writing.add_early_end(EarlyEnd(SURVEY, 3), b"signed")
            publish_surveys(writing)
            assert writing.add_early_end(EarlyEnd(SURVEY, 3), b"signed")
        with beside.transaction() as writing:
            assert not writing.add_early_end(EarlyEnd(SURVEY, 3), b"signed")
            assert writing.add_early_end(EarlyEnd(OTHER, 4), b"too")
            with pytest.raises(ValueError, match="ended after period 3 before"):
                writing.add_early_end(EarlyEnd(SURVEY, 4), b"signed otherwise")
        with store.view() as view:
            assert view.early_ends() == {SURVEY: EarlyEnd(SURVEY, 3), OTHER: EarlyEnd(OTHER, 4)}

    def test_of_many_who_publish_one_survey_one_is_the_first(self, open_store: Opener, store: Store) -> None:
        """Each in a transaction that goes on after it was told so."""

        def publish(number: int) -> bool:
            own = open_store()
            with own.transaction() as writing:
                first = writing.add_survey(SURVEY, b"signed")
                writing.add_survey(bytes([number]) * 16, b"own")
            own.close()
            return first

        with ThreadPoolExecutor(4) as pool:
            assert sum(pool.map(publish, range(4))) == 1
        with store.view() as view:
            assert len(view.signed_surveys()) == 5

    def test_a_key_is_published_once_and_its_private_half_destroyed_when_it_is_over(
        self, store: Store, beside: Store
    ) -> None:
        """Published again as it is it changes nothing; with other dates, or not made here, it is refused."""
        with store.transaction() as writing:
            key = SealingKey(writing.make_key(), 10, 20)
            unsigned = writing.make_key()
        signed = key.signed_by(AUTHORITY)
        with beside.transaction() as writing:
            assert writing.publish_key(key, signed)
        with store.transaction() as writing:
            assert not writing.publish_key(key, signed)
            with pytest.raises(ValueError, match="other dates"):
                writing.publish_key(SealingKey(key.public, 10, 21), b"signed otherwise")
            with pytest.raises(ValueError, match="did not make"):
                writing.publish_key(SealingKey(bytes(31) + b"\7", 0, 1), b"signed")
        with store.view() as view:
            (published,) = view.published_keys().values()
            assert (published.key, published.signed) == (key, signed)
            assert len(view.private_keys()) == 2
            assert not view.any_key_expired(20)
            assert view.any_key_expired(21)
        with store.transaction() as writing:
            assert (writing.destroy_expired_keys(20), writing.destroy_expired_keys(21)) == (0, 1)
        store.forget_overwritten(changed=True)
        with beside.view() as view:
            (left,) = view.private_keys().values()
            assert left.public_key().public_bytes_raw() == unsigned
            assert view.published_keys() == {}

    def test_of_published_keys_one_is_valid_at_a_time(self, store: Store) -> None:
        """One that would be valid along with another is refused with the dates to use; what joins is not."""
        with store.transaction() as writing:
            middle, *others = [writing.make_key() for _ in range(4)]
            assert publish(writing, SealingKey(middle, 1000, 2000))
            for begins, expires in ((0, 1001), (1999, 3000), (1200, 1300), (0, 9000)):
                with pytest.raises(
                    ValueError, match=r"--begins 1970-01-01T00:33:20Z or later, .* 1970-01-01T00:16:40Z or e"
                ):
                    publish(writing, SealingKey(others[0], begins, expires))
            assert publish(writing, SealingKey(others[0], 2000, 3000))
            assert publish(writing, SealingKey(others[1], 5, 1000))
            assert len(writing.published_keys()) == 3

    def test_of_keys_that_many_publish_at_once_one_is_valid_at_a_time(self, open_store: Opener, store: Store) -> None:
        """Whoever is second is refused, though the first was not there when it began."""
        with store.transaction() as writing:
            publics = [writing.make_key() for _ in range(4)]
        at_once = Barrier(4)

        def publish_own(public: bytes) -> bool:
            own = open_store()
            at_once.wait(100)
            try:
                with own.transaction() as writing:
                    return publish(writing, SealingKey(public, 10, 20))
            except ValueError:
                return False
            finally:
                own.close()

        with ThreadPoolExecutor(4) as pool:
            assert sum(pool.map(publish_own, publics)) == 1
        with store.view() as view:
            assert len(view.published_keys()) == 1

    def test_a_key_whose_private_half_is_gone_is_not_published(self, store: Store) -> None:
        """Neither one that was, which is listed no more, nor one that never was."""
        with store.transaction() as writing:
            key = SealingKey(writing.make_key(), 10, 20)
            unsigned = SealingKey(writing.make_key(), 20, 30)
            publish(writing, key)
            writing.destroy_expired_keys(21)
        sql(store, "UPDATE sealing_keys SET private = NULL")
        with store.transaction() as writing:
            assert writing.published_keys() == {}
            with pytest.raises(ValueError, match="private half is destroyed"):
                publish(writing, unsigned)
            states = {life.id: life.state(25) for life in writing.key_lives()}
        assert states == {key.id: KeyState.DESTROYED, unsigned.id: KeyState.DESTROYED}

    def test_the_life_of_a_key(self, store: Store) -> None:
        """From unsigned over pending and active to expired; its last second is one in which it is active."""
        with store.transaction() as writing:
            key = SealingKey(writing.make_key(), 10, 20)
            (life,) = writing.key_lives()
            assert life.state(15) is KeyState.UNSIGNED
            publish(writing, key)
            (life,) = writing.key_lives()
        assert [life.state(now).value for now in (9, 10, 20, 21)] == ["pending", "active", "active", "expired"]

    def test_private_keys_are_encrypted_under_the_store_key(self, open_store: Opener, store: Store) -> None:
        """They open under it alone, also once it was replaced; what is stored says nothing of them."""
        first, second = (AtRest(bytes([number]) * 32) for number in (1, 2))
        under = {key: open_store(key) for key in (first, second)}
        with store.transaction() as writing:
            writing.make_key()
        with under[first].transaction() as writing:
            assert writing.encrypt_keys_in_clear()
            assert not writing.encrypt_keys_in_clear()
            writing.make_key()
            private = writing.private_keys()
            assert not any(life.in_clear for life in writing.key_lives())
        for other in (store, under[second]):
            with other.transaction() as writing, pytest.raises(StoreError, match="store key"):
                writing.private_keys()
            with other.transaction() as writing, pytest.raises(StoreError, match="store key"):
                writing.make_key()
        with under[first].transaction() as writing:
            assert writing.encrypt_keys(second) == 2
            with pytest.raises(StoreError, match="another store key"):
                writing.private_keys()
        with under[second].view() as view:
            again = view.private_keys()
        assert {id_: each.private_bytes_raw() for id_, each in again.items()} == {
            id_: each.private_bytes_raw() for id_, each in private.items()
        }
        stored = [kept for (kept,) in sql(store, "SELECT private FROM sealing_keys")]
        assert not any(each.private_bytes_raw() in kept for each in private.values() for kept in stored)
        for each in under.values():
            each.close()

    def test_what_is_shown_is_kept_lot_by_lot(self, store: Store, beside: Store) -> None:
        """Another process reads the same; of a lot the last snapshot stays; what is new since a revision can be had."""
        response = KaryResponse(MutationSpace(3), Odds(3, 1))
        plan = ReleasePlan((Group(tuple(Track(width, response, 0, 8) for width in (1, 2))),))
        tally = NodeTally(5, np.array([1, 2, 2]))
        with store.transaction() as writing:
            writing.add({}, tallies={(SURVEY, 0, 2, 0): tally, (SURVEY, 1, 1, 0): tally, (SURVEY, 0, 3, 1): tally})
            writing.add({}, attendance={(SURVEY, 0, 2, 0): Attendance(7, 1, 1)})
            publish_surveys(writing)
            counted = writing.counted_lots(SURVEY, plan, 0, 2)
            assert {key: (lot.attendance, set(lot.nodes)) for key, lot in counted.items()} == {
                (2, 0, 0): (Attendance(7, 1, 1), {(0, 2), (1, 1)})
            }
            assert writing.counted_lots(SURVEY, plan, 2, 3).keys() == {(3, 0, 1)}
            writing.put_snapshots(SURVEY, 1, {**counted, (3, 0, 1): Lot()}, [])
            writing.put_looked(SURVEY, SnapshotProgress(1, 0, 3, 9))
            writing.put_snapshots(SURVEY, 2, {(3, 0, 1): Lot(Attendance(4))}, [(3, 0, 1)])
            writing.put_looked(SURVEY, SnapshotProgress(2, 2, 3, 9))
        with beside.view() as view:
            shown = view.shown_lots(SURVEY)
            assert shown.keys() == {(2, 0, 0), (3, 0, 1)}
            assert shown[2, 0, 0].counts == {None: 7, (0, 2): 5, (1, 1): 5}
            assert shown[2, 0, 0].nodes[0, 2].slots.tolist() == [1, 2, 2]
            assert {key: lot.attendance.heard for key, lot in view.shown_lots(SURVEY, since=1).items()} == {
                (3, 0, 1): 4
            }
            assert view.shown_lots(SURVEY, after=2, until=2) == {}
            assert view.looked_at() == {SURVEY: SnapshotProgress(2, 2, 3, 9), OTHER: SnapshotProgress()}
            assert view.looked_at_survey(SURVEY) == SnapshotProgress(2, 2, 3, 9)

    def test_files_of_ids_take_each_others_place_at_once(self, store: Store, beside: Store) -> None:
        """All or none; who would replace files that another has replaced meanwhile is overtaken, and keeps nothing."""
        first, second, third = (IdFile("/a/place", f"ids-{number}", SURVEY, number) for number in range(3))
        with store.transaction() as writing:
            writing.replace_id_files([], [first, second])
        with beside.view() as view:
            assert view.id_files() == [first, second]
        with beside.transaction() as writing:
            writing.replace_id_files([first], [third])
        with pytest.raises(Overtaken), store.transaction() as writing:
            writing.replace_id_files([first, second], [])
        with store.view() as view:
            assert view.id_files() == [second, third]
