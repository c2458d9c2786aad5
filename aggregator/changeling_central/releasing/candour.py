"""What a curator should hear before anything is drawn: of the data, for nobody else, and of the mechanism.

Asides tell of the data: how many entries were frozen, and how far off the count is for it; names that no row holds;
values that nobody declared. They are not private. They go to whoever runs the release, never into what is published.
"""

from collections.abc import Callable, Iterator, Sequence
from math import isnan, sqrt

import numpy as np
from changeling_protocol import Calendar
from changeling_statistics import Changelog, format_instant

from ..changes.answer_query import names_in, numbers_of
from ..changes.linear_query import LinearQuery
from .method import ReleaseMechanism
from .truth import true_levels

MOST_NAMED = 5
MOST_STEPS = 128
"""At how many periods a variance is looked up, evenly over the calendar."""


def of_freezing(log: Changelog, kept: Changelog, query: LinearQuery, calendar: Calendar) -> str:
    """How many entries were frozen, how many mutations that left out, and how far off the worst column ever is.

    log: as it was read. kept: what is released.
    """
    if len(kept) == len(log):
        return "--freeze froze no entry"
    entries, counts = np.unique(log.entry, return_counts=True)
    left = np.bincount(kept.entry, minlength=len(log.entries))[entries]
    touched = int(np.count_nonzero(left < counts))
    off = true_levels(kept, query, calendar) - true_levels(log, query, calendar)
    worst = np.unravel_index(np.argmax(np.abs(off)), off.shape)
    far = float(off[worst] * query.unit)
    when = format_instant(calendar.time(int(worst[0]) + 1))
    return (
        f"--freeze froze {_counted(touched, 'entry', 'entries')} of {len(entries):,} and left out "
        f"{_counted(len(log) - len(kept), 'mutation', 'mutations')} of {len(log):,}: what is counted is off by up to "
        f"{far:+,.6g} ({query.names[int(worst[1])]}, at {when}), whatever its standard error"
    )


def of_names(asked: str, log: Changelog, declared: Sequence[str] | None, query: LinearQuery) -> Iterator[str]:
    """Names that no row holds, values that nobody declared, and answers that are no numbers, a sentence each.

    asked: the query in words. declared: the names there are, None where nobody said.
    """
    held = set(log.answers)
    wanted = [*names_in(asked), *(declared or [])]
    if missing := [name for name in dict.fromkeys(wanted) if name not in held]:
        yield f"no row holds {_list(missing)}"
    if declared is not None:
        unknown = [name for name in log.answers if name not in declared]
        if unknown:
            states = [state for state, name in enumerate(log.answers, 1) if name not in declared]
            rows = int(np.isin(log.state, states).sum())
            where = "counted as other" if "other" in query.names and "other" not in declared else "counted nowhere"
            where = "counted, as the query counts them all" if _counts_all(query, states) else where
            yield (
                f"{_counted(rows, 'row holds', 'rows hold')} one of "
                f"{_counted(len(unknown), 'answer', 'answers')} that nobody declared, {_list(unknown)}: {where}"
            )
    if (numbers := numbers_of(asked, log.answers)) is not None:
        states = [state for state, name in enumerate(log.answers, 1) if name not in numbers.values]
        clipped = [state for state, name in enumerate(log.answers, 1) if numbers.is_clipped(name)]
        for chosen, said in ((states, "hold what is no finite number, and add nothing"), (clipped, "are clipped")):
            if rows := int(np.isin(log.state, chosen).sum()):
                yield f"{rows:,} of {int((log.state > 0).sum()):,} values {said}"


def expected_error(mechanism: ReleaseMechanism[object], query: LinearQuery, periods: int) -> float | None:
    """The standard error to expect, root mean square over the calendar; None where nothing is known of it."""
    return _root_mean(mechanism.expected_variance, query, periods)


def stated_error(mechanism: ReleaseMechanism[object], query: LinearQuery, periods: int) -> float | None:
    """The same of what the mechanism states of itself, without lower bounds."""
    return _root_mean(mechanism.variance, query, periods)


def _root_mean(variance: Callable[[int], float | None], query: LinearQuery, periods: int) -> float | None:
    steps = np.unique(np.linspace(1, periods, min(periods, MOST_STEPS)).round().astype(int)).tolist()
    variances = [variance(step) for step in steps]
    known = [variance for variance in variances if variance is not None and not isnan(variance)]
    return sqrt(sum(known) / len(known)) * float(query.unit) if known else None


def of_purpose(name: str, good_for: str, error: float | None, usual: str, usual_error: float) -> str:
    """What a mechanism is good for, and how far it and the usual one err. Errors: standard, None if unknown."""
    own = "nobody can say how far it errs" if error is None else f"expect it to err by about {error:.4g}"
    return (
        f"{name} is good for {good_for}; here {own}, {usual} by {usual_error:.4g} (standard error, root mean square "
        "over the calendar)"
    )


def _counts_all(query: LinearQuery, states: Sequence[int]) -> bool:
    return query.width == 1 and bool(query.cells[list(states)].all())


def _counted(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    return ", ".join(map(repr, names[:MOST_NAMED])) + more
