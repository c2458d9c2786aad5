"""Transactions as objects: what can be read of a store's one state, and what can be written to it.

No caller meets a connection of the database: values go in, values come out.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from changeling_protocol import (
    EarlyEnd,
    Refusal,
    ReleasePlan,
    SealingKey,
    StratumNumber,
    Survey,
    SurveyId,
    UnixMilliseconds,
    UnixSeconds,
)
from changeling_statistics import Attendance, NodeTally, Tallies
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from sqlalchemy import Connection, func, select

from . import (
    catalogue,
    clock,
    counted,
    early_ends,
    id_files,
    log,
    pruning,
    run_files,
    runs,
    schema,
    sealing_keys,
    snapshots,
    stretches,
    surveys,
    thinning,
    tokens,
)
from .at_rest import AtRest
from .catalogue import Segment
from .clock import KeptTime
from .counted import AttendanceKey, ClosingKey, TallyKey
from .database import Transactions
from .id_files import IdFile
from .log import LoggedRequest
from .runs import Run, RunName
from .sealing_keys import KeyLife, PublishedKey
from .snapshots import Looked, Lot, LotKey
from .stretches import Stretch
from .tokens import Token, TokenScope

if TYPE_CHECKING:
    from .opened import Store

LogRange = Stretch


class View:
    """One state of a store, to read: what others commit meanwhile is not seen."""

    def __init__(self, connection: Connection, at_rest: AtRest) -> None:
        self._connection, self._at_rest = connection, at_rest

    # What was published

    def signed_surveys(self) -> dict[SurveyId, bytes]:
        """The signed bytes of every survey, by id."""
        return surveys.published_surveys(self._connection)

    def surveys(self) -> dict[SurveyId, Survey]:
        """The surveys that this version can read, by id; one that it cannot read harms no other."""
        return surveys.readable(self.signed_surveys())

    def public_surveys(self) -> set[SurveyId]:
        """The surveys whose results are open to all."""
        return surveys.public_surveys(self._connection)

    def early_ends(self) -> dict[SurveyId, EarlyEnd]:
        """Every early end, by the survey's id."""
        return early_ends.published_ends(self._connection)

    def published_keys(self) -> dict[bytes, PublishedKey]:
        """The signed sealing keys whose private half is there, by id; the latest to expire first."""
        return sealing_keys.published_keys(self._connection)

    def key_lives(self) -> list[KeyLife]:
        """The life of every key that was made here, the latest to expire first."""
        return sealing_keys.key_lives(self._connection)

    def private_keys(self) -> dict[bytes, X25519PrivateKey]:
        """The private keys that are not destroyed, by id. Raises StoreError where they are under another store key."""
        return sealing_keys.private_keys(self._connection, self._at_rest)

    def any_key_expired(self, before: UnixSeconds) -> bool:
        """Whether there is a private key left that expired before this Unix time, in seconds."""
        return sealing_keys.any_expired(self._connection, before)

    def tokens(self) -> dict[bytes, Token]:
        """All tokens by their hashes, the oldest first."""
        return tokens.tokens_by_hash(self._connection)

    def kept_time(self) -> KeptTime:
        """The latest time of a clock that was believed, as a server kept it."""
        return clock.kept_time(self._connection)

    # The log

    def unread(
        self,
        most: int,
        most_bytes: int,
        after: Mapping[int, int] | None = None,
        until: UnixMilliseconds | None = None,
    ) -> list[LoggedRequest]:
        """The next requests that the fold has not counted, in the log's order; empty at its end.

        most, most_bytes: it ends with so many requests, or with the one that reaches so many bytes. after: by stream,
        the positions that are being counted already. until: Unix milliseconds; what arrived later is left out.
        """
        return log.unread(self._connection, most, most_bytes, after, until)

    def unread_ranges(self, until: UnixMilliseconds) -> list[LogRange]:
        """All that `unread` would give by and by, as ranges of positions, stream by stream in order.

        until: Unix milliseconds; what arrived later is left out. Raises SegmentLost.
        """
        return stretches.unread_stretches(self._connection, until)

    def requests_in(self, span: LogRange) -> Iterator[LoggedRequest]:
        """The requests of a range, in order. Raises SegmentLost."""
        for request in log.requests_after(self._connection, span.stream, span.after):
            if request.position > span.until:
                return
            yield request

    def kept_requests(self, counted: bool = False) -> Iterator[LoggedRequest]:
        """All requests that are not deleted, stream by stream in order. counted: only what the fold has counted."""
        positions = log.counted_positions(self._connection)
        for stream, position in sorted(positions.items()):
            for request in log.kept_requests(self._connection, stream):
                if counted and request.position > position:
                    break
                yield request

    def counted_positions(self) -> dict[int, int]:
        """The position up to which the fold has counted each stream."""
        return log.counted_positions(self._connection)

    def appended(self) -> int:
        """How many requests were ever appended."""
        query = select(func.coalesce(func.sum(schema.streams.c.length), 0))
        return int(self._connection.execute(query).scalar_one())

    def folded(self) -> int:
        """How many requests the fold has counted, since the store was made."""
        return log.folded(self._connection)

    def unfolded(self) -> int:
        """How many requests the fold has not counted."""
        return log.unfolded(self._connection)

    def first_unfolded(self) -> UnixMilliseconds | None:
        """The arrival of the first request that the fold has not counted, or an earlier one; None at the log's end."""
        return log.first_unfolded(self._connection)

    def latest_arrival(self) -> UnixMilliseconds:
        """The latest arrival given out, or the floor of arrivals where that is later; 0 for an empty store."""
        return log.latest_arrival(self._connection)

    def arrival_floor(self) -> UnixMilliseconds:
        """The moment that no arrival is before, as something was sealed then; 0 for an empty store."""
        return log.held_arrival(self._connection)

    def anything_over(self, now: UnixMilliseconds, graces: Mapping[SurveyId, int], otherwise: int) -> bool:
        """Whether `Transaction.delete_over` would find anything."""
        longest = max([otherwise, *graces.values()])
        arrival = UnixMilliseconds(now - longest)
        levels = set(graces.values())
        return pruning.any_to_prune(self._connection, arrival, now) or bool(
            thinning.spent_requests(self._connection, graces, levels, longest, now)
        )

    # What was counted

    def tallies(self, survey: SurveyId, strata: Collection[StratumNumber] | None = None) -> Tallies:
        """All tallies of a survey, of open nodes too: the caller decides what may be shown.

        strata: those whose entries are counted; None for all of them.
        """
        return counted.tallies_of(self._connection, survey, strata)

    def refusals(self, survey: SurveyId) -> dict[Refusal, int]:
        """How often each reason was met in a survey."""
        return counted.refusals_of(self._connection, survey)

    def total_refusals(self) -> dict[Refusal, int]:
        """How often each reason was met, in all surveys."""
        table = schema.refusals
        query = select(table.c.reason, func.sum(table.c.count)).group_by(table.c.reason)
        return {Refusal(reason): int(count) for reason, count in self._connection.execute(query)}

    def sealed_period(self, survey: SurveyId) -> int:
        """The period up to which all closings of a survey are sealed; 0 if none is."""
        return counted.sealed_period(self._connection, survey)

    def runs(self, keys: Iterable[ClosingKey]) -> dict[ClosingKey, list[Run]]:
        """The runs of ids of these closings, by their numbers; a closing without runs is left out."""
        return runs.runs_of(self._connection, keys)

    def runs_of_survey(self, survey: SurveyId) -> list[tuple[int, int]]:
        """The runs of a survey, as pairs of the closing's period and the run's number, in order."""
        table = schema.runs
        query = select(table.c.period, table.c.number).where(table.c.survey == survey).distinct()
        return sorted((row.period, row.number) for row in self._connection.execute(query))

    def chunks(self, keys: Iterable[ClosingKey]) -> dict[ClosingKey, dict[RunName, int]]:
        """How many chunks each run of these closings has; told by the index alone, so fast."""
        return runs.chunks_of(self._connection, keys)

    def chunks_near(self, key: ClosingKey, number: int, ids: bytes) -> Iterator[bytes]:
        """The chunks of a run that could hold one of these sorted ids; some are laid end to end."""
        return runs.chunks_near(self._connection, key, number, ids)

    def read_run(self, key: ClosingKey, number: int) -> Iterator[bytes]:
        """The sorted ids of a run, in pieces of several chunks. Other runs may be written to meanwhile."""
        return runs.read_run(self._connection, key, number)

    def read_runs(self, named: Iterable[tuple[ClosingKey, int]]) -> dict[ClosingKey, list[bytes]]:
        """The chunks of short runs, by closing. named: runs by closing and number."""
        return runs.read_runs(self._connection, named)

    def looked_at(self) -> dict[SurveyId, Looked]:
        """How far each survey has been looked at for snapshots; one that never was is not there."""
        return snapshots.looked_at(self._connection)

    def looked_at_survey(self, survey: SurveyId) -> Looked:
        """How far a survey has been looked at for snapshots."""
        return snapshots.looked_at_survey(self._connection, survey)

    def counted_lots(self, survey: SurveyId, plan: ReleasePlan, after: int, until: int) -> dict[LotKey, Lot]:
        """All that is counted of the closings of the periods in (after, until]. Nothing of it may be shown as it is."""
        return snapshots.counted_lots(self._connection, survey, plan, after, until)

    def shown_lots(
        self, survey: SurveyId, *, since: int = 0, after: int = 0, until: int | None = None
    ) -> dict[LotKey, Lot]:
        """What is shown of a survey's closings.

        since: only lots that were taken after this revision. after, until: only those of the periods in (after, until].
        """
        return snapshots.shown_lots(self._connection, survey, since=since, after=after, until=until)

    # Files beside the database

    def segments(self, *, uncounted: bool = False) -> list[Segment]:
        """The segments of the log, stream by stream in order. uncounted: only those with requests to count."""
        if uncounted:
            return catalogue.segments_after(self._connection, {})
        return catalogue.segments_of(self._connection)

    def segment_count(self) -> int:
        """How many segments there are."""
        return int(self._connection.execute(select(func.count()).select_from(schema.segments)).scalar_one())

    def segment_bytes(self) -> int:
        """How many bytes all segments take."""
        return catalogue.segment_bytes(self._connection)

    def places(self) -> list[str]:
        """The places of files that the fold may still need."""
        return catalogue.places_of(self._connection)

    def id_files(self) -> list[IdFile]:
        """All files with ids that were counted beyond this machine."""
        return id_files.registered_files(self._connection)


