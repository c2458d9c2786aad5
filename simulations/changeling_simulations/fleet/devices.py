"""What one made-up device answers: by the protocol's own code, on coins from a seed.

It draws its group and nodes, remembers what a joint group's entry remembers, and lays out uploads as an app's device
does. Its coins repeat, so that its envelopes can be expected: no person's device has any such.
"""

import random
from collections.abc import Sequence

from changeling_protocol import (
    Closing,
    Node,
    Report,
    Slots,
    Standing,
    StratumNumber,
    Survey,
    closings,
    draw_closing_id,
    draw_nodes,
    respond,
)


class SeededCoins:
    """Integers that a seed repeats, for devices that nobody has."""

    def __init__(self, seed: str) -> None:
        self._generator = random.Random(seed)  # noqa: S311  # made-up devices alone

    def below(self, n: int) -> int:
        """An integer in [0, n)."""
        return self._generator.randrange(n)


class Device:
    """An entry of a survey that holds these answers.

    states: 0 for none, else the answer's number, at the ends of periods 0..T. coins: draw everything.
    """

    def __init__(self, survey: Survey, states: Sequence[int], coins: SeededCoins) -> None:
        self._survey, self._states, self._coins = survey, states, coins
        self.group = survey.plan.draw_group(coins)
        self._of_group = survey.plan.groups[self.group]
        self._nodes = [
            None if track.reported is None else {*draw_nodes(track, coins)} for track in self._of_group.tracks
        ]
        self._slots = Slots.unused(self._of_group)
        self._stratum = StratumNumber(coins.below(survey.strata))
        self._heard = False

    def answer(self, span: Node) -> tuple[list[Closing], list[Report]]:
        """What it answers at the closings of a span, all of them; spans come in order, and each once."""
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
            true = track.randomizer.space.index(self._states[node.start], self._states[node.end])
            symbol, self._slots = respond(self._of_group, place, true, self._slots, self._coins)
            reports.append(Report(number, at, symbol))
        return reports
