"""A release, period after period: guard, draw, save, publish, in that order, resumable at every point.

The state is on the disk before the rows it belongs to are published, so a crash between the two publishes the same
rows again, and a crash before it discards draws that nobody saw. Periods may be drawn, saved and published several
together, as each flush of a disk takes as long as many draws: a crash then discards the draws of all that were not yet
saved, or publishes again those of all that were. A ledger hears of each flush before it is drawn and before it is
published, so that files put back from a backup are told (`ledger`). A changelog that was changed in what is already
released, an output that was changed, other terms: refused. Nothing is drawn for a period with a mutation beyond the
constraint. A release's terms are all that its guarantee and its estimates rest on, but the data: they are kept in its
state, and what has begun goes on under the same terms or not at all.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

from changeling_protocol import Calendar, Constraint, encode
from changeling_statistics import MICROSECONDS, Changelog, Mutations

from .budget import ENTRY, Unit
from .errors import BadState, TimeReversed
from .guard import Breach, first_beyond, first_breach
from .ledger import Account, Mark
from .linear_query import LinearQuery
from .mechanism import read_state, written_state
from .nodes import Level
from .noise import Noise
from .offers import Made, PeriodChange, ReleaseMechanism
from .output import Output
from .saved import held, load, save

if TYPE_CHECKING:
    from _hashlib import HASH

IDENTITY = "release"


@dataclass(frozen=True, slots=True)
class QueryTerms:
    """asked: the query in words. The others: how far an entry can shift it, as `LinearQuery` says."""

    asked: str
    names: tuple[str, ...]
    moving: tuple[int, ...]
    appearing: tuple[int, ...]
    fixed: bool
    unit: Fraction


@dataclass(frozen=True, slots=True)
class Terms:
    """constraint: its canonical bytes. budget: epsilon and delta, of an entry. unit: of privacy, its name and entries.

    freeze: what breaks the constraint is left out; else it stops the release. rho: of an entry, where the budget is in
    that; it is "" else, and the budget 0 and 0 with it.
    mechanism: what it was made with. format: of the output file. Both are None before they are known.
    """

    query: QueryTerms
    calendar: Calendar
    constraint: bytes
    budget: tuple[Fraction, Fraction]
    unit: tuple[str, int]
    freeze: bool = False
    rho: str = ""
    mechanism: Made | None = None
    format: str | None = None


@dataclass(frozen=True, slots=True)
class SavedRelease:
    """What a release keeps on disk.

    calendar_from_data: an end of the calendar was once read from the data. period: the last one that was saved.
    at: how many bytes of the output are published. published: SHA-256 of those. pending: the rows that follow them.
    digest: SHA-256 of all mutations until the period. state: of the mechanism, as it saves it. charge: the id that it
    is charged by to a ledger. changelog: the id in that ledger, "" where there is none. tag: of the flush that it was
    saved with, random. before: that of the flush before it, "" for none.
    """

    terms: Terms
    calendar_from_data: bool
    period: int
    at: int
    published: bytes
    pending: bytes
    digest: bytes
    state: bytes
    charge: str
    changelog: str
    tag: str
    before: str

    @property
    def mark(self) -> Mark:
        """What it knows of its flush."""
        return Mark(self.period, self.tag, self.before)


@dataclass(frozen=True, slots=True)
class Begun:
    """A release that has begun, by the state that is kept at `path`."""

    path: Path
    saved: SavedRelease

    @property
    def calendar(self) -> Calendar:
        """The calendar that it has begun with."""
        return self.saved.terms.calendar

    def refuse_others(self, terms: Terms) -> None:
        """BadState, which lists the terms that differ from those given, as far as these are known."""
        ours = self.saved.terms
        known = [name for name in (field.name for field in fields(terms)) if getattr(terms, name) is not None]
        if other := [name for name in known if getattr(terms, name) != getattr(ours, name)]:
            raise BadState(
                f"{self.path} belongs to a release with another {', '.join(other)}; its nodes are never drawn again: "
                "choose another output"
            )


def terms_of(
    asked: str,
    query: LinearQuery,
    calendar: Calendar,
    constraint: Constraint,
    epsilon: Fraction,
    delta: Fraction,
    unit: Unit,
    freeze: bool = False,
    rho: Fraction | None = None,
) -> Terms:
    """The terms of a release whose mechanism and format are not yet known.

    asked: the query in words. epsilon, delta: of an entry. freeze: what breaks the constraint is left out. rho: of an
    entry, in place of epsilon and delta.
    """
    counted = QueryTerms(asked, query.names, query.moving, query.appearing, query.fixed, query.unit)
    budget = (epsilon, delta) if rho is None else (Fraction(0), Fraction(0))
    words = "" if rho is None else str(rho)
    return Terms(counted, calendar, encode(constraint.as_fields()), budget, (unit.name, unit.most), freeze, words)


def begun(path: Path) -> Begun | None:
    """The release whose state is kept there, None where none is.

    Raises BadState for one that is not whole, or of another version.
    """
    content = load(path)
    if content is None:
        return None
    try:
        return Begun(path, read_state(content, IDENTITY, SavedRelease))
    except BadState as error:
        raise BadState(f"{path} was written by another version of changeling: go on with that one") from error


def keep(path: Path, saved: SavedRelease) -> None:
    """Save the release's state, on the disk when this returns."""
    save(path, written_state(IDENTITY, saved))


