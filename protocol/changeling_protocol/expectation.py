"""What a survey's designer expects of its population, in millionths, before anybody answers.

When histograms are estimated, releases are weighed against each other by it, so that the weights never come from the
data. Privacy does not depend on it: of a population that behaves otherwise the estimates are unbiased too, only less
accurate.
"""

from dataclasses import dataclass

from .canonical import Fields

MICRO = 10**6


@dataclass(frozen=True, slots=True)
class ExpectedChanges:
    """Mutations per entry, in millionths: `first` in the first period (insertions), `later` in each later one."""

    first: int = MICRO
    later: int = 20_000

    def __post_init__(self) -> None:
        if not (0 <= self.first <= MICRO and 0 <= self.later <= MICRO):
            raise ValueError(f"expected changes are 0 to {MICRO} millionths, got {self.first} and {self.later}")

    def share_changed(self, start: int, end: int) -> float:
        """The share of entries with a mutation over the node (start, end]."""
        unchanged = 1.0 - self.first / MICRO if start == 0 else 1.0
        later = end - max(start, 1)
        return float(1.0 - unchanged * (1.0 - self.later / MICRO) ** later)

    def as_fields(self) -> Fields:
        """The expectation in a survey's signed bytes."""
        return {"first": self.first, "later": self.later}
