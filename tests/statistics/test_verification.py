"""Every figure of an edition follows from its tallies, and what does not is named."""

import json
from dataclasses import replace
from fractions import Fraction

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
)
from changeling_statistics import (
    Attendance,
    Solution,
    Tallies,
    counterpart_of,
    edition_columns,
    edition_files,
    releases,
    verify_files,
)

from ..estimation.graphs import answered
from ..protocol.examples import survey

PERIODS, ENTRIES, SEED = 12, 3000, 5
LOST = 7
"""Nobody is heard at the end of this period."""


def tallied(asked: Survey, lost: int | None = None) -> Tallies:
    """Uniform symbols of everybody who is heard, by and by fewer; nobody is at the end of one period."""
    heard = {(0, t): Attendance(ENTRIES - 10 * t, ENTRIES * (t == 1)) for t in range(1, PERIODS + 1) if t != lost}
    return answered(asked, heard, np.random.default_rng(SEED))


def subsets(width: int, z: int, odds: Odds, question: int = 0) -> Track:
    return Track(width, SubsetSelection(StateSpace(z), odds, 1), 0, PERIODS, question=question)


CALENDAR = Calendar(1_700_000_000, 86_400, PERIODS)
CHANGES = SignedSubset(MutationSpace(3), Odds(20, 1), spoken=Fraction(1))
TRACKS = (*(Track(width, CHANGES, 0, PERIODS) for width in (1, 3)), subsets(4, 3, Odds(9, 1)))
SURVEY = survey(ReleasePlan((Group(TRACKS),)), calendar=CALENDAR, minimum=10)
TALLIES = tallied(SURVEY, LOST)
FILES = edition_files(SURVEY, TALLIES, revision=3, last=PERIODS, final=PERIODS - 2)
COLUMNS = edition_columns(SURVEY, TALLIES)
EDITION = Edition(
    SURVEY.id, 3, 5, PERIODS, PERIODS - 2, COLUMNS["tracks"], COLUMNS["groups"], {name: bytes(32) for name in FILES}
)


def test_nothing_differs_where_nothing_was_changed() -> None:
    """The columns hold the very tallies, gaps included: what is worked out again is what is published."""
    assert json.loads(FILES["series.json"])["series"][LOST - 1]["values"] is None
    assert verify_files(SURVEY, EDITION, FILES) == []


@pytest.mark.parametrize(("track", "node"), [(0, 2), (1, 3), (2, 1)])
def test_one_byte_of_a_tally_names_all_figures_that_hang_on_it(track: int, node: int) -> None:
    """Each file names every period in whose estimate the node has weight, and none that it has none in."""
    place = sorted(at for of, at in TALLIES.nodes if of == track).index(NodeNumber(node))
    slots = counterpart_of(SURVEY.plan.tracks[track].randomizer).slots
    changed = bytearray(EDITION.tracks[track][2])
    changed[8 * slots * place + 1] ^= 1
    columns = [list(each) for each in EDITION.tracks]
    columns[track][2] = bytes(changed)
    found = verify_files(SURVEY, replace(EDITION, tracks=tuple(map(tuple, columns))), FILES)

    graph = releases(SURVEY, TALLIES)
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
    answer = json.loads(FILES["series.json"])
    was = answer["series"][4]["intervals"][1][0]
    answer["series"][4]["intervals"][1][0] = was + 1
    text = FILES["series.csv"].decode().replace(",coffee,heard,", ",coffee,enrolled,", 1)
    files = {**FILES, "series.json": json.dumps(answer).encode(), "series.csv": text.encode()}
    (one, other) = verify_files(SURVEY, EDITION, files)
    assert (one.file, one.period, one.place) == ("series.json", 5, "intervals[1][0]")
    assert (one.stated, one.recomputed) == (was + 1, was)
    assert (other.file, other.period, other.place) == ("series.csv", 1, "population of coffee")


def test_files_that_are_missing_broken_or_too_many_are_named() -> None:
    """So is a series that lost a period."""
    files = dict(FILES)
    del files["retrospective.csv"]
    answer = json.loads(files["series.json"])
    del answer["series"][-1]
    files |= {"series.json": json.dumps(answer).encode(), "retrospective.json": b"\xff", "more.json": b"{}"}
    found = {(each.file, each.place) for each in verify_files(SURVEY, EDITION, files)}
    assert found == {
        ("series.json", "series"),
        ("retrospective.json", "the file"),
        ("retrospective.csv", "the file"),
        ("more.json", "the file"),
    }


def test_each_of_several_questions_has_files_of_its_own() -> None:
    """A changed tally of one names figures of that one alone."""
    tracks = (subsets(1, 3, Odds(3, 1)), subsets(1, 2, Odds(3, 1), 1))
    questions = [Question(f"q{z}", f"Which of {z}?", tuple(f"{at}" for at in range(z)), AtMost(3)) for z in (3, 2)]
    asked = survey(ReleasePlan((Group(tracks),)), questions=questions, calendar=CALENDAR, minimum=10)
    tallies = tallied(asked)
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
    tracks, groups = EDITION.tracks, EDITION.groups
    beyond = (np.array([PERIODS + 1], "<i8").tobytes(), *groups[0][1:])
    for wrong in (
        replace(EDITION, tracks=tracks[:-1]),
        replace(EDITION, tracks=((tracks[0][0], tracks[0][1], tracks[0][2][:-8]), *tracks[1:])),
        replace(EDITION, groups=(beyond,)),
    ):
        with pytest.raises(ValueError, match=r"edition|reshape|zip|closing"):
            verify_files(SURVEY, wrong, FILES)