class Transaction(View):
    """A transaction that may write: whole and on disk when it ends, and nothing of it where it raises."""

    # Publishing

    def add_survey(self, id_: SurveyId, signed: bytes, public: bool | None = None) -> bool:
        """Keep a survey whose signature was checked; False where it is there already, and stays as it was.

        public: whether its results are open to all; None leaves that as it is, and a new survey closed.
        """
        return surveys.add_survey(self._connection, id_, signed, public)

    def add_early_end(self, end: EarlyEnd, signed: bytes) -> bool:
        """Keep an end whose signature was checked; False where the same one is there already.

        Raises ValueError where the survey ends after another period.
        """
        return early_ends.add_end(self._connection, end, signed)

    def make_key(self) -> bytes:
        """Make a private key; returns the public one, 32 bytes, for the authority to sign.

        Raises StoreError where those that are there are under another store key.
        """
        return sealing_keys.make_key(self._connection, self._at_rest)

    def publish_key(self, key: SealingKey, signed: bytes) -> bool:
        """Put a checked signature to a key made here; False where the same one is there already.

        Raises ValueError where the key was not made here, is destroyed, was published with other dates, or is valid
        while another is.
        """
        return sealing_keys.publish_key(self._connection, key, signed)

    def encrypt_keys(self, new: AtRest) -> int:
        """Put the private keys under another store key; returns how many. Raises StoreError where the store's own does
        not open them. What they were before is overwritten once `Store.forget_overwritten` had its turn.
        """
        return sealing_keys.encrypt_again(self._connection, self._at_rest, new)

    def encrypt_keys_in_clear(self) -> bool:
        """Encrypt the private keys that are not yet; whether there was one, and a store key to encrypt it under."""
        return sealing_keys.encrypt_in_clear(self._connection, self._at_rest)

    def destroy_expired_keys(self, before: UnixSeconds) -> int:
        """Destroy the private keys that expired before this Unix time, in seconds; returns how many."""
        return sealing_keys.destroy_expired(self._connection, before)

    def add_token(self, token: str, name: str, scopes: Collection[TokenScope], now: UnixSeconds) -> Token:
        """Keep a new token's hash. name: whose it is. Raises ValueError without a name, or a scope."""
        return tokens.add_token(self._connection, token, name, scopes, now)

    def revoke_token(self, id_: bytes) -> Token:
        """Take a token away. Raises ValueError where there is none with this id."""
        return tokens.revoke_token(self._connection, id_)

    def keep_time(self, kept: KeptTime) -> None:
        """Remember what was believed of a clock."""
        clock.keep_time(self._connection, kept)

    # Counting

    def add(
        self,
        moves: Mapping[int, tuple[int, int]],
        *,
        tallies: Mapping[TallyKey, NodeTally] | None = None,
        attendance: Mapping[AttendanceKey, Attendance] | None = None,
        refused: Mapping[tuple[SurveyId, Refusal], int] | None = None,
        needed_until: Mapping[tuple[int, int], UnixMilliseconds] | None = None,
        rubbish: Sequence[tuple[int, int]] = (),
    ) -> None:
        """Move the cursors over requests, and add what was counted in them.

        moves: by stream, the cursor before and after. needed_until: Unix milliseconds by stream and position, for
        requests with a closing that came early, which are kept until it is sealed. rubbish: by stream and position, the
        requests that no fold can ever count, which are deleted.
        Raises Overtaken where another process moved a cursor meanwhile: then nothing of this transaction may stay.
        """
        log.advance_cursors(self._connection, moves)
        counted.add_tallies(self._connection, tallies or {})
        counted.add_attendance(self._connection, attendance or {})
        counted.add_refusals(self._connection, refused or {})
        pruning.hold(self._connection, needed_until or {})
        pruning.discard(self._connection, rubbish)

    def put_runs(self, added: Iterable[tuple[ClosingKey, int, bytes]]) -> None:
        """Put sorted ids into runs, after those that are there: of closings, under numbers."""
        runs.put_runs(self._connection, added)

    def drop_runs(self, named: Iterable[tuple[ClosingKey, int]]) -> None:
        """Delete runs whose ids are in others by now. named: by closing and number."""
        runs.drop_runs(self._connection, named)

    def replace_id_files(self, before: Sequence[IdFile], after: Iterable[IdFile]) -> None:
        """Put files of ids in the place of others. Raises Overtaken where one of these is not registered any more."""
        id_files.replace_files(self._connection, before, after)

    def begin_run(self, place: str, run: str) -> None:
        """Have the files at a place whose names begin with this run's be the store's, to be deleted by it in time."""
        run_files.begin_run(self._connection, place, run)

    # Closing

    def stop_appending(self) -> None:
        """Have nothing appended until this transaction ends: what is now the log's end stays its end."""
        log.stop_appending(self._connection)

    def stop_folding(self) -> None:
        """Have nothing folded until this transaction ends: it reads what is counted by now, and no part of a batch."""
        log.stop_folding(self._connection)

    def raise_arrival_floor(self, now: UnixMilliseconds) -> None:
        """Let no arrival be before `now`, in Unix milliseconds, from here on, also where arrivals are set back."""
        log.hold_arrivals(self._connection, now)

    def set_back_arrivals(self, now: UnixMilliseconds) -> None:
        """Give out arrivals from `now` on again, or from their floor, where a clock that was ahead gave out later ones.

        now: Unix milliseconds. What is not folded has then arrived now. Call `stop_appending` before.
        """
        log.set_back_arrivals(self._connection, now)

    def seal(self, survey: SurveyId, period: int) -> None:
        """Seal all closings up to a period: their ids go, and the tallies of nodes that end there are final."""
        counted.seal_closings(self._connection, survey, period)

    def delete_over(self, now: UnixMilliseconds, graces: Mapping[SurveyId, int], otherwise: int) -> None:
        """Delete folded requests that no open closing needs: a survey's grace after they arrived, or once the last
        early closing in them is sealed. Where there are many, some are left for the next time.

        now: Unix milliseconds. graces: of surveys, in milliseconds. otherwise: for what is not of these.
        """
        longest = max([otherwise, *graces.values()])
        spent = thinning.spent_requests(self._connection, graces, set(graces.values()), longest, now)
        thinning.thin(self._connection, spent)
        pruning.prune(self._connection, UnixMilliseconds(now - longest), now)

    def put_snapshots(
        self, survey: SurveyId, revision: int, lots: Mapping[LotKey, Lot], held: Collection[LotKey]
    ) -> None:
        """Show these lots from now on, in the place of what was shown of them.

        revision: one that nothing was shown with before. held: the lots that are shown already.
        """
        snapshots.put_snapshots(self._connection, survey, revision, lots, held)

    def put_looked(self, survey: SurveyId, looked: Looked) -> None:
        """Remember how far a survey has been looked at for snapshots."""
        snapshots.put_looked(self._connection, survey, looked)


