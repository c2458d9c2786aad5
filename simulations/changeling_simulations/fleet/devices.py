"""A fleet's devices: what load is wished for, what each one answers, and the envelopes of a block of them.

A device answers by the protocol's own code, on coins from a seed, so that its envelopes can be expected: no person's
device has any such. A block follows from the fleet's seed and its own number, so blocks are made anywhere, in any
order. Some envelopes must be refused, each for a reason that is known when it is made.
"""

import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from changeling_protocol import (
    CLOSING_BYTES,
    HEAD_BYTES,
    ID_BYTES,
    MOST_SPANNED_PERIODS,
    Calendar,
    Closing,
    Node,
    Question,
    Refusal,
    Report,
    SealingKey,
    Standing,
    StratumNumber,
    Survey,
    SurveyId,
    UnixSeconds,
    closings,
    draw_closing_id,
    draw_nodes,
    encode_upload,
    first_memory,
    respond,
    seal,
    symbol_bytes,
)
from numpy.typing import NDArray

from ..population import Population, States, synthetic_changelog
from .truth import Adding, Truth

MARGIN_SECONDS = 60
"""At the least so long before its grace ends a closing is taken for one that the server will count."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """A fleet.

    devices: how many, each of which answers all closings of the periods in `heard`, (start, end].
    overdue: periods whose closings come after their grace; None where nothing is to be late.
    offline: the chance that a device does not report after a period, and answers for it later.
    duplicates, late, garbage: so many more envelopes, as shares of those that devices send: sent once more; about a
    closing whose grace is over; refused for another reason.
    seed: another one makes other devices, with other answers and other ids.
    """

    devices: int
    heard: Node
    overdue: Node | None
    offline: float = 0.0
    duplicates: float = 0.0
    late: float = 0.0
    garbage: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.devices < 1:
            raise ValueError(f"a fleet has at least one device, got {self.devices}")
        for name in ("offline", "duplicates", "late", "garbage"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} is a share from 0 to below 1, got {getattr(self, name)}")
        if self.late and self.overdue is None:
            raise ValueError("no period's grace is over, so nothing can be late: leave it out, or wait")


def open_periods(survey: Survey, now: UnixSeconds, lasting: float = 0.0) -> Node:
    """The periods that have closed and whose grace lasts, as a span.

    now: Unix seconds. lasting: for how many seconds envelopes will be sent. Raises ValueError where there are none.
    """
    calendar = survey.calendar
    last = calendar.closed(UnixSeconds(now - 1))
    over = _over(survey, UnixSeconds(now + lasting + MARGIN_SECONDS))
    if last <= over or not closings(survey.plan, over, last):
        raise ValueError(
            "no closing of the survey can be answered now: its periods are to come, or their grace is over"
        )
    return Node(over, last)


def overdue_periods(survey: Survey, now: UnixSeconds) -> Node | None:
    """The periods whose grace is over by now, in Unix seconds, with room for clocks; None where there are none."""
    over = _over(survey, UnixSeconds(now - MARGIN_SECONDS))
    return Node(0, over) if over and closings(survey.plan, 0, over) else None


def _over(survey: Survey, now: UnixSeconds) -> int:
    """How many periods' grace is over."""
    return survey.calendar.closed(UnixSeconds(now - survey.grace))


DAY_SECONDS = 86_400
SWING, BUSIEST_HOUR = 0.6, 18.0
"""How far the number of awake devices swings about its mean in a day; and the hour, UTC, when most are awake."""
Times = NDArray[np.float64]


def awake(times: Times) -> Times:
    """How many devices are awake, beside the day's mean, which is 1: 1 + swing·cos(2π(h - busiest)/24).

    times: Unix seconds, of any shape.
    """
    curve: Times = 1 + SWING * np.cos(2 * np.pi * (times / DAY_SECONDS - BUSIEST_HOUR / 24))
    return curve


