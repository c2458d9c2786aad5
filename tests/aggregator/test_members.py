"""Every entry that answers a closing is counted there once, however its answers travel."""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from changeling_aggregator.fold import fold
from changeling_aggregator.store import Store, everybody
from changeling_aggregator.testing import tallies_in
from changeling_protocol import Breakdown, Calendar, Closing, Node, Report, Standing, encode_upload, seal
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ..protocol.examples import mixed, survey
from .devices import Log

START, PERIODS = 1_800_000_000, 8
END = START + 60 * PERIODS
ASKED = replace(
    survey(mixed(3, PERIODS), calendar=Calendar(START, 60, PERIODS), grace=10**6),
    breakdowns=(Breakdown("platform", ("linux", "mac", "windows")),),
)
"""Three groups, of which one reports two random nodes, and one only every other period."""


class Device:
    """One entry: what it answers at each closing that it is there for."""

    def __init__(self, random: Random) -> None:
        self.group = random.randrange(3)
        self.answers: dict[int, tuple[Closing, list[Report]]] = {}
        stratum, standing = random.randrange(3), Standing.NEW
        for period in range(random.randint(1, PERIODS), PERIODS + 1):
            if random.random() < 0.2:
                standing = Standing.KNOWN if self.answers else Standing.MISSED
                continue
            if random.random() < 0.1:
                stratum = random.randrange(3)
            reports = [
                Report(number, node, random.randrange(track.randomizer.symbols))
                for number, track in ASKED.plan.numbered(self.group)
                if (node := track.ending_at(period)) is not None and random.random() < 0.5
            ]
            self.answers[period] = Closing(period, random.randbytes(16), standing, stratum), reports
            standing = Standing.KNOWN

    def upload(self, log: Log, periods: Sequence[int]) -> bytes:
        """Some of its answers in one envelope, whose span may begin earlier and end later."""
        known = [self.answers[period] for period in periods]
        span = Node(max(periods[0] - 2, 0), min(periods[-1] + 1, PERIODS))
        closings, reports = [closing for closing, _ in known], [report for _, told in known for report in told]
        return seal(encode_upload(ASKED.plan, self.group, span, closings, reports), ASKED.id, log.key)


def packings(device: Device, random: Random) -> list[list[int]]:
    """Runs of periods that cover each answer at least once: overlapping, repeated, in any order."""
    periods = sorted(device.answers)
    runs = []
    for _ in range(random.randint(1, 3)):
        left = periods
        while left:
            cut = random.randint(1, len(left))
            runs.append(left[:cut])
            left = left[max(cut - random.randrange(2), 1) :]
    random.shuffle(runs)
    return runs


@pytest.mark.heavy
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(seed=st.integers(0, 10**6))
def test_members_are_counted_once_however_their_answers_are_packed(tmp_path: Path, seed: int) -> None:
    """Sent again, cut otherwise, over overlapping spans, on several streams and in batches of any size: by group,
    closing and stratum each entry is heard once, with its own standing, and each of its reports counts once."""
    random = Random(seed)
    store = Store.open(tmp_path / f"{os.urandom(8).hex()}.db")
    log = Log.of(store, ASKED)
    streams = [log.stream, store.open_stream(None)]
    devices = [Device(random) for _ in range(12)]
    sent = [device.upload(log, run) for device in devices for run in packings(device, random)]
    random.shuffle(sent)
    for upload in sent:
        log.append(END, upload, stream=random.choice(streams))
        if random.random() < 0.1:
            fold(store, END, batch=random.choice([1, 3, 100]))
    fold(store, END, batch=5)

    for stratum in range(3):
        heard: Counter[tuple[int, int, Standing]] = Counter()
        reports: Counter[tuple[int, int]] = Counter()
        for device in devices:
            for closing, told in device.answers.values():
                if closing.stratum == stratum:
                    heard[device.group, closing.period, closing.standing] += 1
                    reports.update((report.track, report.node) for report in told)
        with store.view() as view:
            found = {key: each for key, each in view.counted_strata(ASKED.id, ASKED.plan).items() if key[2] == stratum}
        assert {key: (here.heard, here.new, here.missed) for key, here in everybody(found).attendance.items()} == {
            (group, period): (
                sum(heard[group, period, standing] for standing in Standing),
                heard[group, period, Standing.NEW],
                heard[group, period, Standing.MISSED],
            )
            for group, period, _ in heard
        }
        assert {key: tally.reports for key, tally in everybody(found).items()} == dict(reports)
    answered = sum(len(device.answers) for device in devices)
    with store.view() as view:
        assert sum(here.heard for here in tallies_in(view, ASKED).attendance.values()) == answered
    assert set(log.refused()) <= {"duplicate"}
    store.close()