@dataclass(frozen=True, slots=True)
class Release:
    """What is released of which changelog. asked: the query in words. state: where the state is kept.

    calendar_from_data: the calendar follows the data, so it is no part of what is protected; the state remembers it.
    unit: of privacy. account: what the release is charged to, None for nothing. freeze: the changelog is what was left
    when that which breaks the constraint was taken out. rho: of an entry, where the budget is in that.
    ValueError where the mechanism's guarantee does not cover the query, the calendar or what entries may do.
    """

    changelog: Changelog
    query: LinearQuery
    asked: str
    calendar: Calendar
    constraint: Constraint
    mechanism: ReleaseMechanism[object]
    output: Output
    state: Path
    calendar_from_data: bool = False
    unit: Unit = ENTRY
    account: Account | None = None
    freeze: bool = False
    rho: Fraction | None = None

    def __post_init__(self) -> None:
        stated = self.mechanism.guarantee
        if self.rho is not None and (stated.epsilon**2 / 2 if stated.rho is None else stated.rho) > self.rho:
            raise ValueError(f"the mechanism's guarantee is more than rho {self.rho}")
        if self.rho is not None and stated.rho is None and stated.delta:
            raise ValueError(f"the mechanism's guarantee has a delta, and is no rho {self.rho}")
        if not self.mechanism.covers(self.query, self.calendar, self.constraint):
            raise ValueError(
                "the mechanism's guarantee is about another query, calendar or constraint than is released"
            )

    def terms(self) -> Terms:
        """All that a later run must agree on."""
        spent = self.mechanism.guarantee
        budget = spent.epsilon, spent.delta
        agreed = terms_of(
            self.asked, self.query, self.calendar, self.constraint, *budget, self.unit, self.freeze, self.rho
        )
        form = self.output.path.suffix + " with nodes" * self.output.nodes
        return replace(agreed, mechanism=self.mechanism.made_with(), format=form)

    def breach(self) -> Breach | None:
        """The first mutation that the guarantee does not count with: of an entry, or of a person's further entry."""
        found = [first_breach(self.changelog, self.constraint, self.query.fixed)]
        if self.unit.column is not None:
            found.append(first_beyond(self.changelog, self.unit.most, self.unit.column))
        return min((each for each in found if each is not None), key=lambda each: each.time, default=None)


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
    Raises ConstraintBroken before the period of an entry's breach, TimeReversed where the changelog differs in what is
    already released, BadState for a state of another release or an older one, an output that was changed, or another
    process at work.
    """
    if together < 1:
        raise ValueError(f"at least one period is published at a time, got {together}")
    with held(release.state):
        yield from _run(release, noise, release.calendar.periods if until is None else until, reached, together)


@dataclass(slots=True)
class _Journal:
    """What is saved, and the running SHA-256 of what is published."""

    release: Release
    saved: SavedRelease
    running: "HASH"
    about: str = ""

    def announce(self) -> None:
        """Before the first draw of a flush: the ledger hears of it."""
        self.about = token_hex(8)
        if (account := self.release.account) is not None:
            account.announced(self.saved.charge, self.saved.changelog, self.saved.mark, self.about)

    def repair(self) -> None:
        """The pending rows are published, whether a crash came before, within or after."""
        at = self.release.output.append(self.saved.at, self.saved.pending)
        self.saved = replace(self.saved, at=at)
        self.running.update(self.saved.pending)

    def publish(self, period: int, rows: bytes, digest: bytes, state: object, reached: Callable[[str], None]) -> None:
        """Save the state after this period, mark it as drawn in the ledger, then publish its rows."""
        self.saved = replace(
            self.saved,
            tag=self.about,
            before=self.saved.tag,
            period=period,
            published=self.running.digest(),
            pending=rows,
            digest=digest,
            state=self.release.mechanism.saved(state),
        )
        keep(self.release.state, self.saved)
        reached("saved")
        if (account := self.release.account) is not None:
            account.marked(self.saved.charge, self.saved.changelog, self.saved.mark)
        reached("marked")
        self.repair()
        reached("published")


def _run(
    release: Release, noise: Noise, until: int, reached: Callable[[str], None], together: int
) -> Iterator[tuple[int, Level]]:
    breach = release.breach()
    journal = _resumed(release)
    state = release.mechanism.resumed(journal.saved.state)
    journal.repair()
    reached("repaired")
    begun_at, seen, calendar = journal.saved.period, b"", release.calendar
    drawn: list[tuple[int, Level]] = []
    rows, broken = b"", None
    each = release.changelog.mutations().by_period(calendar.start, calendar.period, calendar.periods)
    for number, part in enumerate(each, 1):
        end = calendar.start + number * calendar.period
        if number > max(until, begun_at):
            break
        if breach is not None and breach.time <= end * MICROSECONDS and number > begun_at:
            broken = breach.error()
            break
        seen = _digest(seen, release.changelog, part)
        if number <= begun_at:
            if number == begun_at and seen != journal.saved.digest:
                raise TimeReversed(
                    f"the changelog differs from the one that was released until period {number}: rows were added, "
                    "changed or taken away in periods that are already published; nothing was drawn. Put it back as it "
                    "was; what came late is dated after what is published"
                )
            continue
        if not drawn:
            journal.announce()
            reached("announced")
        state, level = release.mechanism.step(state, PeriodChange(release.changelog, part, release.query), noise)
        reached("drawn")
        drawn.append((number, level))
        rows += release.output.rows(number, end, level)
        if len(drawn) == together:
            journal.publish(number, rows, seen, state, reached)
            yield from drawn
            drawn, rows = [], b""
    if drawn:
        journal.publish(drawn[-1][0], rows, seen, state, reached)
        yield from drawn
    if broken is not None:
        raise broken


def _resumed(release: Release) -> _Journal:
    terms, output, before, account = release.terms(), release.output, begun(release.state), release.account
    known = before.saved.changelog if before is not None else ""
    if before is not None:
        before.refuse_others(terms)
    if known and account is None:
        raise BadState(f"{release.state} is charged to the ledger of the changelog {known!r}: name it, --ledger")
    if before is not None:
        if account is not None:
            known = account.opened(before.saved.charge, known)
        from_data = before.saved.calendar_from_data or release.calendar_from_data
        saved = replace(before.saved, calendar_from_data=from_data, changelog=known)
    elif output.path.exists():
        raise BadState(
            f"{output.path} exists without its state {release.state.name}: releasing again would draw twice for the "
            "same nodes; choose another output, and count what this one cost"
        )
    else:
        known = "" if account is None else account.opened(None, "")
        saved = replace(_first(release, terms), changelog=known)
        keep(release.state, saved)
    if output.size() > saved.at + len(saved.pending):
        raise BadState(
            f"{output.path} holds more than {release.state.name} knows of: the state is an older one, and going on "
            "from it would draw twice for the same nodes; put the newer one back, or choose another output and count "
            "what this one cost"
        )
    running = output.published(saved.at)
    if running.digest() != saved.published:
        raise BadState(
            f"{output.path} was changed in what is published: put it back as it was, or choose another output and "
            "count what this one cost"
        )
    if not output.torn(saved.at, saved.pending):
        raise BadState(
            f"{output.path} ends with other rows than {release.state.name} knows of: the state was put back, or the "
            "rows were changed; put both back as they were, or choose another output and count what this one cost"
        )
    if account is not None:
        published = output.size() > saved.at
        charged = before is not None and before.saved.changelog != "" and (saved.before != "" or published)
        account.settled(saved.charge, saved.changelog, saved.mark, published, charged)
        if before is not None and before.saved.changelog != saved.changelog:  # begun without a ledger
            keep(release.state, saved)
    return _Journal(release, saved, running)


def _first(release: Release, terms: Terms) -> SavedRelease:
    """The state of a release that nothing is published of yet."""
    return SavedRelease(
        terms,
        release.calendar_from_data,
        period=0,
        at=0,
        published=sha256().digest(),
        pending=release.output.header(),
        digest=b"",
        state=release.mechanism.saved(release.mechanism.start()),
        charge=token_hex(8),
        changelog="",
        tag=token_hex(8),
        before="",
    )


def _digest(before: bytes, changelog: Changelog, part: Mutations) -> bytes:
    """A hash of all mutations so far, by the names of entries and answers, whose numbers may change as a file grows."""
    entries = [changelog.entries[i] for i in part.entry.tolist()]
    answers = [changelog.answers[i - 1] if i else "" for i in part.new.tolist()]
    rows = sorted(zip(part.time.tolist(), entries, answers, strict=True))
    return sha256(before + repr(rows).encode("utf-8", "surrogatepass")).digest()
