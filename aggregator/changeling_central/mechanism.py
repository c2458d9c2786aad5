"""What every central mechanism is: a frozen value that states its guarantee, and a state that goes from step to step.

    state, release = mechanism.step(state, value, noise)

A mechanism remembers nothing between calls; all that it needs is in the state. A state can be saved as bytes and
resumed, so that what was released is never drawn a second time, whatever crashes in between.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from hashlib import sha256
from typing import Generic, TypeVar

from .noise import Noise
from .states import read_state, written_state

State = TypeVar("State")
Input = TypeVar("Input", contravariant=True)
Release = TypeVar("Release", covariant=True)


@dataclass(frozen=True, slots=True)
class Guarantee:
    """(epsilon, delta)-differential privacy of everything that a mechanism ever releases, all steps together.

    epsilon: in nats, exact. delta: exact, 0 for pure privacy. neighbours: what the two databases that nobody can tell
    apart differ in. source: where it is proved. rho: where it is rho-zCDP, which (epsilon, delta) follows from; None
    where nothing is said of that.
    """

    epsilon: Fraction
    delta: Fraction
    neighbours: str
    source: str
    rho: Fraction | None = None


class Mechanism(ABC, Generic[State, Input, Release]):
    """A mechanism that takes one input a step and releases one output a step; of a static one there is one step.

    A step that would break the guarantee raises BudgetExhausted. Whatever a step raises, it raises before it draws.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def guarantee(self) -> Guarantee:
        """What all steps together cost, whoever looks at every release."""

    @property
    def overwrites(self) -> bool:
        """Whether `step` writes over the state it is given: only pan-privacy does, which must leave no old state."""
        return False

    @abstractmethod
    def start(self) -> State:
        """The state before any input. Draws nothing."""

    @abstractmethod
    def step(self, state: State, value: Input, noise: Noise) -> tuple[State, Release]:
        """One more input: the state after it, and what is released.

        The same state, value and draws give the same result. The old state stays as it was, unless `overwrites`.
        What is released is the caller's own: writing over it changes no state.
        noise: where every draw comes from.
        Raises CentralError or ValueError, and then nothing was drawn.
        """

    @abstractmethod
    def check(self, state: State) -> None:
        """Raises BadState for a state that no run of this mechanism reaches, as far as its shape tells."""

    def variance(self, step: int) -> float | None:  # noqa: ARG002
        """Variance of each number that is released at a step, in the release's unit squared.

        step: counted from 1. Returns None where no variance is known, as where answers are no sum of truth and noise.
        """
        return None

    def identity(self) -> str:
        """What a saved state belongs to: the mechanism's name, its budget, and a hash of all that it was made with.

        So a state is never resumed under another query, calendar or noise. A mechanism with a field that no state can
        hold, such as a function, says otherwise what it was made with.
        """
        stated = self.guarantee
        return f"{type(self).__name__} {stated.epsilon} {stated.delta} {sha256(written_state('', self)).hexdigest()}"

    def saved(self, state: State) -> bytes:
        """The state as bytes, for `resumed`. It may hold true counts: keep it where the data are kept."""
        return written_state(self.identity(), state)

    def resumed(self, saved: bytes) -> State:
        """The state that `saved` wrote. Raises BadState for damaged bytes and for a state of another mechanism."""
        state = read_state(saved, self.identity(), type(self.start()))
        self.check(state)
        return state
