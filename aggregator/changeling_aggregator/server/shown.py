"""What is shown of surveys: the snapshots that the fold took, as this process last read them, and editions of them.

Estimates, status and everything else that anybody may read is made of snapshots alone. A node with fewer reports than
the survey's minimum is left out; so is one of a union of strata from which, by subtraction, fewer could be told.

An edition is what is shown of an open survey as signed files that never change, so that their readers reach no
estimate. Once the fold has shown something new, one of the processes that serve its store works the files out, signs
their hashes together with the tallies that they are made of, and puts them into the store, where all find the same.
"""

import gzip
import logging
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from hashlib import sha256
from threading import Event, Lock, Thread
from time import perf_counter
from typing import TypeAlias

from changeling_protocol import Edition, StratumNumber, Survey, SurveyId, UnixSeconds
from changeling_protocol.wire import EDITION_FILE, JSON, KEY_FILE, MSGPACK
from changeling_statistics import (
    NotEstimable,
    Smoothing,
    Solution,
    StratifiedTallies,
    Tallies,
    edition_columns,
    edition_files,
    releases,
)

from ..ingest import Registry
from ..logs import LoggedOutage
from ..store import SigningKey, SnapshotProgress, Store, StoredSurvey, StratumCounts, StratumKey, everybody
from .clock import Clock
from .http import COMPRESSION, PackedFile, keep_latest

MOST_SURVEYS = 32
MOST_UNIONS = 32
MOST_SOLUTIONS = 4


class ResultMethod(StrEnum):
    """Nodes that an estimate uses: those closed by its time, all, or all and the belief that histograms drift."""

    ONLINE = "online"
    RETROSPECTIVE = "retrospective"
    SMOOTHED = "smoothed"


@dataclass(eq=False)
class ShownSurvey:
    """The part of a survey that is shown, at one revision."""

    survey: Survey
    looked: SnapshotProgress
    lots: Mapping[StratumKey, StratumCounts]
    _unions: OrderedDict[tuple[StratumNumber, ...] | None, Tallies] = field(default_factory=OrderedDict)
    _solutions: OrderedDict[object, Solution] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)

    @property
    def revision(self) -> int:
        """A number that differs wherever what is shown does."""
        return self.looked.revision

    @property
    def final(self) -> int:
        """Up to which period it is shown for good; late reports may still change what comes after."""
        return self.looked.final

    @property
    def last(self) -> int:
        """The last period of which anything is shown; 0 if nothing is."""
        return max((period for period, _, _ in self.lots), default=0)

    def tallies(self, strata: tuple[StratumNumber, ...] | None = None) -> Tallies:
        """The tallies that estimates may be made of. strata: whose, rising; None for everybody's."""
        with self._lock:
            if strata not in self._unions:
                self._unions[strata] = self._everybody() if strata is None else self._stratified.union(strata)
            keep_latest(self._unions, strata, self._unions[strata], MOST_UNIONS)
            return self._unions[strata]

    def solution(self, strata: tuple[StratumNumber, ...] | None, method: ResultMethod, about: int = 0) -> Solution:
        """The solution for estimates about one of the survey's questions, by its place; worked out once.

        Raises ValueError where a method needs more nodes.
        """
        tallies, asked = self.tallies(strata), (strata, method, about)
        with self._lock:
            if asked not in self._solutions:
                graph = releases(self.survey.about(about), tallies.about(self.survey.plan, about))
                if method is ResultMethod.SMOOTHED:
                    self._solutions[asked] = Smoothing(graph)
                else:
                    self._solutions[asked] = Solution(graph, method is ResultMethod.RETROSPECTIVE)
            keep_latest(self._solutions, asked, self._solutions[asked], MOST_SOLUTIONS)
            return self._solutions[asked]

    def _everybody(self) -> Tallies:
        everyone = everybody(self.lots)
        nodes = {node: tally for node, tally in everyone.items() if tally.reports >= self.survey.minimum}
        return Tallies(nodes, everyone.attendance)

    @cached_property
    def _stratified(self) -> StratifiedTallies:
        nodes = {
            (track, node, stratum): tally
            for (_, _, stratum), lot in self.lots.items()
            for (track, node), tally in lot.nodes.items()
        }
        closings = {(group, period, stratum): lot.attendance for (period, group, stratum), lot in self.lots.items()}
        return StratifiedTallies(nodes, closings, self.survey.minimum)


class Showing:
    """Shows the surveys of a store; it reads of the store what has changed since, and keeps the latest."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: OrderedDict[SurveyId, ShownSurvey] = OrderedDict()
        self._lock = Lock()

    def of(self, published: StoredSurvey) -> ShownSurvey:
        """The part of a survey that is shown now."""
        survey = published.survey
        with self._lock:
            known = self._known.get(survey.id)
        with self._store.view() as view:
            looked = view.surveys(survey.id)[survey.id].looked
            if known is not None and known.revision == looked.revision:
                return known
            if known is None or known.revision > looked.revision:
                known = ShownSurvey(survey, SnapshotProgress(), {})
            lots = view.shown_strata(survey.id, since=known.revision)
        shown = ShownSurvey(survey, looked, {**known.lots, **lots})
        with self._lock:
            keep_latest(self._known, survey.id, shown, MOST_SURVEYS)
        return shown


LOOK_SECONDS = 1.0
SHARE = 0.1
"""So much of a processor's time editions take at most: where they take longer to make, fewer are made."""
_MEDIA_TYPES = {"json": JSON, "csv": "text/csv", "signed": MSGPACK}
_log = logging.getLogger("changeling")
Files: TypeAlias = dict[str, PackedFile]
_Made: TypeAlias = tuple[int, int]
"""The revision of what is shown that an edition is of, and the last period that counted."""