def arrivals(after: Times, within: float, generator: np.random.Generator) -> Times:
    """For each device a moment at which it is awake, by the curve of the day: in (after, after + within).

    after: Unix seconds, of any shape. within: seconds. Given how many devices there are, these are the arrivals of
    a Poisson process whose rate follows the curve.
    """
    drawn = after + within * generator.random(after.shape)
    left = np.ones(after.shape, bool)
    while left.any():
        left[left] = generator.random(int(left.sum())) * (1 + SWING) > awake(drawn[left])
        drawn[left] = after[left] + within * generator.random(int(left.sum()))
    return drawn


class SeededCoins:
    """Integers that a seed repeats, for devices that nobody has."""

    def __init__(self, seed: str) -> None:
        self._generator = random.Random(seed)  # noqa: S311  # made-up devices alone

    def below(self, n: int) -> int:
        """An integer in [0, n)."""
        return self._generator.randrange(n)


class SimulatedDevice:
    """An entry of a survey that holds these answers.

    states: to each question, 0 for none, else the answer's number, at the ends of periods 0..T. coins: draw everything.
    """

    def __init__(self, survey: Survey, states: Sequence[Sequence[int]], coins: SeededCoins) -> None:
        self._survey, self._states, self._coins = survey, states, coins
        self.group = survey.plan.draw_group(coins)
        self._of_group = survey.plan.groups[self.group]
        self._nodes = [
            None if track.reported is None else {*draw_nodes(track, coins)} for track in self._of_group.tracks
        ]
        self._slots = first_memory(self._of_group)
        self._stratum = StratumNumber(coins.below(survey.strata))
        self._heard = False

    def answer(self, span: Node) -> tuple[list[Closing], list[Report]]:
        """The answers at the closings of a span, all of them; spans come in order, and each once."""
        answered: list[Closing] = []
        reports: list[Report] = []
        for period in closings(self._survey.plan, span.start, span.end):
            standing = Standing.KNOWN if self._heard else Standing.NEW
            self._heard = True
            answered.append(Closing(period, draw_closing_id(self._coins), standing, self._stratum))
            reports += self._report(period)
        return answered, reports

    def _report(self, period: int) -> list[Report]:
        reports = []
        for place, (number, track) in enumerate(self._survey.plan.numbered(self.group)):
            at = track.ending_at(period)
            drawn = self._nodes[place]
            if at is None or (drawn is not None and at not in drawn):
                continue
            node = track.node(at)
            states = self._states[track.question]
            true = track.randomizer.space.index(states[node.start], states[node.end])
            symbol, self._slots = respond(self._of_group, place, true, self._slots, self._coins)
            reports.append(Report(number, at, symbol))
        return reports


BLOCK_DEVICES = 1000
MOST_CHANGES = 2.0
"""An entry's changes of mind, on average; fewer where the calendar is short."""
RETRY_SECONDS = 30.0
"""How long a device waits before it sends an envelope again whose answer it did not hear, on average."""


@dataclass(frozen=True, slots=True, eq=False)
class EnvelopeBlock:
    """Envelopes of some devices. due: Unix seconds, of each; they are in no order of time."""

    due: Times
    envelopes: list[bytes]
    truth: Truth


def make_block(survey: Survey, key: SealingKey, wishes: Wishes, number: int) -> EnvelopeBlock:
    """The block with this number, from 0 on, of BLOCK_DEVICES devices, or of what is left for the last one."""
    making = _Making(survey, key, wishes, number)
    making.report()
    made = len(making.envelopes)
    for share, make in ((wishes.late, making.be_late), (wishes.garbage, making.send_garbage)):
        for _ in range(int(making.generator.binomial(made, share))):
            make()
    making.repeat(made)
    making.adding.truth.envelopes = len(making.envelopes)
    return EnvelopeBlock(np.array(making.due), making.envelopes, making.adding.done())


