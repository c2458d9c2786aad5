# mypy: disable-error-code="list-item, arg-type, dict-item, index, comparison-overlap, return-value"
"""The contract of a store, of what is counted: turns to fold, tallies, ids, what is sealed, deleted and shown."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

import numpy as np
import pytest
from changeling_protocol import Group, KaryResponse, MutationSpace, Odds, Refusal, ReleasePlan, Track
from changeling_statistics import Attendance, NodeTally

from ..errors import Overtaken
from ..store import CHUNK_BYTES, IdFile, IdRun, SnapshotProgress, Store, StratumCounts, cursors_after, everybody
from .stores import (
    CLOSING,
    NODE,
    OTHER,
    SURVEY,
    OpenedStore,
    Opener,
    fold_next,
    logged,
    lost,
    publish_surveys,
    put,
    tally,
)

_RESPONSE = KaryResponse(MutationSpace(3), Odds(3, 1))
PLAN = ReleasePlan(
    (Group(tuple(Track(width, _RESPONSE, 0, 8) for width in (1, 2))), Group((Track(1, _RESPONSE, 0, 8),)))
)


class CountingContract(OpenedStore):
    """The half of the contract that a fold needs."""

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
            writing.add(tallies={NODE: tally(1, 1)})

        def overtaken() -> None:
            with beside.transaction() as writing:
                writing.add(tallies={NODE: tally(5, 5)})
                writing.add(cursors_after(short))

        with pytest.raises(Overtaken):
            overtaken()
        with store.view() as view:
            assert everybody(view.counted_strata(SURVEY, PLAN))[0, 1].reports == 2
            assert view.log_state().unfolded == 0

    def test_whatever_is_folded_by_however_many_is_counted_once(self, open_store: Opener, store: Store) -> None:
        """Three folders in small batches, each trying again when it was overtaken: together they count all."""
        streams = [store.open_stream(SURVEY) for _ in range(3)]
        for number in range(60):
            put(store, streams[number % 3], bytes([number]), now=number)

        def folder(most: int) -> int:
            counted, done = 0, False
            with closing(open_store()) as own:
                while not done:
                    with suppress(Overtaken):
                        batch = fold_next(own, most)
                        counted, done = counted + len(batch), not batch
            return counted

        with ThreadPoolExecutor(3) as pool:
            assert sum(pool.map(folder, (2, 3, 5))) == 60
        with store.view() as view:
            assert everybody(view.counted_strata(SURVEY, PLAN))[0, 1].slots.tolist() == [60, 0]

    def test_one_process_at_a_time_has_the_turn_to_fold(self, store: Store, beside: Store) -> None:
        """Another has it once it was given back, and what was written in a turn is kept."""
        stream = store.open_stream(SURVEY)
        with store.turn_to_fold() as turn, beside.turn_to_fold() as other:
            assert turn
            assert other is None
            with turn.transaction() as writing:
                writing.add_survey(SURVEY, b"kept")
            with beside.turn_to_fold() as other:
                assert other is None
            put(beside, stream, b"too")
        with beside.turn_to_fold() as other:
            assert other
            with store.turn_to_fold() as turn:
                assert turn is None

            with lost(other.transaction()) as writing:
                writing.add_survey(OTHER, b"lost")
            with other.transaction() as writing:
                assert writing.surveys().keys() == {SURVEY}
        assert logged(store) == [b"too"]

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

    def test_tallies_and_attendance_add_up(self, store: Store) -> None:
        """Those of one survey, by node or closing and by stratum, and together; sums beyond 32 bits."""
        for _ in range(2):
            with store.transaction() as writing:
                writing.add(
                    tallies={
                        NODE: tally(0, 4),
                        (SURVEY, 0, 1, 3): tally(1, 0),
                        (SURVEY, 0, 1, 1000): tally(2, 2),
                        (SURVEY, 1, 4, 0): tally(2**40),
                        (OTHER, 0, 1, 0): tally(9),
                    },
                    attendance={
                        (SURVEY, 0, 4, 3): Attendance(5, 2, 1),
                        (SURVEY, 0, 4, 0): Attendance(2**40, 0, 0),
                        (SURVEY, 1, 4, 3): Attendance(7, 0, 7),
                        (OTHER, 0, 4, 3): Attendance(9, 9, 9),
                    },
                )
        with store.transaction() as writing:
            writing.add(tallies={(SURVEY, 0, 1, 3): tally(1, 0), (SURVEY, 0, 1, 5): tally(0, 1)})
        with store.view() as view:
            counts = view.counted_strata(SURVEY, PLAN)
        assert counts[1, 0, 3].nodes[0, 1].slots.tolist() == [3, 0]
        assert counts[4, 0, 3].attendance == Attendance(10, 4, 2)
        whole = everybody(counts)
        slots = {key: (of.reports, of.slots.tolist()) for key, of in whole.items()}
        assert slots == {(0, 1): (20, [7, 13]), (1, 4): (2**41, [2**41])}
        assert {key: here for key, here in whole.attendance.items() if here.heard} == {
            (0, 4): Attendance(2**41 + 10, 4, 2),
            (1, 4): Attendance(14, 0, 14),
        }

    def test_refusals_of_all_processes_add_up(self, open_store: Opener, store: Store) -> None:
        """Though each is the first to count them."""

        def refuse(_: int) -> None:
            with closing(open_store()) as own:
                for _ in range(10):
                    with own.transaction() as writing:
                        writing.add(refused={(SURVEY, Refusal.LATE): 1, (SURVEY, Refusal.CLOSED): 2})

        with ThreadPoolExecutor(3) as pool:
            list(pool.map(refuse, range(3)))
        with store.view() as view:
            assert view.refusals(SURVEY) == {Refusal.LATE: 30, Refusal.CLOSED: 60}
            assert view.refusals(OTHER) == {}
            assert view.refusals() == view.refusals(SURVEY)

    def test_ids_are_found_and_replaced_by_run(self, store: Store) -> None:
        """A run is read back in order whatever its length; of a few ids, the chunks that could hold them."""
        ids = [number.to_bytes(16) for number in range(CHUNK_BYTES // 16 * 2 + 5)]
        with store.transaction() as writing:
            writing.replace_runs([], [(CLOSING, 0, b"".join(ids)), (CLOSING, 1, b"\xff" * 16), ((OTHER, 1), 0, ids[0])])
        with store.view() as view:
            closing = {CLOSING: [IdRun(0, 3 * CHUNK_BYTES), IdRun(1, 16)]}
            assert view.runs([CLOSING, (SURVEY, 2)]) == closing
            assert view.runs() == closing | {(OTHER, 1): [IdRun(0, 16)]}
            assert b"".join(view.read_run(CLOSING, 0)) == b"".join(ids)
            assert view.read_runs([(CLOSING, 1), ((OTHER, 1), 0)]) == {CLOSING: [b"\xff" * 16], (OTHER, 1): [ids[0]]}
            assert b"".join(view.read_run(CLOSING, 0, ids[3])) == b"".join(ids[: CHUNK_BYTES // 16])
            assert list(view.read_run((SURVEY, 2), 0, ids[3])) == []
        with store.transaction() as writing:
            writing.replace_runs([(CLOSING, 0), (CLOSING, 1)], [(CLOSING, 2, ids[0])])
            assert writing.runs([CLOSING]) == {CLOSING: [IdRun(2, 16)]}

    def test_what_is_sealed_stays_sealed_and_its_ids_go(self, store: Store, beside: Store) -> None:
        """Sealing an earlier closing changes nothing, and tallies stay; other surveys have seals of their own."""
        with store.transaction() as writing:
            publish_surveys(writing)
            for survey in (SURVEY, OTHER):
                for period in (1, 2, 3):
                    writing.replace_runs([], [((survey, period), 0, bytes(16))])
            writing.add(tallies={NODE: tally(4)})
            writing.seal({SURVEY: 2}, 0)
        with beside.transaction() as writing:
            writing.seal({SURVEY: 1}, 0)
        with store.view() as view:
            assert [view.surveys()[id_].sealed for id_ in (SURVEY, OTHER)] == [2, 0]
            assert {*view.runs([(SURVEY, period) for period in (1, 2, 3)])} == {(SURVEY, 3)}
            assert {*view.runs([(OTHER, 1)])} == {(OTHER, 1)}
            assert everybody(view.counted_strata(SURVEY, PLAN))[0, 1].reports == 4

    def test_folded_requests_go_when_their_surveys_grace_is_over(self, store: Store) -> None:
        """Not what waits to be folded, nor what arrived later, nor what came early, nor another survey's."""
        stream, other = store.open_stream(SURVEY), store.open_stream(OTHER)
        for number in range(4):
            put(store, stream, bytes([number]), now=number)
        put(store, other, b"other", now=4)

        def delete(now: int) -> list[bytes]:
            with store.transaction() as writing:
                writing.delete_overdue(now, {SURVEY: 10}, 1000)
            return logged(store)

        assert len(delete(2000)) == 5
        with store.transaction() as writing:
            writing.add({stream: (0, 3), other: (0, 1)}, needed_until={(stream, 1): 50})
        assert delete(12) == [b"\0", b"\2", b"\3", b"other"]
        with store.view() as view:
            assert not view.anything_overdue(12, {SURVEY: 10}, 1000)
            assert view.anything_overdue(13, {SURVEY: 10}, 1000)
            assert view.anything_overdue(51, {SURVEY: 49}, 1000)
        assert delete(13) == [b"\0", b"\3", b"other"]
        assert delete(51) == [b"\3", b"other"]
        assert delete(1005) == [b"\3"]
        assert [each.body for each in fold_next(store)] == [b"\3"]

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
                writing.delete_overdue(100, {}, 10)
            left.append(len(logged(store)))
            with store.view() as view:
                due = view.anything_overdue(100, {}, 10)
        assert left == [5, 1, 0]

    def test_what_is_shown_is_kept_stratum_by_stratum(self, store: Store, beside: Store) -> None:
        """Another process reads the same; of a stratum the last snapshot stays; those since a revision can be had."""
        tally = NodeTally(5, np.array([1, 2, 2]))
        with store.transaction() as writing:
            writing.add(tallies={(SURVEY, 0, 2, 0): tally, (SURVEY, 1, 1, 0): tally, (SURVEY, 0, 3, 1): tally})
            writing.add(attendance={(SURVEY, 0, 2, 0): Attendance(7, 1, 1)})
            publish_surveys(writing)
            counted = writing.counted_strata(SURVEY, PLAN, 0, 2)
            assert {key: (stratum.attendance, set(stratum.nodes)) for key, stratum in counted.items()} == {
                (2, 0, 0): (Attendance(7, 1, 1), {(0, 2), (1, 1)})
            }
            assert writing.counted_strata(SURVEY, PLAN, 2, 3).keys() == {(3, 0, 1)}
            writing.put_snapshots(SURVEY, SnapshotProgress(1, 0, 3, 9), {**counted, (3, 0, 1): StratumCounts()})
            writing.put_snapshots(SURVEY, SnapshotProgress(2, 2, 3, 9), {(3, 0, 1): StratumCounts(Attendance(4))})
        with beside.view() as view:
            shown = view.shown_strata(SURVEY)
            assert shown.keys() == {(2, 0, 0), (3, 0, 1)}
            assert shown[2, 0, 0].counts == {None: 7, (0, 2): 5, (1, 1): 5}
            assert shown[2, 0, 0].nodes[0, 2].slots.tolist() == [1, 2, 2]
            assert {key: stratum.attendance.heard for key, stratum in view.shown_strata(SURVEY, since=1).items()} == {
                (3, 0, 1): 4
            }
            assert view.shown_strata(SURVEY, after=2, until=2) == {}
            assert view.surveys()[SURVEY].looked == SnapshotProgress(2, 2, 3, 9)
            assert view.surveys()[OTHER].looked == SnapshotProgress()

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
