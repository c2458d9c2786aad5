# mypy: disable-error-code="list-item, arg-type, dict-item, index, comparison-overlap, return-value"
"""The contract of a store: what each must do, whatever database holds it, with one process or several at it.

Transactions and the log stand here; what is counted, and what is published, in rooms of their own.
"""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from random import Random
from threading import Barrier, Event

from ..store import Store
from .counting_contract import CountingContract
from .publishing_contract import PublishingContract
from .stores import SURVEY, Opener, fold_next, logged, lost, put, whole_log


class StoreContract(CountingContract, PublishingContract):
    """Subclass it with a fixture `open_store`, which gives what opens one new store as often as it is called."""

    # Transactions

    def test_a_transaction_that_raises_leaves_nothing(self, store: Store, beside: Store) -> None:
        """Neither a survey nor the floor of arrivals."""
        stream = store.open_stream(SURVEY)
        put(store, stream, b"kept", now=10)
        with lost(store.transaction()) as writing:
            writing.seal({}, 99)
            writing.add_survey(SURVEY, b"lost")
        assert logged(beside) == [b"kept"]
        with beside.view() as view:
            assert (view.log_state().arrival, view.surveys()) == (10, {})
        put(store, stream, b"next", now=10)
        assert logged(store) == [b"kept", b"next"]

    def test_a_reader_sees_one_state_and_keeps_no_writer_waiting(self, store: Store, beside: Store) -> None:
        """Whatever others commit while it reads is not there for it; for the next reader it is."""
        stream = store.open_stream(SURVEY)
        put(store, stream, b"first")
        with store.view() as view:
            assert view.log_state().unfolded == 1
            put(beside, stream, b"second")
            assert view.log_state().unfolded == 1
            assert len(view.unread(9, 999)) == 1
        with store.view() as view:
            assert view.log_state().unfolded == 2

    def test_what_is_committed_is_there_when_the_store_is_opened_again(self, open_store: Opener, store: Store) -> None:
        """By whoever opens it."""
        stream = store.open_stream(SURVEY)
        put(store, stream, b"envelope", now=7)
        store.close()
        with closing(open_store()) as again:
            assert logged(again) == [b"envelope"]
            assert again.open_stream(SURVEY) != stream

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
            assert view.log_state().arrival == 301
        assert [each.body[0] for each in envelopes] == list(range(len(order)))
        assert [each.arrival for each in envelopes] == [100, 100, 101, 101, 300, 300, 301]
        assert [each.position for each in envelopes if each.stream == first] == [1, 2, 3, 4]

    def test_held_arrivals_never_go_back(self, store: Store) -> None:
        """Whatever the clock of the next appender shows, and if somebody would hold them earlier."""
        stream = store.open_stream(SURVEY)
        with store.transaction() as writing:
            writing.seal({}, 500)
            writing.seal({}, 400)
        for now in (450, 501):
            put(store, stream, b"", now=now)
        with store.view() as view:
            assert [each.arrival for each in whole_log(view)] == [500, 501]
            assert (view.log_state().arrival, view.log_state().floor) == (501, 500)

    def test_reading_stops_at_the_bound_and_merges_streams(self, store: Store) -> None:
        """A batch is the first envelopes of all streams together, at most so many or so many bytes."""
        streams = [store.open_stream(SURVEY) for _ in range(3)]
        for number in range(9):
            put(store, streams[number % 3], bytes([number]) * 10, now=number)
        with store.view() as view:
            assert [each.body[0] for each in view.unread(5, 1000)] == [0, 1, 2, 3, 4]
            assert [each.body[0] for each in view.unread(100, 25)] == [0, 1, 2]
            assert view.log_state().first_unfolded == 0
        assert len(fold_next(store, 4)) == 4
        with store.view() as view:
            assert view.log_state().first_unfolded == 4
            assert view.log_state().unfolded == 5
        fold_next(store)
        with store.view() as view:
            assert (view.unread(9, 999), view.log_state()[2:5]) == ([], (9, 0, None))

    def test_of_many_who_append_at_once_each_keeps_its_order_and_a_reader_misses_nothing(
        self, open_store: Opener, store: Store
    ) -> None:
        """Four processes with clocks that jump, and one that reads: what it sees later lies behind what it saw."""
        done, at_once = Event(), Barrier(5)

        def appender(number: int) -> list[bytes]:
            random, mine = Random(number), []
            with closing(open_store()) as own:
                stream = own.open_stream(SURVEY)
                at_once.wait(100)
                for count in range(40):
                    envelopes = [bytes([number, count, i]) for i in range(random.randint(1, 3))]
                    put(own, stream, *envelopes, now=random.randint(1, 50))
                    mine += envelopes
            return mine

        def reader() -> list[tuple[int, int, int]]:
            seen, last = [], False
            with closing(open_store()) as own:
                at_once.wait(100)
                while not last:
                    last = done.is_set()
                    while batch := fold_next(own, 7):
                        seen += [each[:3] for each in batch]
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
        for stream in {each.stream for each in log}:
            positions = [each.position for each in log if each.stream == stream]
            assert positions == [*range(1, len(positions) + 1)]

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
                    assert writing.log_state().first_unfolded is None
                assert not appending.done()
                writing.seal({}, 1000)
            appending.result(100)
        with store.view() as view:
            assert view.log_state().first_unfolded == 1000

    def test_arrivals_given_out_ahead_are_set_back(self, store: Store, beside: Store) -> None:
        """As far as nothing was sealed; what is not folded arrived then, too, and the order of appending stays."""
        first, second = store.open_stream(SURVEY), store.open_stream(SURVEY)
        put(store, first, b"folded", now=9000)
        fold_next(store)
        for number, stream in enumerate((second, first, second)):
            put(store, stream, bytes([number]), now=9000)
        with store.transaction() as writing:
            writing.seal({}, 100)
            writing.set_back_arrivals(50)
            assert writing.log_state().arrival == 100
        put(beside, first, b"next", now=60)
        put(beside, second, b"last", now=150)
        with store.view() as view:
            unseen = view.unread(9, 999)
            assert [each.arrival for each in whole_log(view) if each.body == b"folded"] == [9000]
        assert [each.arrival for each in unseen[:3]] == [100, 100, 100]
        assert [each.body for each in unseen[3:]] == [b"next", b"last"]
        assert 100 < unseen[3].arrival < unseen[4].arrival == 150
