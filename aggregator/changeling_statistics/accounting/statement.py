"""What a survey can cost an entry, in three figures, each with its source and its conditions."""

from dataclasses import dataclass

from changeling_protocol import rounded_up

from .shuffled import CONDITIONS, shuffled_loss
from .transcript import Charged, check_delta, epsilon_at


@dataclass(frozen=True, slots=True)
class Figure:
    """That everything an entry reports is (epsilon, delta)-differentially private in its whole changelog.

    epsilon: in nats, rounded up.
    delta: 0 for a pure guarantee.
    source: where the bound is proved.
    conditions: what must hold for it, in words.
    """

    epsilon: float
    delta: float
    source: str
    conditions: str


@dataclass(frozen=True, slots=True)
class LossStatement:
    """What a survey can cost an entry, in three figures.

    pure: with delta 0, against everybody.
    approximate: with the delta asked for, against everybody.
    shuffled: with that delta, against whoever sees uploads only after a relay has shuffled them; None if the survey
    declares no relay, or nobody said how many entries it shuffles.
    """

    pure: Figure
    approximate: Figure
    shuffled: Figure | None


def loss_statement(survey: Charged, delta: float, shuffled_entries: int | None = None) -> LossStatement:
    """What a survey can cost an entry. Of the three epsilons, shuffled <= approximate <= pure.

    delta: from 0 to below 1. It ought to be well below one in the number of entries.
    shuffled_entries: at least how many entries, of one stratum, are shuffled together at every closing; None if that is
    not known.
    Raises ValueError for a delta outside [0, 1), and, for a shuffled figure, below 1e-12 or without an entry.
    """
    check_delta(delta)
    local = "none: holds against the server and everybody else, who know the entry's group and drawn nodes"
    pure = Figure(rounded_up(survey.cost), 0.0, "the charge of the release plan, from exact integer odds", local)
    approximate = Figure(
        epsilon_at(survey, delta),
        delta,
        "privacy-loss distributions of the worst transcripts, those of joint groups in closed form, composed with "
        "dp-accounting and rounded up "
        "(Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022; Zhu, Dong, Wang 2022)",
        f"{local}; with probability about delta a transcript may tell more, never more than the pure figure",
    )
    if shuffled_entries is None or not survey.relay:
        return LossStatement(pure, approximate, None)
    after = shuffled_loss(survey, delta, shuffled_entries)
    shuffled = Figure(after.epsilon, delta, after.source, f"n = {shuffled_entries}: {CONDITIONS}")
    return LossStatement(pure, approximate, shuffled)
