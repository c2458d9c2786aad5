"""What joining a signed survey can ask of a device is bounded, whatever its authority signed."""

import random
import subprocess
import sys
import time
from fractions import Fraction

import pytest
from changeling_protocol import (
    LAST_INSTANT,
    MOST_MUTATIONS,
    MOST_PERIODS,
    MOST_TRACKS,
    AtMost,
    AtMostWithin,
    Calendar,
    CustomResponse,
    Group,
    Hybrid,
    KaryResponse,
    MalformedBytes,
    MutationSpace,
    Node,
    Odds,
    Randomizer,
    ReleasePlan,
    SignedSubset,
    Survey,
    TimeBounded,
    Track,
    signed,
)
from changeling_protocol.wire import MOST_BODY_BYTES

from .examples import AUTHORITY, PINNED, survey

START = 1_800_000_000
MOST_NODES, MOST_DRAWN_NODES, MOST_CLASSES, MOST_ANSWERS, MOST_ITEMS = 2**18, 2**14, 16, 1000, 2**15
PLAIN = KaryResponse(MutationSpace(2), Odds(3, 1))
WORST = Hybrid((*(TimeBounded(1000 + i) for i in range(MOST_CLASSES - 1)), AtMost(MOST_MUTATIONS)))
"""As many classes as there may be."""


def one_group(*tracks: Track) -> ReleasePlan:
    return ReleasePlan((Group(tracks),))


def tracks() -> Survey:
    """Tracks, answers and kinds of odds to the limit."""
    spoken, periods = Fraction(1, 3), MOST_NODES // MOST_TRACKS
    subsets = (
        SignedSubset(MutationSpace(MOST_ANSWERS), Odds(2**64 - 1 - i, 2**40 + 1 + i), pluses=1, spoken=spoken)
        for i in range(MOST_TRACKS)
    )
    plan = one_group(*(Track(1, subset, 0, periods) for subset in subsets))
    return dear(plan, periods, answers=MOST_ANSWERS)


def drawn_nodes() -> Survey:
    """Nodes drawn to the limit, among as many as there may be."""
    return dear(one_group(Track(1, PLAIN, 0, MOST_NODES, reported=MOST_DRAWN_NODES)), MOST_NODES)


def weights() -> Survey:
    """A custom randomizer with as many weights as a signed survey holds."""
    space = MutationSpace(13)
    rows = (MOST_ITEMS - 1000) // (space.size + 1)
    generator = random.Random(1)
    matrix = tuple(tuple(generator.randrange(2**63, 2**64) for _ in range(space.size)) for _ in range(rows))
    return dear(one_group(Track(1, CustomResponse(space, matrix), 0, 8)), 8, answers=13)


