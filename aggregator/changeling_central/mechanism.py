"""What a central mechanism is: a frozen value with its guarantee, and explicit state.

`state, release = step(state, input, noise)`: nothing is remembered between calls but the state, which can be
saved and resumed, so that a node's noise is drawn once whatever crashes.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol, TypeVar

from .noise import Noise

State = TypeVar("State")
Input = TypeVar("Input", contravariant=True)
Release = TypeVar("Release", covariant=True)


@dataclass(frozen=True, slots=True)
class Guarantee:
    """(epsilon, delta)-differential privacy for everything a mechanism ever releases.

    neighbours: what two databases told apart differ in. source: where it is proved.
    """

    epsilon: Fraction
    delta: Fraction
    neighbours: str
    source: str


class Mechanism(Protocol[State, Input, Release]):
    """A streaming mechanism."""

    @property
    def guarantee(self) -> Guarantee: ...

    def start(self) -> State:
        """The state before any input. Draws nothing."""
        ...

    def step(self, state: State, value: Input, noise: Noise) -> tuple[State, Release]:
        """The next state and what is released. Raises CentralError before anything is drawn."""
        ...
