"""The unit of privacy: an entry with all its mutations, or a person with all the entries that are theirs.

A person with at most N entries is N neighbours in a row, so a release that costs an entry (ε/N, δ') costs the person
(ε, δ), δ = δ' (e^ε - 1)/(e^(ε/N) - 1): group privacy, whatever the mechanism. One of ρ-zCDP costs the person N²ρ.
Source: Dwork, Roth 2014, theorem 2.2; for δ, Vadhan 2017, lemma 2.2; for ρ, Bun, Steinke 2016, proposition 1.9.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import exp, expm1

from ..mechanism import Guarantee

BELOW = 1 - 2.0**-40
"""What a computed delta is lowered by, to stand below all rounding of its computation."""


@dataclass(frozen=True, slots=True)
class Unit:
    """column: of the changelog, that says whose an entry is; None where an entry is the unit. most: entries, N."""

    column: str | None = None
    most: int = 1

    def __post_init__(self) -> None:
        if self.most < 1 or (self.column is None and self.most > 1):
            raise ValueError(f"a person has at least one entry at most, and a column that says so, got {self.most}")

    @property
    def name(self) -> str:
        """What two releases must agree on, before what they cost is the same thing's."""
        return "entry" if self.column is None else f"person by {self.column}"

    @property
    def said(self) -> str:
        """In words."""
        if self.column is None:
            return "an entry, with all its mutations"
        return f"a person, by the column {self.column}, with all of at most {self.most} entries"

    def of_an_entry(self, epsilon: Fraction, delta: Fraction) -> tuple[Fraction, Fraction]:
        """What an entry may cost, so that the unit costs at most (epsilon, delta)."""
        if self.most == 1 or epsilon <= 0:
            return epsilon, delta
        whole, part = float(epsilon), float(epsilon / self.most)
        # (e^part - 1) / (e^whole - 1), of which both would overflow
        share = Fraction(exp(part - whole) * expm1(-part) / expm1(-whole) * BELOW)
        return epsilon / self.most, delta * share

    def rho_of_an_entry(self, rho: Fraction) -> Fraction:
        """What an entry may cost in rho, so that the unit costs at most that: a group of N costs N² times as much."""
        return rho / self.most**2

    def guarantee(self, of_entry: Guarantee, epsilon: Fraction, delta: Fraction) -> Guarantee:
        """What the unit is promised, by a mechanism that promises so much of an entry."""
        if self.column is None:
            return of_entry
        neighbours = (
            f"all entries of one person (column {self.column}), at most {self.most}, in place of one entry in: "
            f"{of_entry.neighbours}"
        )
        rho = None if of_entry.rho is None else of_entry.rho * self.most**2
        return Guarantee(epsilon, delta, neighbours, f"{of_entry.source}, for groups of {self.most}", rho)


ENTRY = Unit()
"""The unit where nobody says otherwise."""
