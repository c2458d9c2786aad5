"""The tree drawn ahead and the square root in a release: resumed, they go on with the noise that was drawn."""

from fractions import Fraction

import pytest
from changeling_central import BadState, MechanismChoice, read_rows
from changeling_central.testing import Forbidden, NoNoise, SeededNoise
from changeling_protocol import AtMost

from .test_release import by, finish, release_in

SMALL = Fraction(1, 10**6)
KINDS = [("ahead", Fraction(0)), ("ahead", SMALL), ("square-root", SMALL)]


def released_by(folder, kind, delta, name="out.csv", periods=60):
    """Sixty periods, so that a tree draws ahead."""
    plain = release_in(folder, name=name, periods=periods)
    made = MechanismChoice(kind).made(plain.statement.query, plain.statement.calendar, AtMost(2), Fraction(1), delta)
    return by(plain, made)


@pytest.mark.parametrize(("kind", "delta"), KINDS)
def test_a_release_in_parts_is_the_release_in_one(tmp_path, kind, delta):
    """With the same noise, byte for byte; the state holds what was drawn ahead, so nothing is drawn a second time."""
    finish(released_by(tmp_path, kind, delta, "one.csv"), SeededNoise(1))
    noise = SeededNoise(1)
    for until in (1, 2, 17, 60):
        finish(released_by(tmp_path, kind, delta, "parts.csv"), noise, until)
    assert (tmp_path / "parts.csv").read_bytes() == (tmp_path / "one.csv").read_bytes()
    assert finish(released_by(tmp_path, kind, delta, "parts.csv"), Forbidden()) == []


@pytest.mark.parametrize(("kind", "delta"), KINDS)
def test_without_noise_it_is_the_truth_and_an_older_state_is_refused(tmp_path, kind, delta):
    """A state put back from a backup would draw other noise for levels that somebody saw."""
    release = released_by(tmp_path, kind, delta)
    finish(release, NoNoise(), 5)
    assert [round(row.estimate, 9) for row in read_rows(release.output.path)] == [1, 1, 1, 2, 1, 1, 0, 1, 0, 1]
    older = release.state.read_bytes()
    finish(release, NoNoise(), 9)
    release.state.write_bytes(older)
    with pytest.raises(BadState, match="an older one"):
        finish(release, Forbidden())


def test_the_tree_draws_ahead_here(tmp_path):
    """Or the tests above would say little of it."""
    assert len(released_by(tmp_path, "ahead", Fraction(0)).mechanism.mechanism.widths) > 1
