"""At most k mutations within a time: a device keeps to both bounds, however often its store is closed between."""

import pytest
from changeling_client import Recorded
from changeling_protocol import AtMostWithin

from .device import PLAIN, START, Clock, FakeServer, all_nodes, by_node, client


@pytest.mark.parametrize(
    ("constraint", "given", "counted"),
    [
        (AtMostWithin(2, 300), [(5, "tea"), (70, "coffee"), (130, "tea")], 2),
        (AtMostWithin(3, 100), [(5, "tea"), (105, "coffee"), (130, "tea")], 2),
        (AtMostWithin(3, 100), [(5, "tea"), (106, "coffee"), (190, "tea")], 1),
    ],
    ids=["k", "the last second", "a second late"],
)
def test_either_bound_holds_across_restarts(tmp_path, constraint, given, counted):
    """Answers, seconds from the start, to a device that starts anew for each: what is reported in the end."""
    asked = PLAIN.asking(constraint=constraint, epsilon_micro=10**9)
    server, clock = FakeServer(asked), Clock()
    server.clock = clock

    def opened(seconds, then):
        clock.now = START + seconds
        with client(tmp_path, server, clock) as device:
            return then(device)

    opened(1, lambda device: device.join(asked.id))
    found = [opened(at, lambda device: device.join(asked.id).record(answer)) for at, answer in given]  # noqa: B023
    assert [Recorded.COUNTED] * counted == [each for each in found if each is Recorded.COUNTED]
    for period in range(4, 12):
        opened(60 * period + 20, lambda device: device.flush())
    told = by_node(server)
    assert told.keys() == all_nodes(asked)
    assert sum(true != 0 for (start, end), true in told.items() if end == start + 1) == counted
