"""Lives drawn at random: backups in any order beside a witness, and what is recorded against what is reported."""

import shutil
import tempfile
from collections import defaultdict
from fractions import Fraction
from pathlib import Path
from random import Random

import pytest
from changeling_client import Recorded, Sidecar, WitnessTrouble
from changeling_protocol import (
    AtMost,
    Calendar,
    Group,
    Joint,
    KaryResponse,
    MutationSpace,
    ReleasePlan,
    SignedSubset,
    StateSpace,
    Track,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from ..protocol.examples import survey
from .device import PLAIN, START, TRUTHFUL, Clock, FakeServer, client


class Failing(Sidecar):
    """A sidecar whose disk fails at will, so that what was drawn is not told."""

    fails = False

    def write(self, seen):
        if self.fails:
            raise WitnessTrouble("the disk is gone")
        super().write(seen)


STEPS = ["flush", "killed", "back up", "put back", "put back all", "clone", "forget lock", "record"]


def laid_over(source, target, *, all_of_it):
    """The store's files as they were, in place of what is there; or the sidecar's as well, over what is there."""
    for file in target.glob("store.db*"):
        if file.is_file():
            file.unlink()
    for file in source.rglob("*"):
        to = target / file.relative_to(source)
        if file.is_file() and (all_of_it or file.parent == source):
            to.parent.mkdir(exist_ok=True)
            to.write_bytes(file.read_bytes())


@pytest.mark.heavy
@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 2), st.booleans()), min_size=3, max_size=9))
def test_whatever_is_put_back_no_closing_is_answered_twice(steps):
    """Killed between drawing and telling, copied, put back with the sidecar laid over or without, cloned into another
    folder that has the same sidecar, in any order: of each closing the server gets one id."""
    with tempfile.TemporaryDirectory() as folder:
        live, other = Path(folder, "live"), Path(folder, "other")
        server, clock = FakeServer(PLAIN), Clock(START + 1)
        backups = []

        def run(place, *, fails=False, answer=None):
            witness = Failing(live / "witness")
            with client(place, server, clock, witness=witness) as device:
                handle = device.join(PLAIN.id)
                if answer is not None:
                    handle.record(answer)
                witness.fails = fails
                device.flush()

        run(live)
        for what, which, later in steps:
            clock.now += 60 if later else 1
            if what == "back up":
                backups.append(Path(folder, f"{len(backups)}"))
                shutil.copytree(live, backups[-1])
            elif what in ("put back", "put back all") and backups:
                laid_over(backups[which % len(backups)], live, all_of_it=what == "put back all")
            elif what == "clone":
                other.mkdir(exist_ok=True)
                laid_over(live, other, all_of_it=False)
                run(other)
            elif what == "forget lock":
                (live / "store.db.lock").unlink(missing_ok=True)
            else:
                run(live, fails=what == "killed", answer=PLAIN.answers[which] if what == "record" else None)
        clock.now += 60
        for place in (live, other, *backups):
            if (place / "store.db").exists():
                run(place)
        ids = defaultdict(set)
        for closing in server.closings():
            ids[closing.period].add(closing.id)
        assert all(len(each) == 1 for each in ids.values())


CHANGES, HELD = MutationSpace(3), StateSpace(3)
PLANS = {
    "shifted": (Track(3, KaryResponse(CHANGES, TRUTHFUL), 1, 12), Track(2, KaryResponse(HELD, TRUTHFUL), 3, 12)),
    "sampled": (
        Track(1, KaryResponse(CHANGES, TRUTHFUL), 2, 12, reported=3),
        Track(2, KaryResponse(HELD, TRUTHFUL), 0, 12, reported=2),
    ),
    "mixed": (
        Track(4, KaryResponse(CHANGES, TRUTHFUL), 0, 12),
        Track(1, KaryResponse(HELD, TRUTHFUL), 0, 12, reported=4),
        Track(5, KaryResponse(CHANGES, TRUTHFUL), 2, 12),
    ),
}


def reported(folder, asked, chance):
    """What a device reports of each node, and what it ought to, by a changelog that is written down whole."""
    server, clock = FakeServer(asked), Clock(START + chance.uniform(0, 200))
    last, wrote, mutations, state, answered = asked.calendar.periods, {}, 0, 0, 0

    def held_at(period):
        return next((wrote[each] for each in sorted(wrote, reverse=True) if each <= period), 0)

    device = client(folder, server, clock)
    handle = device.join(asked.id)
    while clock.now < asked.calendar.time(last + 1):
        clock.now += chance.choice([0.5, 9, 25, 61, 190])
        if chance.random() < 0.6:
            new = chance.randrange(4)
            recorded = handle.retract() if new == 0 else handle.record(asked.answers[new - 1])
            if recorded is Recorded.COUNTED:
                mutations += 1
                state = new
                wrote[max(asked.calendar.period_of(clock.now), answered + 1)] = state
        if chance.random() < 0.5:
            device.flush()
            answered = handle.ledger().answered_period
        if chance.random() < 0.2:
            device.close()
            device = client(folder, server, clock)
            handle = device.join(asked.id)
    clock.now += 10_000
    device.flush()
    device.close()
    assert mutations <= asked.constraint.k
    seen = {}
    for report, node, symbol in server.reports():
        assert (report.track, node) not in seen
        space = asked.plan.tracks[report.track].randomizer.space
        truth = space.index(held_at(node.start) if space.reports_changes else 0, held_at(node.end))
        seen[report.track, node] = symbol == truth
    return seen


@pytest.mark.parametrize("name", PLANS)
def test_every_input_is_the_state_at_the_closes_of_its_node(tmp_path, name):
    """Tracks that begin in the middle, nodes drawn at random, entries that enrol late, chunks and restarts: of whatever
    was counted, the whole and nothing else."""
    asked = survey(
        ReleasePlan((Group(PLANS[name]),)), calendar=Calendar(START, 60, 12), constraint=AtMost(5), grace=10**6
    )
    some = 0
    for seed in range(12):
        seen = reported(tmp_path / f"{seed}", asked, Random(seed))
        some += len(seen)
        assert all(seen.values())
    assert some > 50


def test_a_group_that_is_joint_tells_the_same_number_of_reports_whatever_is_recorded(tmp_path):
    """Of the nodes, groups and sizes nothing hangs on how many slots are used."""
    tracks = (
        Track(1, KaryResponse(HELD, TRUTHFUL), 0, 12, reported=3),
        Track(2, SignedSubset(CHANGES, TRUTHFUL, spoken=Fraction(1, 2)), 0, 12),
    )
    group = Group.jointly(tracks, Joint(TRUTHFUL, 3, (2, 1), (3, 4)))
    asked = survey(ReleasePlan((group,)), calendar=Calendar(START, 60, 12), constraint=AtMost(4), grace=10**6)
    sizes = set()
    for records in range(6):
        server, clock = FakeServer(asked), Clock(START + 1)
        with client(tmp_path / f"{records}", server, clock) as device:
            handle = device.join(asked.id)
            for step in range(24):
                if step < records:
                    handle.record(asked.answers[step % 3])
                clock.now += 45
                device.flush()
            clock.now += 100
            device.flush()
        assert len(server.reports()) == 3 + 6
        sizes.add(tuple(sorted({len(envelope) for envelope in server.envelopes})))
    assert len(sizes) == 1