class _Making:
    """A block that is being made: envelopes, when each is due, and what they must come to."""

    def __init__(self, survey: Survey, key: SealingKey, wishes: Wishes, number: int) -> None:
        self._survey, self._key, self._wishes, self._number = survey, key, wishes, number
        self.generator = np.random.default_rng([wishes.seed, number])
        self._devices = min(BLOCK_DEVICES, wishes.devices - number * BLOCK_DEVICES)
        self._states = [
            _states(question, survey.calendar, self._devices, self.generator) for question in survey.questions
        ]
        self._others = 0
        self.adding = Adding(survey)
        self.due: list[float] = []
        self.envelopes: list[bytes] = []
        self._answered: list[list[Closing]] = []
        """The closings that are answered in each."""

    def report(self) -> None:
        """Each device answers what it is heard at, on time or after it was offline."""
        heard = self._wishes.heard
        online = self.generator.random((self._devices, heard.width)) >= self._wishes.offline
        moments = self._moments(heard, self._devices)
        for device in range(self._devices):
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
        self._put(self._other(), span, over + 1 + (period - 1) * float(self.generator.random()))

    def send_garbage(self) -> None:
        """One envelope that is refused, or has a report that is."""
        kinds = COUNTED + TOLD
        make = kinds[int(self.generator.integers(len(kinds)))]
        span = self._closing_in(self._wishes.heard)
        self.envelopes.append(make(self, self._other(), span))
        self.due.append(float(self._moments(span, 1)[0, 0]))

    def repeat(self, made: int) -> None:
        """Send some of the devices' envelopes again, as they are."""
        again = np.flatnonzero(self.generator.random(made) < self._wishes.duplicates)
        for place in again.tolist():
            self.envelopes.append(self.envelopes[place])
            self.due.append(self.due[place] + float(self.generator.exponential(RETRY_SECONDS)))
            for closing in self._answered[place]:
                self.adding.refuse(Refusal.LATE if self._is_late(closing) else Refusal.DUPLICATE)

    def noise(self, device: SimulatedDevice, span: Node) -> bytes:
        """An envelope of no protocol version."""
        del device, span
        self.adding.tell(Refusal.MALFORMED)
        return b"\0" + os.urandom(199)

    def unknown_survey(self, device: SimulatedDevice, span: Node) -> bytes:
        """An envelope of another survey."""
        self.adding.tell(Refusal.UNKNOWN_SURVEY)
        envelope = self._sealed(device, span, *device.answer(span))
        return envelope[:1] + SurveyId(os.urandom(ID_BYTES)) + envelope[1 + ID_BYTES :]

    def unknown_key(self, device: SimulatedDevice, span: Node) -> bytes:
        """An envelope sealed to another key."""
        self.adding.tell(Refusal.UNKNOWN_KEY, counted=True)
        envelope = self._sealed(device, span, *device.answer(span))
        return envelope[: 1 + ID_BYTES] + os.urandom(ID_BYTES) + envelope[HEAD_BYTES:]

    def too_large(self, device: SimulatedDevice, span: Node) -> bytes:
        """An envelope longer than any upload of the survey."""
        self.adding.tell(Refusal.TOO_LARGE, counted=True)
        row = CLOSING_BYTES + sum(symbol_bytes(track.randomizer) + 5 for track in self._survey.plan.tracks) + 64
        return self._sealed(device, span, *device.answer(span)) + bytes(row * (MOST_SPANNED_PERIODS + 2))

    def altered(self, device: SimulatedDevice, span: Node) -> bytes:
        """An envelope one of whose bits has turned over."""
        self.adding.refuse(Refusal.UNOPENABLE)
        envelope = self._sealed(device, span, *device.answer(span))
        return envelope[:-1] + bytes([envelope[-1] ^ 1])

    def no_upload(self, device: SimulatedDevice, span: Node) -> bytes:
        """An envelope that holds no upload of the plan."""
        del device, span
        self.adding.refuse(Refusal.MALFORMED)
        return seal(b"no upload of this plan" + os.urandom(64), self._survey.id, self._key)

    def unknown_stratum(self, device: SimulatedDevice, span: Node) -> bytes:
        """Closings of a stratum that the survey has not."""
        answered, reports = device.answer(span)
        self.adding.refuse(Refusal.UNKNOWN_STRATUM, len(answered))
        wrong = [each._replace(stratum=StratumNumber(self._survey.strata)) for each in answered]
        return self._sealed(device, span, wrong, reports)

    def no_such_symbol(self, device: SimulatedDevice, span: Node) -> bytes:
        """The closing counts, and its other reports; where it has no report that can be wrong, all of it does."""
        answered, reports = device.answer(span)
        for place, report in enumerate(reports):
            randomizer = self._survey.plan.tracks[report.track].randomizer
            if randomizer.symbols + 1 < 256 ** symbol_bytes(randomizer):
                self.adding.refuse(Refusal.SYMBOL_OUT_OF_RANGE)
                self.adding.accept(device.group, answered, reports[:place] + reports[place + 1 :])
                reports[place] = report._replace(symbol=randomizer.symbols)
                break
        else:
            self.adding.accept(device.group, answered, reports)
        return self._sealed(device, span, answered, reports)

    def _put(self, device: SimulatedDevice, span: Node, due: float) -> None:
        answered, reports = device.answer(span)
        self.envelopes.append(self._sealed(device, span, answered, reports))
        self.due.append(due)
        self._answered.append(answered)
        good = [each for each in answered if not self._is_late(each)]
        self.adding.accept(device.group, good, reports)
        if late := len(answered) - len(good):
            self.adding.refuse(Refusal.LATE, late)

    def _sealed(self, device: SimulatedDevice, span: Node, answered: list[Closing], reports: list[Report]) -> bytes:
        plaintext = encode_upload(self._survey.plan, device.group, span, answered, reports)
        return seal(plaintext, self._survey.id, self._key)

    def _is_late(self, closing: Closing) -> bool:
        """True if a server refuses a closing as late, by its own clock."""
        return self._wishes.overdue is not None and closing.period <= self._wishes.overdue.end

    def _moments(self, span: Node, count: int) -> Times:
        """When devices that are online after each period of a span send, shape (count, periods)."""
        survey = self._survey
        closes = np.array([survey.calendar.time(period) for period in range(span.start + 1, span.end + 1)], float)
        waiting = survey.skew + survey.spread * self.generator.random((count, span.width))
        within = float(min(survey.calendar.period, survey.grace - survey.skew - survey.spread))
        return arrivals(closes + waiting, within, self.generator)

    def _closing_in(self, span: Node) -> Node:
        """A period of the span with a closing."""
        period = int(self.generator.choice(closings(self._survey.plan, span.start, span.end)))
        return Node(period - 1, period)

    def _other(self) -> SimulatedDevice:
        """A device that is none of the block's, with the answers of one."""
        self._others += 1
        return self._device(f"other {self._others}", self._others % self._devices)

    def _device(self, name: str, place: int) -> SimulatedDevice:
        coins = SeededCoins(f"{self._wishes.seed} {self._number} {name}")
        return SimulatedDevice(self._survey, [states[place].tolist() for states in self._states], coins)


