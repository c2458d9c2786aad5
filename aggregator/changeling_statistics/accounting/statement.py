"""What a survey can cost an entry, in the three ways we know how to say it, each with what it rests on."""

from dataclasses import dataclass

from changeling_protocol.randomizers import rounded_up

from .shuffled import CONDITIONS, shuffled_loss
from .transcript import Charged, checked_delta, epsilon_at


@dataclass(frozen=True, slots=True)
class Figure:
    """(epsilon, delta)-differential privacy of one entry's whole changelog; epsilon in nats, rounded up.

    source: where the bound is proved. conditions: what it needs.
    """

    epsilon: float
    delta: float
    source: str
    conditions: str


@dataclass(frozen=True, slots=True)
class LossStatement:
    """What a survey can cost an entry, said in three ways.

    pure: with delta 0. approximate: the local (ε, δ). shuffled: the (ε, δ) against whoever sees uploads only after a
    relay has shuffled them; None if none does.
    """

    pure: Figure
    approximate: Figure
    shuffled: Figure | None


def loss_statement(survey: Charged, delta: float, shuffled_entries: int | None = None) -> LossStatement:
    """What a survey can cost an entry at this delta: shuffled <= approximate <= pure.

    delta: from 0 to below 1, well below one in the number of entries.
    shuffled_entries: at least how many entries are shuffled together at every closing; None if no relay shuffles.
    Raises ValueError for a delta outside [0, 1), and, with shuffled entries, below 1e-12.
    """
    checked_delta(delta)
    local = "none: holds against the server and everybody else, whatever others do"
    pure = Figure(rounded_up(survey.cost), 0.0, "the charge of the release plan, from exact integer odds", local)
    approximate = Figure(
        epsilon_at(survey, delta),
        delta,
        "privacy-loss distributions of the worst transcripts, composed with dp-accounting and rounded up "
        "(Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022; Zhu, Dong, Wang 2022)",
        f"{local}; with probability about delta a transcript may tell more, never more than the pure figure",
    )
    if shuffled_entries is None:
        return LossStatement(pure, approximate, None)
    after = shuffled_loss(survey, delta, shuffled_entries)
    shuffled = Figure(after.epsilon, delta, after.source, f"n = {shuffled_entries}: {CONDITIONS}")
    return LossStatement(pure, approximate, shuffled)