class Turn:
    """The turn of this process to fold; all that is written in it is lost once another process has it."""

    def __init__(self, store: "Store", transactions: Transactions) -> None:
        self._store, self._transactions = store, transactions

    def __call__(self) -> AbstractContextManager[Connection]:
        """A transaction, in the old way."""
        return self._transactions()

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """A transaction of the turn. Raises Overtaken, or what the database raises, once the turn is lost."""
        with self._transactions() as connection:
            yield Transaction(connection, self._store.at_rest)

    def compact(self) -> int:
        """Write some small segments anew as larger ones, and delete files of no use; returns how many it replaced.

        Raises Unwritable or SegmentLost.
        """
        from .compaction import tidy

        return tidy(self._store, self._transactions)

    def sweep(self, now: UnixSeconds) -> int:
        """Delete old files that a killed server wrote and never named; returns how many. now: Unix seconds."""
        from .compaction import sweep

        return sweep(self._store, now)

    def sweep_runs(self, last: str | None = None) -> None:
        """Delete the files of all runs beyond this machine, but for those with ids that count.

        last: the run that has just ended, if one has; others that have no files left are then forgotten.
        """
        run_files.sweep_runs(self._store, self._transactions, last)

    def remove_run(self, place: str, run: str) -> None:
        """Delete the files of a run that has failed."""
        from ..segments import place_at

        run_files.remove_run(self._store, place_at(place), run)
