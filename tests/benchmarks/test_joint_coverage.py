"""What coverage under joint responses is measured with: drawn by the joint law, and published as the server would."""

from math import prod

import numpy as np
import pytest

from benchmarks.coverage import check, made_up
from benchmarks.joint_coverage import VIEWS, loosest_bound, surveys
from benchmarks.replicated_reports import _patterns


@pytest.mark.parametrize("name", surveys())
def test_batches_are_what_the_front_door_publishes(name):
    """The same random numbers through both ways, online with the tallies known then, and retrospectively."""
    check(made_up(np.random.default_rng(1)), surveys()[name], VIEWS, rows=2)


@pytest.mark.parametrize(
    "group", [group for survey in (*surveys().values(), loosest_bound()) for group in survey.plan.groups]
)
def test_patterns_have_the_density_of_the_joint_response(group):
    """Relative to independent agreements, a:b where the weights of those that agree reach the threshold."""
    joint, kernel = group.joint, group.kernel
    places = tuple(place for place, slots in enumerate(joint.slots) for _ in range(slots))
    chances, agreed = _patterns(group, places)
    p = [float(kernel.agreements[place]) for place in places]
    base = np.array([prod(q if x else 1 - q for q, x in zip(p, row, strict=True)) for row in agreed])
    reached = agreed @ [joint.weights[place] for place in places] >= joint.threshold
    density = np.where(reached, joint.odds.favoured, joint.odds.other)
    np.testing.assert_allclose(chances, base * density / (base @ density), rtol=1e-9)
