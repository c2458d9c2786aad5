"""Coupled-worlds (CW) privacy: the region of a mechanism whose database is drawn at random.

The observer knows the law of the database, f given a secret's one value and f' with the secret scrubbed, and nothing
else of it. Then M(X) has law P f and M(alt(X)) has law P f', and these two rows are a mechanism over two databases:
its region, its (ε_i, δ_i) and δ(ε) are those of `region`. So the data's own randomness may protect, even where M
draws nothing; and it protects only while the law is right and the observer knows no more than it says. Where laws
are several (what else may be known, which secret), the worst pair counts.

Neighbours: the two worlds of each pair, in either order. Source: "Composition theorem for streaming CW-privacy",
section 1.2; Bassily, Groce, Katz, Smith 2013 (coupled-worlds privacy).

The exact number of ones among three fair bits, an observer who asks for the first bit:

    >>> from itertools import product
    >>> from fractions import Fraction
    >>> databases = list(product((0, 1), repeat=3))
    >>> count = FiniteMechanism.tabled(databases, lambda bits: {sum(bits): 1})
    >>> one, zero = (tuple(Fraction(bits[0] == bit, 4) for bits in databases) for bit in (1, 0))
    >>> [(corner.ratio, corner.delta) for corner in cw_region(count, [(one, zero)]).corners]
    [(Fraction(2, 1), Fraction(1, 4))]
"""

from collections.abc import Iterable, Sequence
from fractions import Fraction

from .finite import FiniteMechanism
from .region import PrivacyRegion, region_of_laws


def cw_region(
    mechanism: FiniteMechanism, laws: Iterable[tuple[Sequence[Fraction], Sequence[Fraction]]]
) -> PrivacyRegion:
    """The region of the rows P f and P f', for the worst of the pairs (f, f').

    laws: probabilities over the mechanism's databases, shapes (databases,). ValueError for none, or for what is no
    law. The mechanism's own neighbours are not looked at.
    """
    pairs = [(mechanism.mixed(secret), mechanism.mixed(scrubbed)) for secret, scrubbed in laws]
    if not pairs:
        raise ValueError("a region needs at least one pair of laws over databases")
    return region_of_laws(pairs)
