"""A block of a fleet's devices: their envelopes with the moments when they are due, and what they must come to.

A block follows from the fleet's seed and its own number, so blocks are made anywhere, in any order.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from changeling_protocol import (
    MOST_SPANNED_PERIODS,
    Closing,
    Node,
    Refusal,
    SealingKey,
    Survey,
    closings,
    encode_upload,
    seal,
)
from numpy.typing import NDArray

from ..population import Population, States
from ..synthetic import synthetic_changelog
from .devices import Device, SeededCoins
from .garbage import COUNTED, TOLD
from .rhythm import Rhythm, Times
from .truth import Adding, Truth
from .wishes import Wishes

BLOCK_DEVICES = 1000
MOST_CHANGES = 2.0
"""An entry's changes of mind, on average; fewer where the calendar is short."""
RHYTHM = Rhythm()
"""When devices are awake to send."""
RETRY_SECONDS = 30.0
"""How long a device waits before it sends an envelope again whose answer it did not hear, on average."""


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Envelopes of some devices. due: Unix seconds, of each; they are in no order of time."""

    due: Times
    envelopes: list[bytes]
    truth: Truth


def make_block(survey: Survey, key: SealingKey, wishes: Wishes, number: int) -> Block:
    """The block with this number, from 0 on, of BLOCK_DEVICES devices, or of what is left for the last one."""
    count = min(BLOCK_DEVICES, wishes.devices - number * BLOCK_DEVICES)
    generator = np.random.default_rng([wishes.seed, number])
    making = _Making(survey, key, wishes, number, _states(survey, count, generator), generator)
    making.report()
    made = len(making.envelopes)
    for share, make in ((wishes.late, making.be_late), (wishes.garbage, making.send_garbage)):
        for _ in range(int(generator.binomial(made, share))):
            make()
    making.repeat(made)
    making.adding.truth.envelopes = len(making.envelopes)
    return Block(np.array(making.due), making.envelopes, making.adding.done())


class _Making:
    """What a block has so far."""

    def __init__(
        self,
        survey: Survey,
        key: SealingKey,
        wishes: Wishes,
        number: int,
        states: States,
        generator: np.random.Generator,
    ) -> None:
        self._survey, self._key, self._wishes, self._number = survey, key, wishes, number
        self._states, self._generator = states, generator
        self._others = 0
        self.adding = Adding(survey)
        self.due: list[float] = []
        self.envelopes: list[bytes] = []
        self._answered: list[list[Closing]] = []
        """The closings that are answered in each."""

    def report(self) -> None:
        """Each device answers what it is heard at, on time or after it was offline."""
        heard = self._wishes.heard
        online = self._generator.random((len(self._states), heard.width)) >= self._wishes.offline
        moments = self._moments(heard, len(self._states))
        for device in range(len(self._states)):
            answering = self._device(f"{device}", device)
            for span in spans(heard, online[device]):
                if closings(self._survey.plan, span.start, span.end):
                    self._put(answering, span, moments[device, span.end - heard.start - 1])

    def be_late(self) -> None:
        """A device of its own answers one closing whose grace is over."""
        overdue = self._wishes.overdue
        assert overdue is not None  # noqa: S101  # as Wishes says
        span = self._closing_in(overdue)
        over, period = self._survey.calendar.time(span.end) + self._survey.grace, self._survey.calendar.period
        self._put(self._other(), span, over + 1 + (period - 1) * float(self._generator.random()))

    def send_garbage(self) -> None:
        """One envelope that is refused, or has a report that is."""
        kinds = COUNTED + TOLD
        make = kinds[int(self._generator.integers(len(kinds)))]
        span = self._closing_in(self._wishes.heard)
        self.envelopes.append(make(self._survey, self._key, self._other(), span, self.adding))
        self.due.append(float(self._moments(span, 1)[0, 0]))

    def repeat(self, made: int) -> None:
        """Send some of the devices' envelopes again, as they are."""
        again = np.flatnonzero(self._generator.random(made) < self._wishes.duplicates)
        for place in again.tolist():
            due = self.due[place] + float(self._generator.exponential(RETRY_SECONDS))
            self.envelopes.append(self.envelopes[place])
            self.due.append(due)
            for closing in self._answered[place]:
                self.adding.refuse(Refusal.LATE if self._is_late(closing) else Refusal.DUPLICATE)

    def _put(self, device: Device, span: Node, due: float) -> None:
        answered, reports = device.answer(span)
        plaintext = encode_upload(self._survey.plan, device.group, span, answered, reports)
        self.envelopes.append(seal(plaintext, self._survey.id, self._key))
        self.due.append(due)
        self._answered.append(answered)
        good = [each for each in answered if not self._is_late(each)]
        self.adding.accept(device.group, good, reports)
        if late := len(answered) - len(good):
            self.adding.refuse(Refusal.LATE, late)

    def _is_late(self, closing: Closing) -> bool:
        """Whether a server refuses a closing as late, by its own clock."""
        return self._wishes.overdue is not None and closing.period <= self._wishes.overdue.end

    def _moments(self, span: Node, count: int) -> Times:
        """When devices that are online after each period of a span send, shape (count, periods)."""
        survey = self._survey
        closes = np.array([survey.calendar.time(period) for period in range(span.start + 1, span.end + 1)], float)
        waiting = survey.skew + survey.spread * self._generator.random((count, span.width))
        within = float(min(survey.calendar.period, survey.grace - survey.skew - survey.spread))
        return RHYTHM.draw(closes + waiting, within, self._generator)

    def _closing_in(self, span: Node) -> Node:
        """A period of the span with a closing."""
        periods = closings(self._survey.plan, span.start, span.end)
        period = periods[int(self._generator.integers(len(periods)))]
        return Node(period - 1, period)

    def _other(self) -> Device:
        """A device that is none of the block's, with the answers of one."""
        self._others += 1
        return self._device(f"other {self._others}", self._others % len(self._states))

    def _device(self, name: str, states: int) -> Device:
        coins = SeededCoins(f"{self._wishes.seed} {self._number} {name}")
        return Device(self._survey, self._states[states].tolist(), coins)


def spans(heard: Node, online: NDArray[np.bool_]) -> Iterator[Node]:
    """What one device answers in one go each: the periods since it was online last, as many as an upload may span.

    online: whether it reports after each period of `heard`, shape (periods,). What comes after the last time is never
    answered.
    """
    after = heard.start
    for period, there in enumerate(online.tolist(), heard.start + 1):
        if there or period - after == MOST_SPANNED_PERIODS:
            yield Node(after, period)
            after = period


def _states(survey: Survey, count: int, generator: np.random.Generator) -> States:
    """The answers of devices at the ends of periods 0..T, as their constraint allows; a row each, in no order."""
    calendar = survey.calendar
    changes = min(MOST_CHANGES, (calendar.periods - 1) / 2) if len(survey.answers) > 1 else 0.0
    changelog = synthetic_changelog(len(survey.answers), count, changes, calendar, generator)
    population = Population.from_changelog(changelog, calendar, survey.constraint)
    rows: States = np.repeat(population.frozen, population.weights, axis=0)
    return generator.permutation(rows)
