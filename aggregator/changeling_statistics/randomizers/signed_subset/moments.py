"""The mean squares and products of the signs of a uniform vector, and of a uniform one that a mutation favours."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SignMoments:
    """The second moments of the signs w_i of a uniform vector over d >= 2 states.

    states: d.
    favoured: π, the share of vectors that a mutation favours.
    nonzero: η = E w_i², the share of signs that are not zero.
    pair: ξ = E w_i w_j for two states i and j.
    nonzero_rest, pair_rest: η_F and ξ_F, the same for a uniform vector among those that a mutation favours, over the
    d - 2 states that it leaves alone.
    """

    states: int
    favoured: float
    nonzero: float
    pair: float
    nonzero_rest: float
    pair_rest: float

    @classmethod
    def of(cls, states: int, pluses: int) -> "SignMoments":
        """The moments over so many states.

        pluses: j, how many states get a plus, and how many a minus; 0 for balanced vectors.
        """
        low, high = (pluses, pluses) if pluses else (states // 2, states - states // 2)
        odd = (high - low) ** 2
        return cls(
            states,
            low * high / (states * (states - 1)),
            *_moments(states, low + high, odd),
            *_moments(states - 2, low + high - 2, odd),
        )


def _moments(positions: int, signs: int, odd: int) -> tuple[float, float]:
    """E w_i² and E w_i w_j of uniform vectors: `signs` of the positions have a sign, and all add up to ±√odd."""
    if positions < 1:
        return 0.0, 0.0
    pair = (odd - signs) / (positions * (positions - 1)) if positions > 1 else 0.0
    return signs / positions, pair
