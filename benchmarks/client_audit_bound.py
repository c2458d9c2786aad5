"""A lower bound on epsilon from transcripts of two ways to live, that holds with a stated confidence.

If no event is more than e^ε times likelier the one way than the other, then ε >= ln(p/q) for every event, p and q being
its chances. The event is chosen by some of the transcripts, and p and q are bounded by the others, after Clopper and
Pearson: p from below and q from above, each wrong with at most half of the false-alarm rate. Nothing is assumed of how
transcripts come about, but that entries' transcripts are independent.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import inf, log

from scipy.special import betaincinv

from .client_audit_transcripts import Transcript

FALSE_ALARM = 0.001
"""How often a bound may lie above the true loss, unless an audit says otherwise."""
CHOOSE = 3
"""Every third transcript helps to choose the event, and is then left out."""


@dataclass(frozen=True, slots=True)
class Event:
    """Some transcripts, and whether they are to be likelier the other way than the one."""

    transcripts: frozenset[Transcript]
    turned: bool


def audited(one: Sequence[Transcript], other: Sequence[Transcript], false_alarm: float = FALSE_ALARM) -> float:
    """The lower bound on epsilon, in nats, from independent transcripts of two ways to live; 0 where there is none."""
    event = chosen(one[::CHOOSE], other[::CHOOSE])
    first, second = (_counted(event, [each for at, each in enumerate(way) if at % CHOOSE]) for way in (one, other))
    likelier, rarer = (second, first) if event.turned else (first, second)
    return max(0.0, lower_bound(likelier, rarer, false_alarm))


def lower_bound(likelier: tuple[int, int], rarer: tuple[int, int], false_alarm: float = FALSE_ALARM) -> float:
    """ln(p/q), p bounded from below and q from above.

    likelier, rarer: how often an event came, and of how many transcripts, where p and where q is its chance.
    false_alarm: how often the bound may lie above ln(p/q).
    """
    (came, count), (rarely, others) = likelier, rarer
    if came == 0:
        return -inf
    p = betaincinv(came, count - came + 1, false_alarm / 2)
    q = 1.0 if rarely == others else betaincinv(rarely + 1, others - rarely, 1 - false_alarm / 2)
    return log(p / q)


def chosen(one: Sequence[Transcript], other: Sequence[Transcript]) -> Event:
    """The event that gives these transcripts the largest bound, among those that hold what is likeliest one way."""
    best, bound = Event(frozenset(), False), -inf
    for turned, (way, against) in enumerate(((one, other), (other, one))):
        often, seldom = Counter(way), Counter(against)
        ranked = sorted(often, key=lambda each: (often[each] + 0.5) / (seldom[each] + 0.5), reverse=True)
        came = rarely = 0
        for last, transcript in enumerate(ranked, 1):
            came, rarely = came + often[transcript], rarely + seldom[transcript]
            if (found := lower_bound((came, len(way)), (rarely, len(against)))) > bound:
                best, bound = Event(frozenset(ranked[:last]), bool(turned)), found
    return best


def _counted(event: Event, transcripts: Collection[Transcript]) -> tuple[int, int]:
    return sum(each in event.transcripts for each in transcripts), len(transcripts)
