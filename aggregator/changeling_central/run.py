"""A release, period after period: guard, draw, save, publish, in that order, resumable at every point.

The state is on the disk before the rows it belongs to are published, so a crash between the two publishes the same
rows again, and a crash before it discards draws that nobody saw. Periods may be drawn, saved and published several
together, as each flush of a disk takes as long as many draws: a crash then discards the draws of all that were not yet
saved, or publishes again those of all that were. A ledger hears of each flush before it is drawn and before it is
published, so that files put back from a backup are told (`ledger`). A changelog that was changed in what is already
released, an output that was changed, other terms: refused. Nothing is drawn for a period with a mutation beyond the
constraint.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

from changeling_statistics import MICROSECONDS, Changelog, Mutations

from .dates import bounds_of
from .errors import BadState, CentralError, TimeReversed
from .files import Output, held
from .guard import Arrivals, Breach, SeenRows, first_beyond, first_breach
from .ledger import ReleaseAccount
from .mechanism import Level, PeriodChange, ReleaseMechanism
from .noise import Noise
from .statement import SavedRelease, Statement, Terms, begun, keep, state_beside

if TYPE_CHECKING:
    from _hashlib import HASH


@dataclass(frozen=True, slots=True)
class Release:
    """A release of a changelog: a statement, the mechanism that keeps it, and the file that it is published in.

    calendar_from_data: the calendar follows the data, so it is no part of what is protected; the state remembers it.
    account: what the release is charged to, None for nothing. overwrite: an output that is no release's is written
    over. arrivals: the rows as they came, None where late ones stop the release.
    ValueError where the mechanism's guarantee does not cover the query, the calendar or what entries may do, or
    is more than the budget.
    """

    changelog: Changelog
    statement: Statement
    mechanism: ReleaseMechanism[object]
    output: Output
    calendar_from_data: bool = False
    account: ReleaseAccount | None = None
    overwrite: bool = False
    arrivals: Arrivals | None = None

    def __post_init__(self) -> None:
        stated, asked = self.mechanism.guarantee, self.statement
        spent = asked.spending
        if spent.rho is None:
            within = stated.epsilon <= spent.epsilon and stated.delta <= spent.delta
        elif stated.rho is None:
            within = stated.epsilon**2 / 2 <= spent.rho and not stated.delta
        else:
            within = stated.rho <= spent.rho
        if not within:
            raise ValueError(f"the mechanism's guarantee is more than the budget: {stated}")
        if not self.mechanism.covers(asked.query, asked.calendar, asked.constraint):
            raise ValueError(
                "the mechanism's guarantee is about another query, calendar or constraint than is released"
            )

    @property
    def state(self) -> Path:
        """Where the release's state is kept."""
        return state_beside(self.output.path)

    def terms(self) -> Terms:
        """The terms that a later run must agree on."""
        return replace(self.statement.terms(), mechanism=self.mechanism.made_with(), format=self.output.path.suffix)

    def breach(self) -> Breach | None:
        """The first mutation that the guarantee does not count with: of an entry, or of a person's further entry."""
        unit = self.statement.spending.unit
        found = [first_breach(self.changelog, self.statement.constraint, self.statement.query.fixed)]
        if unit.column is not None:
            found.append(first_beyond(self.changelog, unit.most, unit.column))
        return min((each for each in found if each is not None), key=lambda each: each.time, default=None)

    def refused(self, before: SavedRelease | None, until: int) -> Iterator[str]:
        """All that would stop it, in words, as far as that is known before it runs.

        before: what it has begun with, None for a new one. until: the last period that is to be published.
        """
        breach, output = self.breach(), self.output.path
        if breach is not None and breach.time <= _end(self, until):
            yield str(breach.error())
        if before is None and output.exists() and not self.overwrite:
            yield f"{output} exists without its state {self.state.name}"
        if self.account is not None:
            try:
                self.account.checked(before)
            except (CentralError, ValueError) as error:
                yield str(error)


