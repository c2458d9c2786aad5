"""An analyst asks what a survey costs one entry: as promised, but for a small chance, and behind a relay that shuffles.

    $ python examples/privacy_accounting.py

The pure figure is what the survey promises. The others say more about the same reports: what an entry loses but for a
chance of delta, and what can still be seen where an honest relay, which the survey declares, shuffles the uploads of
many entries that all stay from first to last.
"""

from dataclasses import replace
from decimal import Decimal

from changeling_protocol import AtMost, Calendar, Survey
from changeling_statistics import Wish, delta_at, hierarchical_plan, loss_statement

CONSTRAINT = AtMost(100)  # an answer that changes often
A_REPORT = Decimal("0.05")
DELTA, ENTRIES = 1e-6, 1_000_000
RELAY = "https://relay.example.org"


def main() -> None:
    """Prints the three figures of surveys that last longer and longer, then the whole curve of the longest."""
    print(f"Every day a report through k-RR of epsilon {A_REPORT}; delta {DELTA:g}; {ENTRIES:,} entries shuffled")
    print("days    pure  but for delta  shuffled")
    for days in (25, 50, 100, 200, 400):
        loss = loss_statement(survey_of(days), DELTA, shuffled_entries=ENTRIES)
        shuffled = loss.shuffled.epsilon if loss.shuffled else float("nan")
        print(f"{days:4} {loss.pure.epsilon:7.2f} {loss.approximate.epsilon:14.2f} {shuffled:9.4f}")
    print("An entry changes at most 100 times, so that 200 reports at most can tell two changelogs apart.")

    print("\nepsilon  the chance that the reports of 400 days tell more than that")
    for epsilon in (0, 0.2, 0.4, 0.6, 0.8, 1):
        print(f"{epsilon:7}  {delta_at(survey_of(400), epsilon):.1e}")


def survey_of(days: int) -> Survey:
    """A survey of so many days, as the paper plans it, whose reports have the epsilon above."""
    calendar = Calendar("2027-01-01", "1d", days)
    total = A_REPORT * min(2 * CONSTRAINT.k, days)
    plan = hierarchical_plan(4, calendar, CONSTRAINT, epsilon=total)
    return replace(Wish(4, calendar, CONSTRAINT, total, ENTRIES).survey(plan), relay=RELAY)


if __name__ == "__main__":
    main()
