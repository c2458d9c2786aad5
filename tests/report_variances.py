"""How noisy one report is, averaged over what entries do; the planner's variances are by what an entry did."""

from changeling_protocol import Randomizer
from changeling_statistics import Floats, counterpart_of
from changeling_statistics.randomizers.registry import InputClasses, mean_variance


def report_covariance(randomizer: Randomizer, true: int) -> Floats:
    """The exact covariance of what one report decodes to, given its true input; shape (z, z), in entries squared."""
    return counterpart_of(randomizer).report_covariance(true)


def mean_report_variance(randomizer: Randomizer, share_changed: float) -> float:
    """The variance of one decoded report, averaged over answers, in entries squared.

        (1 - c)·V(no change) + c·V(uniformly random mutation),   c = share_changed

    For state reports: over uniformly random states, whatever the share. Raises ValueError for a share outside [0, 1].
    """
    if not 0 <= share_changed <= 1:
        raise ValueError(f"a share of entries is between 0 and 1, got {share_changed}")
    unchanged, changed = mean_report_variances(randomizer)
    return (1 - share_changed) * unchanged + share_changed * changed


def mean_report_variances(randomizer: Randomizer) -> tuple[float, float]:
    """The two ends of `mean_report_variance`: without a change, and with a uniformly random one."""
    space, z = randomizer.space, randomizer.space.answers
    classes = InputClasses.of(space, counterpart_of(randomizer).answers_alike)
    none, came, left, moved = (
        mean_variance(randomizer, inputs) for inputs in (classes.none, classes.came, classes.left, classes.moved)
    )
    if space.reports_changes:
        return none, (came + left + (z - 1) * moved) / (z + 1) if space.null else moved
    over_states = ((space.size - z) * none + z * came) / space.size
    return over_states, over_states
