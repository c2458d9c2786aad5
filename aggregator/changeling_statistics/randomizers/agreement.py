"""How many reports agree with the inputs they are of, and symbols drawn for those that do and those that do not.

Knows no kind of randomizer, and no joint response: a report may agree for whatever reason.
"""

from fractions import Fraction

import numpy as np
from changeling_protocol import Odds, Randomizer, agreeing

from ..tallies import Counts


def agreement_chance(p: Fraction, odds: Odds) -> float:
    """How likely a report agrees: pa / (pa + (1-p)b), a ratio of integers that is rounded once to a float.

    p: how likely a symbol of the base agrees. odds: a:b, how symbols that agree are favoured over all others.
    """
    agreed = p.numerator * odds.favoured
    return agreed / (agreed + (p.denominator - p.numerator) * odds.other)


def sample_agreements(randomizer: Randomizer, counts: Counts, generator: np.random.Generator) -> tuple[Counts, Counts]:
    """Draws how many reports of each input agree at the randomizer's own odds, and how many do not.

    counts: how many entries have each input, shape (m,). Those with nothing to tell are counted as in `of_the_base`.
    Raises ValueError for a randomizer without a joint form.
    """
    joint_form = agreeing(randomizer)
    telling = np.array([joint_form.tells(true) for true in range(joint_form.space.size)])
    told = np.where(telling, counts, 0)
    agreed: Counts = generator.binomial(told, agreement_chance(joint_form.agreement, joint_form.odds))
    base_agreed, base_others = of_the_base(randomizer, int(counts.sum() - told.sum()), generator)
    return agreed + base_agreed, told - agreed + base_others


def of_the_base(randomizer: Randomizer, reports: int, generator: np.random.Generator) -> tuple[Counts, Counts]:
    """Reports of the base as reports of one input that tells: how many agree with it and how many do not, by input.

    Which input does not matter: each agrees with a symbol of the base with the same chance, and a symbol is drawn from
    the base, given whether it agrees. Returns shapes (m,) and (m,).
    """
    joint_form = agreeing(randomizer)
    told = next(true for true in range(joint_form.space.size) if joint_form.tells(true))
    one = np.eye(1, joint_form.space.size, told, dtype=np.int64)[0]
    agreed = int(generator.binomial(reports, float(joint_form.agreement)))
    return agreed * one, (reports - agreed) * one


def sample_inputs(agreed: Counts, others: Counts, generator: np.random.Generator) -> Counts:
    """Draws slots of reports whose symbols are the inputs: those that agree are the input, others are uniform.

    agreed, others: how many reports of each input agree, and how many do not, shape (m,).
    """
    slots, m = agreed.copy(), len(agreed)
    for true in np.flatnonzero(others).tolist():
        symbols = np.delete(np.arange(m), true)
        slots[symbols] += generator.multinomial(others[true], np.full(m - 1, 1 / (m - 1)))
    return slots