def small_weights() -> Survey:
    """Small custom randomizers on as many tracks as a signed survey holds of them."""
    space, generator = MutationSpace(2), random.Random(2)
    values_of_a_track = 80
    matrices = (
        tuple(tuple(generator.randrange(2**63, 2**64) for _ in range(space.size)) for _ in range(7))
        for _ in range(MOST_ITEMS // values_of_a_track)
    )
    return dear(one_group(*(Track(1, CustomResponse(space, matrix), 0, 8) for matrix in matrices)), 8)


def dear(plan: ReleasePlan, periods: int, answers: int = 2) -> Survey:
    names = tuple(str(i) for i in range(answers))
    return survey(plan, answers=names, calendar=Calendar(START, 60, periods), constraint=WORST)


JOIN = """
import os, resource, sys, time
from changeling_client import Client

folder, authority, *surveys = sys.argv[1:]

def join(survey):
    signed = open(f"{folder}/{survey}", "rb").read()
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    with Client(
        path=f"{folder}/{os.getpid()}.db",
        server="https://statistics.example",
        authority=[bytes.fromhex(authority)],
        max_epsilon=10**9,
        witness=None,
        background=False,
        clock=lambda: 1_800_000_000.0,
    ) as client:
        client.join(survey, signed=signed)
    seconds = time.process_time() - began
    print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - kilobytes, flush=True)
    os._exit(0)

for survey in surveys:
    if os.fork():
        assert os.wait()[1] == 0
    else:
        join(survey)
"""
"""A device's process: for each survey a fork that has never seen it prints the seconds of processor time that joining
took, and by how many kilobytes more than before the process has grown at most."""


@pytest.mark.heavy
@pytest.mark.timed
def test_joining_the_dearest_surveys_takes_a_device_less_than_a_second_and_50_megabytes(tmp_path):
    """From signed bytes to an entry on disk."""
    surveys = {made.id.hex(): made for made in (tracks(), drawn_nodes(), weights(), small_weights())}
    for name, made in surveys.items():
        (tmp_path / name).write_bytes(made.signed_by(AUTHORITY))
        assert (tmp_path / name).stat().st_size <= MOST_BODY_BYTES
    words = (sys.executable, "-c", JOIN, str(tmp_path), PINNED[0].hex(), *surveys)
    printed = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    seconds, kilobytes = zip(*(map(float, line.split()) for line in printed), strict=True)
    assert len(seconds) == len(surveys)
    assert max(seconds) < 1
    assert 0 < max(kilobytes) < 50_000


def grouped(randomizer: Randomizer, *counts: int) -> ReleasePlan:
    return ReleasePlan(tuple(Group((Track(1, randomizer, 0, count),)) for count in counts))


@pytest.mark.parametrize(
    ("make", "limit"),
    [
        (lambda: Node(3, 3), "0 <= start < end"),
        (lambda: Calendar(0, 1, 2**31), f"1 to {MOST_PERIODS} periods"),
        (lambda: AtMostWithin(0, 5), "k >= 1"),
        (lambda: AtMostWithin(2, 0), "at least one second"),
        (lambda: Calendar(0, 1, MOST_PERIODS + 1), f"1 to {MOST_PERIODS} periods"),
        (lambda: Calendar(0, LAST_INSTANT // 8 + 1, 8), "year 9999"),
        (lambda: Calendar(2**63, 1, 1), "year 9999"),
        (lambda: AtMost(MOST_MUTATIONS + 1), f"at most {MOST_MUTATIONS} mutations"),
        (lambda: TimeBounded(LAST_INSTANT + 1), f"at most {LAST_INSTANT} seconds"),
        (lambda: Hybrid((AtMost(1),) * (MOST_CLASSES + 1)), f"at most {MOST_CLASSES} classes"),
        (lambda: grouped(PLAIN, *[1] * (MOST_TRACKS + 1)), f"at most {MOST_TRACKS} tracks"),
        (lambda: grouped(PLAIN, MOST_NODES, 1), f"at most {MOST_NODES} nodes"),
        (
            lambda: Group((Track(1, PLAIN, 0, 2**20, reported=MOST_DRAWN_NODES + 1),)),
            f"draws at most {MOST_DRAWN_NODES}",
        ),
        (lambda: survey(answers=tuple(map(str, range(MOST_ANSWERS + 1)))), f"1 to {MOST_ANSWERS} answers"),
        (lambda: survey(grace=LAST_INSTANT), "year 9999"),
    ],
)
def test_beyond_a_limit_is_refused_by_name(make, limit):
    """One more than each limit: the sentence says what the limit is and what was asked."""
    with pytest.raises(ValueError, match=limit) as refused:
        make()
    assert "got" in str(refused.value)


@pytest.mark.timed
@pytest.mark.parametrize(
    "changed",
    [
        {"calendar": [START, 1, 2**31 - 1]},
        {"questions": {"answers": [str(i) for i in range(20_000)]}},
    ],
)
def test_a_signed_survey_beyond_a_limit_is_malformed(changed):
    """Whoever signed it; nothing is worked out that grows with what it asks."""
    fields = survey().as_fields()
    asked = [{**fields["questions"][0], **changed.get("questions", {})}]
    began = time.process_time()
    with pytest.raises(MalformedBytes):
        Survey.from_signed(signed("survey", {**fields, **changed, "questions": asked}, AUTHORITY), PINNED)
    assert time.process_time() - began < 0.5
