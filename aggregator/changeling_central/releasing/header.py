"""What a release says of itself: the lines at the head of its output, which the command prints as well.

Nothing of it comes from the data, unless the calendar does, which is then said.
"""

import re
from fractions import Fraction

from changeling_protocol import Calendar, Constraint
from changeling_statistics import constraint_in_words, format_duration, format_instant

from ..mechanism import Guarantee
from .method import Made, ReleaseMechanism
from .sums import number
from .unit import Unit

_EXACT = re.compile(r"-?0x[0-9a-f.]+p[+-]\d+")

_STATED = "stated with each row, as far as it is known"

About = tuple[tuple[str, str], ...]
"""What is said, by what it is about."""


def about_release(
    asked: str,
    calendar: Calendar,
    from_data: bool,
    constraint: Constraint,
    freeze: bool,
    unit: Unit,
    guarantee: Guarantee,
    mechanism: ReleaseMechanism[object],
    error: float | None,
) -> About:
    """The lines. asked: the query in words. from_data: the calendar is the data's.

    error: the standard error of every column, None where it is not one for all of them, or unknown.
    """
    first, last = format_instant(calendar.start), format_instant(calendar.time(calendar.periods))
    dates = f"{calendar.periods} of {format_duration(calendar.period)} from {first} to {last}"
    beyond = "left out (--freeze)" if freeze else "stop the release"
    return (
        ("query", asked),
        ("periods", dates + ", read from the data and not protected" * from_data),
        ("unit of privacy", unit.said),
        ("guarantee", f"{spent(guarantee.epsilon, guarantee.delta, guarantee.rho)}, for the whole release"),
        ("neighbours", guarantee.neighbours),
        ("source", guarantee.source),
        (
            "constraint",
            f"{constraint_in_words(constraint)}; mutations beyond it are {beyond}"
            if freeze
            else constraint_in_words(constraint),
        ),
        ("mechanism", mechanism.noise_in_words or described(mechanism.made_with())),
        ("standard error", _STATED if error is None else f"{error:.6g}, root mean square over the periods"),
    )


def spent(epsilon: Fraction, delta: Fraction, rho: Fraction | None = None) -> str:
    """A budget in words. rho: where it is in that, with the (epsilon, delta) that follows."""
    if rho is not None and not delta:
        return f"epsilon {number(epsilon)}, which is worth rho {_number(rho)} (zCDP)"
    if rho is not None:
        return f"rho {_number(rho)} (zCDP), so epsilon {number(epsilon)} at delta {number(delta)}"
    return f"epsilon {_number(epsilon)}" + (f", delta {_number(delta)}" if delta else "")


def described(made: Made) -> str:
    """What a mechanism was made with: its kind, shape, law and scale of its noise, in words."""
    parts = []
    for key, value in made.items():
        if isinstance(value, list):
            parts.append(f"{key} {' '.join(_plain(each) for each in value)}")
        elif key != "kind":
            parts.append(f"{key} {_plain(value)}")
    return "; ".join([str(made.get("kind", "")), ", ".join(parts)])


def _plain(value: int | str) -> str:
    """Numbers that are kept to the last bit, in decimals; anything else as it is."""
    words = str(value).split(" ")
    return " ".join(f"{float.fromhex(word):.6g}" if _EXACT.fullmatch(word) else word for word in words)


def _number(exact: Fraction) -> str:
    short = f"{float(exact):.10g}"
    return short if Fraction(short) == exact else str(exact)
