"""How the signs of a uniform vector vary together: every state but the two of a mutation looks alike."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SignMoments:
    """Of uniform sign vectors over d states, d >= 2.

    states: d. favoured: π, the share of vectors that a mutation favours.
    nonzero, pair: η = E w_i² and ξ = E w_i w_j.
    nonzero_rest, pair_rest: η_F and ξ_F, the same of a uniform favoured vector over the other d - 2 states.
    """

    states: int
    favoured: float
    nonzero: float
    pair: float
    nonzero_rest: float
    pair_rest: float

    @classmethod
    def of(cls, states: int, pluses: int) -> "SignMoments":
        """pluses: j, how many states get a plus and how many a minus; 0 for balanced vectors."""
        low, high = (pluses, pluses) if pluses else (states // 2, states - states // 2)
        odd = (high - low) ** 2
        return cls(
            states,
            low * high / (states * (states - 1)),
            *_moments(states, low + high, odd),
            *_moments(states - 2, low + high - 2, odd),
        )


def _moments(positions: int, signs: int, odd: int) -> tuple[float, float]:
    """E w_i² and E w_i w_j of uniform vectors with so many signs that add up to ±√odd."""
    if positions < 1:
        return 0.0, 0.0
    pair = (odd - signs) / (positions * (positions - 1)) if positions > 1 else 0.0
    return signs / positions, pair
