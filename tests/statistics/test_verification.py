"""Every figure of an edition follows from its tallies, and what does not is named."""

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from changeling_protocol import (
    AtMost,
    Calendar,
    Edition,
    Group,
    MutationSpace,
    NodeNumber,
    Odds,
    Question,
    ReleasePlan,
    SignedSubset,
    StateSpace,
    SubsetSelection,
    Survey,
    Track,
    TrackNumber,
)
from changeling_statistics import (
    Attendance,
    NodeTally,
    Solution,
    Tallies,
    counterpart_of,
    edition_columns,
    edition_files,
    releases,
    verify_files,
)

from ..protocol.examples import survey

PERIODS, ENTRIES, SEED = 12, 3000, 5
LOST = 7
"""Nobody is heard at the end of this period."""


@cache
def _survey() -> Survey:
    changes = SignedSubset(MutationSpace(3), Odds(20, 1), spoken=1)  # type: ignore[arg-type]
    tracks = [Track(width, changes, 0, PERIODS) for width in (1, 3)]
    states = Track(4, SubsetSelection(StateSpace(3), Odds(9, 1), 1), 0, PERIODS)
    calendar = Calendar(1_700_000_000, 86_400, PERIODS)
    return survey(ReleasePlan((Group((*tracks, states)),)), calendar=calendar, minimum=10)


@cache
def _tallies() -> Tallies:
    generator = np.random.default_rng(SEED)
    nodes: dict[tuple[TrackNumber, NodeNumber], NodeTally] = {}
    attendance = {}
    for period in range(1, PERIODS + 1):
        if period != LOST:
            attendance[0, period] = Attendance(ENTRIES - 10 * period, ENTRIES if period == 1 else 0, 0)
    for number, track in enumerate(_survey().plan.tracks):
        counterpart = counterpart_of(track.randomizer)
        for at in track.node_numbers():
            if (end := track.node(at).end) != LOST:
                heard = attendance[0, end].heard
                symbols = generator.integers(0, track.randomizer.symbols, heard).astype(np.uint64)
                nodes[TrackNumber(number), NodeNumber(at)] = counterpart.tally(symbols)
    return Tallies(nodes, attendance)


@cache
def _files() -> dict[str, bytes]:
    return edition_files(_survey(), _tallies(), revision=3, last=PERIODS, final=PERIODS - 2)


@cache
def _edition() -> Edition:
    hashes = {name: bytes(32) for name in _files()}
    columns = edition_columns(_survey(), _tallies())
    return Edition(_survey().id, 3, 5, PERIODS, PERIODS - 2, columns["tracks"], columns["groups"], hashes)


def test_nothing_differs_where_nothing_was_changed() -> None:
    """The columns hold the very tallies, gaps included: what is worked out again is what is published."""
    assert json.loads(_files()["series.json"])["series"][LOST - 1]["values"] is None
    assert verify_files(_survey(), _edition(), _files()) == []


@pytest.mark.parametrize(("track", "node"), [(0, 2), (1, 3), (2, 1)])
def test_one_byte_of_a_tally_names_all_figures_that_hang_on_it(track: int, node: int) -> None:
    """Each file names every period in whose estimate the node has weight, and none that it has none in."""
    place = sorted(at for of, at in _tallies().nodes if of == track).index(NodeNumber(node))
    slots = counterpart_of(_survey().plan.tracks[track].randomizer).slots
    changed = bytearray(_edition().tracks[track][2])
    changed[8 * slots * place + 1] ^= 1
    columns = [list(each) for each in _edition().tracks]
    columns[track][2] = bytes(changed)
    found = verify_files(_survey(), replace(_edition(), tracks=tuple(map(tuple, columns))), _files())

    graph = releases(_survey(), _tallies())
    edge = next(at for at, used in enumerate(graph.nodes) if (used.track, used.number) == (track, node))
    for name, method in (("series", False), ("retrospective", True)):
        rows = Solution(graph, retrospective=method).histogram_rows(PERIODS)
        hanging = {period for period, row in rows if abs(row[edge]) > 1e-6}
        assert hanging
        for form in ("json", "csv"):
            of_file = [each for each in found if each.file == f"{name}.{form}"]
            value = "values" if form == "json" else "estimate"
            assert {each.period for each in of_file if each.place.startswith(value)} == hanging


