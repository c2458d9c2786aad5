"""Real clients, joined, recording and flushing: what the entries of a joint group send together."""

from collections import Counter

import pytest
from changeling_protocol import (
    Calendar,
    Group,
    Joint,
    KaryChange,
    KaryResponse,
    MutationSpace,
    Odds,
    ReleasePlan,
    StateSpace,
    Track,
)
from changeling_simulations.sampler import in_order
from scipy.stats import chisquare

from tests.client_sdk.device import Clock, FakeServer, client
from tests.coins import SeededCoins
from tests.protocol.examples import survey

from .devices import exact_law

ENTRIES = 700
FALSE_ALARM = 1e-6
"""The chance that a right client fails, were its coins drawn anew."""
TRACKS = (
    Track(1, KaryResponse(StateSpace(2, null=False), Odds(2, 1)), 0, 3, reported=1),
    Track(1, KaryChange(MutationSpace(2, null=False), Odds(2, 1)), 1, 3),
)
GROUP = Group.jointly(TRACKS, Joint(Odds(60, 1), 3, (2, 1), (1, 2)))


@pytest.fixture(scope="module")
def sent(tmp_path_factory):
    """What each of 700 entries sent on every node, all of them with the states 1, 2, 1 in a closed cohort."""
    asked = survey(
        ReleasePlan((GROUP,)), answers=("tea", "coffee"), calendar=Calendar(1_000_000, 60, 3), closed=True, grace=10**6
    )
    server, clock = FakeServer(asked), Clock(asked.calendar.start)
    with client(tmp_path_factory.mktemp("store"), server, clock, SeededCoins(1)) as device:
        handle = device.join(asked.id, entries=ENTRIES, answers=["tea"] * ENTRIES)
        for period, answer in ((1, "coffee"), (2, "tea")):
            clock.now = asked.calendar.time(period) + 1
            for entry in range(ENTRIES):
                handle.record(answer, entry=entry)
        clock.now = asked.calendar.time(3) + asked.skew + asked.spread + 1
        device.flush()
    order = [(number, node) for number, node in in_order(GROUP)]
    envelopes = [{(report.track, report.node): report.symbol for report, *_ in reports} for reports in server.opened()]
    return [tuple(envelope.get(node) for node in order) for envelope in envelopes]


def test_real_clients_send_what_the_enumerated_law_of_a_joint_group_says(sent):
    """All reports of an entry together, over all symbols and all nodes it may draw: chi-squared, rare ones as one."""
    law, seen = exact_law(GROUP, (0, 1, 2, 1)), Counter(sent)
    assert seen.total() == ENTRIES
    assert set(seen) <= set(law)
    often = [each for each, chance in law.items() if ENTRIES * chance >= 5]
    observed = [seen[each] for each in often]
    expected = [ENTRIES * float(law[each]) for each in often]
    observed.append(ENTRIES - sum(observed))
    expected.append(ENTRIES - sum(expected))
    assert chisquare(observed, expected, sum_check=False).pvalue > FALSE_ALARM