@dataclass(frozen=True, slots=True)
class _Newest:
    id: bytes
    files: Files
    looked: SnapshotProgress
    is_latest: bool
    """Whether what is shown is at the revision that this is of."""


class Editions:
    """Makes the editions of a store's open surveys, or finds those that another process made, and keeps the newest."""

    def __init__(self, store: Store, registry: Registry, showing: Showing, clock: Clock) -> None:
        self._store, self._registry, self._showing, self._clock = store, registry, showing, clock
        self._newest: dict[SurveyId, _Newest] = {}
        self._not_made: dict[SurveyId, _Made] = {}
        self._stop = Event()
        self._thread = Thread(target=self._run, name="editions", daemon=True)

    def start(self) -> None:
        """Begin to look about every second."""
        self._thread.start()

    def close(self) -> None:
        """Finish the edition in hand."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def newest(self, survey: SurveyId) -> _Newest | None:
        """The newest edition of a survey, if there is one."""
        return self._newest.get(survey)

    def files(self, survey: SurveyId, id_: bytes) -> Files | None:
        """The files of the edition of this name; None where there is none, or no more. Reads the store if it has to."""
        newest = self._newest.get(survey)
        return newest.files if newest is not None and newest.id == id_ else self._read(survey, id_)

    def look(self) -> None:
        """Make the editions that are due, and see which others have made. Raises what the store raises."""
        opened = {id_: each for id_, each in self._registry.surveys.items() if each.public}
        with self._store.view() as view:
            stored, newest = view.surveys(), view.newest_editions()
        looked = {id_: stored[id_].looked for id_ in opened}
        for id_, published in opened.items():
            due = looked[id_].revision, published.last
            if due[0] and newest.get(id_, (0, 0, b""))[:2] != due and self._not_made.get(id_) != due:
                if self._stop.is_set():
                    return
                self._make(published, due)
        with self._store.view() as view:
            newest = view.newest_editions()
        found = {}
        for id_, (revision, last, name) in newest.items():
            if id_ in opened and (files := self.files(id_, name)) is not None:
                is_latest = (revision, last) == (looked[id_].revision, opened[id_].last)
                found[id_] = _Newest(name, files, looked[id_], is_latest)
        self._newest = found

    def _make(self, published: StoredSurvey, due: _Made) -> None:
        """Put an edition of what is shown now into the store. due: what it was to be of, which may be past."""
        shown = self._showing.of(published)
        if (shown.revision, published.last) != due:
            return
        try:
            how = {"revision": shown.revision, "last": published.last, "final": shown.final}
            plain = edition_files(published.survey, shown.tallies(), **how)
        except (NotEstimable, ValueError):
            _log.exception("no edition can be made", extra={"survey": published.survey.id.hex()})
            self._not_made[published.survey.id] = due
            return
        now = int(self._clock())
        key = self._signing_key(UnixSeconds(now))
        edition = Edition(
            survey=published.survey.id,
            revision=shown.revision,
            made=now,
            last=published.last,
            final=shown.final,
            files={name: sha256(content).digest() for name, content in plain.items()},
            **edition_columns(published.survey, shown.tallies()),
        )
        signed = edition.signed_by(key.private)
        plain[EDITION_FILE] = signed
        if key.certificate is not None:
            plain[KEY_FILE] = key.certificate
        packed = {name: gzip.compress(content, COMPRESSION, mtime=0) for name, content in plain.items()}
        with self._store.transaction() as writing:
            writing.add_edition(published.survey.id, *due, now, signed, packed)

    def _signing_key(self, now: UnixSeconds) -> SigningKey:
        with self._store.view() as view:
            if (key := view.signing_key(now)) is not None:
                return key
        with self._store.transaction() as writing:
            writing.make_results_key()
            made = writing.signing_key(now)
        assert made is not None  # noqa: S101
        return made

    def _read(self, survey: SurveyId, id_: bytes) -> Files | None:
        with self._store.view() as view:
            files = view.edition(survey, id_)
        if files is None:
            return None
        return {
            name: PackedFile.of(gzip.decompress(packed), _MEDIA_TYPES[name.rpartition(".")[2]], packed)
            for name, packed in files.items()
        }

    def _run(self) -> None:
        rest, failing = 0.0, "no editions can be made now, which will be tried again"
        outage = LoggedOutage(_log, failing, "editions can be made again")
        while not self._stop.wait(max(LOOK_SECONDS, rest)):
            began = perf_counter()
            try:
                self.look()
                outage.succeeded()
            except Exception as error:  # a full disk today is no reason not to try again
                outage.failed(error)
            rest = (perf_counter() - began) * (1 / SHARE - 1)