def test_a_changed_figure_is_named() -> None:
    """One figure in a file of either form, and that alone, with what it should be."""
    answer = json.loads(_files()["series.json"])
    was = answer["series"][4]["intervals"][1][0]
    answer["series"][4]["intervals"][1][0] = was + 1
    text = _files()["series.csv"].decode().replace(",coffee,heard,", ",coffee,enrolled,", 1)
    files = {**_files(), "series.json": json.dumps(answer).encode(), "series.csv": text.encode()}
    (one, other) = verify_files(_survey(), _edition(), files)
    assert (one.file, one.period, one.place) == ("series.json", 5, "intervals[1][0]")
    assert (one.stated, one.recomputed) == (was + 1, was)
    assert (other.file, other.period, other.place) == ("series.csv", 1, "population of coffee")


def test_files_that_are_missing_broken_or_too_many_are_named() -> None:
    """So is a series that lost a period."""
    files = dict(_files())
    del files["retrospective.csv"]
    answer = json.loads(files["series.json"])
    del answer["series"][-1]
    files |= {"series.json": json.dumps(answer).encode(), "retrospective.json": b"\xff", "more.json": b"{}"}
    found = {(each.file, each.place) for each in verify_files(_survey(), _edition(), files)}
    assert found == {
        ("series.json", "series"),
        ("retrospective.json", "the file"),
        ("retrospective.csv", "the file"),
        ("more.json", "the file"),
    }


def test_each_of_several_questions_has_files_of_its_own() -> None:
    """A changed tally of one names figures of that one alone."""
    one, other = (
        Track(1, SubsetSelection(StateSpace(z), Odds(3, 1), 1), 0, PERIODS, question=q) for q, z in enumerate((3, 2))
    )
    questions = [Question(f"q{z}", f"Which of {z}?", tuple(f"{at}" for at in range(z)), AtMost(3)) for z in (3, 2)]
    asked = Survey.at_cost(
        questions=questions,
        calendar=_survey().calendar,
        plan=ReleasePlan((Group((one, other)),)),
        skew=60,
        spread=3600,
        grace=86_400,
        minimum=10,
    )
    generator = np.random.default_rng(SEED)
    nodes = {
        (TrackNumber(number), NodeNumber(at)): counterpart_of(track.randomizer).tally(
            generator.integers(0, track.randomizer.symbols, ENTRIES).astype(np.uint64)
        )
        for number, track in enumerate(asked.plan.tracks)
        for at in track.node_numbers()
    }
    attendance = {(0, at): Attendance(ENTRIES, ENTRIES if at == 1 else 0, 0) for at in range(1, PERIODS + 1)}
    tallies = Tallies(nodes, attendance)
    files = edition_files(asked, tallies, revision=1, last=PERIODS, final=PERIODS)
    assert {name.partition(".")[0] for name in files} == {
        f"{name}-{place}" for name in ("series", "retrospective") for place in (0, 1)
    }
    assert json.loads(files["series-1.json"])["answers"] == ["0", "1"]
    columns = edition_columns(asked, tallies)
    edition = Edition(asked.id, 1, 5, PERIODS, PERIODS, columns["tracks"], columns["groups"], {})
    assert verify_files(asked, edition, files) == []
    slots = bytearray(columns["tracks"][1][2])
    slots[9] ^= 1
    changed = (columns["tracks"][0], (*columns["tracks"][1][:2], bytes(slots)))
    found = verify_files(asked, replace(edition, tracks=changed), files)
    assert {each.file.partition(".")[0] for each in found} == {"series-1", "retrospective-1"}


def test_tallies_of_another_plan_are_refused() -> None:
    """Columns that do not fit the survey's tracks, groups and calendar are no tallies of it."""
    tracks, groups = _edition().tracks, _edition().groups
    beyond = (np.array([PERIODS + 1], "<i8").tobytes(), *groups[0][1:])
    for wrong in (
        replace(_edition(), tracks=tracks[:-1]),
        replace(_edition(), tracks=((tracks[0][0], tracks[0][1], tracks[0][2][:-8]), *tracks[1:])),
        replace(_edition(), groups=(beyond,)),
    ):
        with pytest.raises(ValueError, match=r"edition|reshape|zip|closing"):
            verify_files(_survey(), wrong, _files())