def run(
    release: Release,
    noise: Noise,
    until: int | None = None,
    reached: Callable[[str], None] = lambda step: None,  # noqa: ARG005
    together: int = 1,
) -> Iterator[tuple[int, Level]]:
    """Publish the periods that are not yet, up to `until` (default: all), yielding (period, level) of each.

    reached: called at every step by name, for tests that kill the process there. together: how many periods are drawn
    before they are saved and published; each is yielded when it is published.
    Raises ConstraintBroken at once where a release that is to begin holds a breach, else before its period;
    TimeReversed where the changelog differs in what is already released; BadState for a state of another release or an
    older one, an output that was changed, or another process at work.
    """
    if together < 1:
        raise ValueError(f"at least one period is published at a time, got {together}")
    with held(release.state):
        breach = release.breach()
        if breach is not None and breach.time <= _end(release, until) and begun(release.state) is None:
            raise breach.error()  # before anything is charged
        flush = _Flush(release, reached, *_resumed(release))
        flush.repair()
        reached("repaired")
        state = release.mechanism.resumed(flush.saved.state)
        for period in _due(release, flush, until, breach):
            if not flush.drawn:
                flush.announce()
            change = PeriodChange(release.changelog, period.mutations, release.statement.query)
            state, level = release.mechanism.step(state, change, noise)
            flush.take(period, level)
            if len(flush.drawn) == together:
                yield from flush.publish(state)
        if flush.drawn:
            yield from flush.publish(state)
        if breach is not None and breach.time <= _end(release, until):
            raise breach.error()


@dataclass(frozen=True, slots=True)
class _Period:
    """A period that is due. digest: of all mutations until its end."""

    number: int
    end: float
    mutations: Mutations
    digest: bytes


def _due(release: Release, flush: "_Flush", until: int | None, breach: Breach | None) -> Iterator[_Period]:
    """The periods that are to be drawn, up to `until` and before a breach.

    Raises TimeReversed where the changelog differs in the periods that are published.
    """
    calendar, log, published, digest = release.statement.calendar, release.changelog, flush.saved.period, b""
    last = max(calendar.periods if until is None else until, published)
    for number, part in enumerate(log.mutations().by_end(bounds_of(calendar)[1:]), 1):
        end = calendar.time(number)
        if number > last or (number > published and breach is not None and breach.time <= end * MICROSECONDS):
            return
        digest = _digest(digest, log, part)
        if number == published and digest != flush.saved.digest:
            raise TimeReversed(
                f"the changelog differs from the one that was released until period {number}: rows were added, changed "
                "or taken away in periods that are already published; nothing was drawn. Put it back as it was; what "
                "came late is dated after what is published, unless a release began with --late drop or shift"
            )
        if number > published:
            yield _Period(number, end, part, digest)


def _end(release: Release, until: int | None) -> float:
    """The end of the last period that is to be published, Unix microseconds."""
    calendar = release.statement.calendar
    return calendar.time(calendar.periods if until is None else min(until, calendar.periods)) * MICROSECONDS


@dataclass(slots=True)
class _Flush:
    """The periods that are drawn and not yet published, and what was saved before them.

    running: SHA-256 of what is published. drawn: (period, level) of each. tag: of the flush, random.
    """

    release: Release
    reached: Callable[[str], None]
    saved: SavedRelease
    running: "HASH"
    tag: str = ""
    rows: bytes = b""
    digest: bytes = b""
    drawn: list[tuple[int, Level]] = field(default_factory=list)

    def announce(self) -> None:
        """Before the first draw of a flush: the ledger hears of it."""
        self.tag = token_hex(8)
        if (account := self.release.account) is not None:
            account.announced(self.saved, self.tag)
        self.reached("announced")

    def take(self, period: _Period, level: Level) -> None:
        """Hold one more period that was drawn."""
        self.reached("drawn")
        self.drawn.append((period.number, level))
        self.rows += self.release.output.rows(period.number, period.end, level)
        self.digest = period.digest

    def publish(self, state: object) -> list[tuple[int, Level]]:
        """Save the state after these periods, mark them as drawn in the ledger, then publish their rows."""
        drawn, arrivals = self.drawn, self.release.arrivals
        end = self.release.statement.calendar.time(drawn[-1][0]) * MICROSECONDS
        self.saved = replace(
            self.saved,
            tag=self.tag,
            before=self.saved.tag,
            period=drawn[-1][0],
            published=self.running.digest(),
            pending=self.rows,
            digest=self.digest,
            state=self.release.mechanism.saved(state),
            seen=SeenRows() if arrivals is None else arrivals.seen(end),
        )
        keep(self.release.state, self.saved)
        self.reached("saved")
        if (account := self.release.account) is not None:
            account.marked(self.saved)
        self.reached("marked")
        self.repair()
        self.reached("published")
        self.drawn, self.rows = [], b""
        return drawn

    def repair(self) -> None:
        """The pending rows are published, whether a crash came before, within or after."""
        at = self.release.output.append(self.saved.at, self.saved.pending)
        self.saved = replace(self.saved, at=at)
        self.running.update(self.saved.pending)