Make = Callable[[_Making, SimulatedDevice, Node], bytes]
"""Makes an envelope of a device about a span of one period with a closing, and adds what it must come to."""
TOLD: tuple[Make, ...] = (_Making.noise, _Making.unknown_survey, _Making.unknown_key, _Making.too_large)
"""Envelopes that are refused from outside, so that no log holds them."""
COUNTED: tuple[Make, ...] = (_Making.altered, _Making.no_upload, _Making.unknown_stratum, _Making.no_such_symbol)
"""Envelopes that are refused once they are open."""


def spans(heard: Node, online: NDArray[np.bool_]) -> Iterator[Node]:
    """The spans that one device answers in one go: the periods since it was online last, as many as an upload may span.

    online: whether it reports after each period of `heard`, shape (periods,). What comes after the last time is never
    answered.
    """
    after = heard.start
    for period, there in enumerate(online.tolist(), heard.start + 1):
        if there or period - after == MOST_SPANNED_PERIODS:
            yield Node(after, period)
            after = period


def _states(question: Question, calendar: Calendar, count: int, generator: np.random.Generator) -> States:
    """The answers of devices to a question at the ends of periods 0..T, as it allows; a row each, in no order.

    To one about freezing they are made up as to any other, and do not follow from those to the question it is about.
    """
    changes = min(MOST_CHANGES, (calendar.periods - 1) / 2) if len(question.answers) > 1 else 0.0
    changelog = synthetic_changelog(len(question.answers), count, changes, calendar, generator)
    population = Population.from_changelog(changelog, calendar, question.constraint)
    rows: States = np.repeat(population.frozen, population.weights, axis=0)
    return generator.permutation(rows)
