"""A release, period after period: guard, draw, save, publish, in that order, resumable at every point.

The state is on the disk before the rows it belongs to are published, so a crash between the two publishes the same
rows again, and a crash before it discards draws that nobody saw. A changelog that was changed in what is already
released, another query or another noise: refused. Nothing is drawn for a period with a mutation beyond the constraint.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from changeling_protocol import Calendar, Constraint
from changeling_protocol.canonical import encode

from ...changelog import MICRO, Changelog, Mutations
from ..changes.linear_query import LinearQuery
from ..changes.release_graph import Level
from ..errors import BadState, TimeReversed
from ..guard import first_breach
from ..noise import Noise
from ..saved import flush_folder, held, load, save
from .methods import Method, PeriodChange
from .output import Output


@dataclass(frozen=True, slots=True)
class Release:
    """What is released of which changelog. asked: the query in words. state: where the state is kept.

    ValueError where the method's guarantee does not cover the query, the calendar or what entries may do.
    """

    changelog: Changelog
    query: LinearQuery
    asked: str
    calendar: Calendar
    constraint: Constraint
    method: Method
    output: Output
    state: Path

    def __post_init__(self) -> None:
        if not self.method.covers(self.query, self.calendar, self.constraint):
            raise ValueError("the method's guarantee is about another query, calendar or constraint than the release's")

    def fingerprint(self) -> bytes:
        """A hash of all that the guarantee and the estimates rest on, but the data."""
        return sha256(
            encode(
                {
                    "query": self.asked,
                    "names": list(self.query.names),
                    "moving": list(self.query.moving),
                    "appearing": list(self.query.appearing),
                    "fixed": self.query.fixed,
                    "unit": str(self.query.unit),
                    "calendar": [self.calendar.start, self.calendar.period, self.calendar.periods],
                    "constraint": self.constraint.as_fields(),
                    "method": self.method.named(),
                    "epsilon": str(self.method.guarantee.epsilon),
                    "delta": str(self.method.guarantee.delta),
                    "output": self.output.path.suffix,
                }
            )
        ).digest()


def run(
    release: Release,
    noise: Noise,
    until: int | None = None,
    reached: Callable[[str], None] = lambda step: None,  # noqa: ARG005
) -> Iterator[tuple[int, Level]]:
    """Publish the periods that are not yet, up to `until` (default: all), yielding (period, level) of each.

    reached: called at every step by name, for tests that kill the process there.
    Raises ConstraintBroken before the period of an entry's breach, TimeReversed where the changelog differs in what is
    already released, BadState for a state of another release or an older one, an output that was cut, or another
    process at work.
    """
    with held(release.state):
        yield from _run(release, noise, release.calendar.periods if until is None else until, reached)


def _run(release: Release, noise: Noise, until: int, reached: Callable[[str], None]) -> Iterator[tuple[int, Level]]:
    breach = first_breach(release.changelog, release.constraint, release.query.fixed)
    saved = _resumed(release)
    period, at, pending = saved["period"], saved["at"], saved["pending"]
    digest, state = saved["digest"], saved["state"]
    if release.output.size() > at + len(pending):
        raise BadState(
            f"{release.output.path} holds more than {release.state.name} knows of: the state is an older one, and "
            "going on from it would draw twice for the same nodes; put the newer one back, or choose another output "
            "and count what this one cost"
        )
    at = release.output.append(at, pending)
    reached("repaired")
    seen = b""
    mutations = release.changelog.mutations()
    calendar = release.calendar
    each = mutations.by_period(calendar.start, calendar.period, calendar.periods)
    for number, part in enumerate(each, 1):
        end = calendar.start + number * calendar.period
        seen = _digest(seen, release.changelog, part)
        if number <= period:
            if number == period and seen != digest:
                raise TimeReversed(
                    f"the changelog differs from the one that was released until period {period}: rows were added, "
                    "changed or taken away in periods that are already published; nothing was drawn. Put it back as it "
                    "was; what came late is dated after what is published"
                )
            continue
        if number > until:
            return
        if breach is not None and breach.time <= end * MICRO:
            raise breach.error()
        change = PeriodChange(release.changelog, part, release.query)
        state, level = release.method.step(state, change, noise)
        reached("drawn")
        rows = release.output.rows(number, end, level)
        save(release.state, _fields(release, number, at, rows, seen, state))
        reached("saved")
        at = release.output.append(at, rows)
        reached("published")
        yield number, level


def _resumed(release: Release) -> dict[str, Any]:
    saved = load(release.state)
    if saved is None:
        if release.output.path.exists():
            raise BadState(
                f"{release.output.path} exists without its state {release.state.name}: releasing again would draw "
                "twice for the same nodes; choose another output, and count what this one cost"
            )
        fields = _fields(release, 0, 0, release.output.header(), b"", release.method.start())
        save(release.state, fields)
        flush_folder(release.output.path.parent)
        return fields
    if saved.get("fingerprint") != release.fingerprint():
        raise BadState(
            f"{release.state} belongs to a release with another query, calendar, constraint, mechanism or budget; "
            "its nodes are never drawn again: choose another output"
        )
    return saved


def saved_calendar(state: Path) -> Calendar | None:
    """The calendar of a release that has begun."""
    saved = load(state)
    return None if saved is None else Calendar(*saved["calendar"])


def _fields(
    release: Release, period: int, at: int, pending: bytes, digest: bytes, state: dict[str, Any]
) -> dict[str, Any]:
    calendar = release.calendar
    return {
        "fingerprint": release.fingerprint(),
        "calendar": [calendar.start, calendar.period, calendar.periods],
        "period": period,
        "at": at,
        "pending": pending,
        "digest": digest,
        "state": state,
    }


def _digest(before: bytes, changelog: Changelog, part: Mutations) -> bytes:
    """A hash of all mutations so far, by the names of entries and answers, whose numbers may change as a file grows."""
    names = ("", *changelog.answers)
    entries = [changelog.entries[i] for i in part.entry.tolist()]
    answers = [names[i] for i in part.new.tolist()]
    rows = sorted(zip(part.time.tolist(), entries, answers, strict=True))
    return sha256(before + repr(rows).encode("utf-8", "surrogatepass")).digest()
