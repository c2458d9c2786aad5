"""How often one report tells the truth, and how often it would do so by luck: exact, for every kind of randomizer.

Of a joint group a report by itself is meant, by one who knows of no other: its randomizer has just those odds.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import cast

from changeling_protocol import Agreeing, Randomizer, ReleasePlan

from .conclusion import percent_down, percent_up

_STATED = (
    "names the answer that you hold, or that you hold none, {truth} of the time; by luck it would {luck} of the time"
)
_CHANGED = "names what happened, a change or none, {truth} of the time; by luck it would {luck} of the time"
_SILENT = (
    "names the change that there was {truth} of the time; by luck it would {luck} of the time. "
    "Where nothing changed it is random"
)
_FITS = (
    "points to one change or several, and the one that there was is among them {truth} of the time; by luck it would "
    "be {luck} of the time. Where nothing changed it is random"
)
_LISTS = (
    "is a list of answers, and the one that you hold is on it {truth} of the time; by luck it would be {luck} "
    "of the time"
)
_TICKS = "ticks the answer that you hold {truth} of the time, and each answer that you do not hold {luck} of the time"
_AGREES = "agrees with the truth {truth} of the time; by luck it would {luck} of the time"
_GUESS = "lets somebody guess the truth {truth} of the time, who would guess it {luck} of the time without"

_MEANINGS = {
    ("k-rr", False): _STATED,
    ("k-rr", True): _CHANGED,
    ("k-rr-change", True): _SILENT,
    ("signed-subset", True): _FITS,
    ("subset", False): _LISTS,
}
"""What it is for a symbol to agree with the truth, by the randomizer's kind and whether it reports changes."""


@dataclass(frozen=True, slots=True)
class Truthfulness:
    """What one report of a track says about the truth.

    changes: whether it is about a change, or about the answer held at a time.
    meaning: what it is for such a report to tell the truth, a sentence with a place for each of the two figures.
    truth: the probability that it tells the truth, if there is one to be told.
    luck: the probability that a report says the same that knows nothing of the truth.
    """

    changes: bool
    meaning: str
    truth: Fraction
    luck: Fraction

    def __str__(self) -> str:
        subject = "A single report about a change" if self.changes else "A single report about your answer"
        return f"{subject} {self.meaning.format(truth=percent_up(self.truth), luck=percent_down(self.luck))}."


def truthfulness(randomizer: Randomizer) -> Truthfulness:
    """What one report through a randomizer says about the truth.

    Of one that is neither unary nor favours the symbols that agree with the truth, such as a custom matrix, the best
    guess counts: how often whoever holds all inputs for equally likely guesses the true one from the symbol.
    """
    changes = randomizer.space.reports_changes
    ticks: tuple[Fraction, Fraction] | None = getattr(randomizer, "ticks", None)
    if ticks is not None:
        return Truthfulness(changes, _TICKS, *ticks)
    if hasattr(randomizer, "favoured_symbol_at"):
        agreeing = cast(Agreeing, randomizer)
        p, a, b = agreeing.agreement, agreeing.odds.favoured, agreeing.odds.other
        return Truthfulness(changes, _MEANINGS.get((agreeing.kind, changes), _AGREES), p * a / (p * a + (1 - p) * b), p)
    return Truthfulness(changes, _GUESS, *_guessed(randomizer))


def most_telling(plan: ReleasePlan) -> tuple[Truthfulness, ...]:
    """Of each meaning that a report of the plan can have, the one that tells most beyond luck."""
    best: dict[tuple[bool, str], Truthfulness] = {}
    for track in plan.tracks:
        one = truthfulness(track.randomizer)
        kept = best.setdefault((one.changes, one.meaning), one)
        if one.truth - one.luck > kept.truth - kept.luck:
            best[one.changes, one.meaning] = one
    return tuple(best.values())


def _guessed(randomizer: Randomizer) -> tuple[Fraction, Fraction]:
    """How often the best guess is right that knows the symbol, and one that does not; inputs that never occur aside."""
    space = randomizer.space
    inputs = [
        true for true in range(space.size) if true == 0 or not space.reports_changes or len(set(space.pair(true))) == 2
    ]
    totals = {true: randomizer.total(true) for true in inputs}
    right = sum(
        max(Fraction(randomizer.weight(symbol, true), totals[true]) for true in inputs)
        for symbol in range(randomizer.symbols)
    )
    return right / Fraction(len(inputs)), Fraction(1, len(inputs))