def _resumed(release: Release) -> tuple[SavedRelease, "HASH"]:
    """The state that the release goes on from, charged to its ledger, and the running SHA-256 of what is published.

    Raises BadState, before anything is drawn, where state, output and ledger are not of one release, or not as new as
    each other.
    """
    before, account = begun(release.state), release.account
    saved = _first(release) if before is None else _known(release, before)
    running = _checked_output(release.output, release.state.name, saved)
    if account is not None:
        published = release.output.size() > saved.at
        charged = before is not None and before.changelog != "" and (saved.before != "" or published)
        account.settled(saved.charge, saved.changelog, saved, published, charged)
        if before is not None and before.changelog != saved.changelog:  # begun without a ledger
            keep(release.state, saved)
    return saved, running


def _known(release: Release, before: SavedRelease) -> SavedRelease:
    """The state of a release that has begun, in the ledger that it is charged to."""
    before.refuse_others(release.terms(), release.state)
    known = before.changelog
    if release.account is not None:
        known = release.account.opened(before)
    elif known:
        raise BadState(f"{release.state} is charged to the ledger of the changelog {known!r}: name it, --ledger")
    from_data = before.calendar_from_data or release.calendar_from_data
    return replace(before, calendar_from_data=from_data, changelog=known)


def _first(release: Release) -> SavedRelease:
    """The state of a release that nothing is published of yet; it is kept."""
    output = release.output.path
    if output.exists() and not release.overwrite:
        raise BadState(
            f"{output} exists without its state {release.state.name}: releasing again would draw twice for the same "
            "nodes; choose another output, and count what this one cost"
        )
    known = "" if release.account is None else release.account.opened()
    saved = SavedRelease(
        release.terms(),
        release.calendar_from_data,
        period=0,
        at=0,
        published=sha256().digest(),
        pending=release.output.header(),
        digest=b"",
        state=release.mechanism.saved(release.mechanism.start()),
        charge=token_hex(8),
        changelog=known,
        tag=token_hex(8),
        before="",
    )
    output.unlink(missing_ok=True)
    keep(release.state, saved)
    return saved


def _checked_output(output: Output, state: str, saved: SavedRelease) -> "HASH":
    """The running SHA-256 of what is published. BadState where the file holds anything else than the state knows of."""
    if output.size() > saved.at + len(saved.pending):
        raise BadState(
            f"{output.path} holds more than {state} knows of: the state is an older one, and going on from it would "
            "draw twice for the same nodes; put the newer one back, or choose another output and count what this one "
            "cost"
        )
    running = output.published(saved.at)
    if running.digest() != saved.published:
        raise BadState(
            f"{output.path} was changed in what is published: put it back as it was, or choose another output and "
            "count what this one cost"
        )
    if not output.torn(saved.at, saved.pending):
        raise BadState(
            f"{output.path} ends with other rows than {state} knows of: the state was put back, or the rows were "
            "changed; put both back as they were, or choose another output and count what this one cost"
        )
    return running


def _digest(before: bytes, changelog: Changelog, part: Mutations) -> bytes:
    """A hash of all mutations so far, by the names of entries and answers, whose numbers may change as a file grows."""
    entries = [changelog.entries[i] for i in part.entry.tolist()]
    answers = [changelog.answers[i - 1] if i else "" for i in part.new.tolist()]
    rows = sorted(zip(part.time.tolist(), entries, answers, strict=True))
    return sha256(before + repr(rows).encode("utf-8", "surrogatepass")).digest()
