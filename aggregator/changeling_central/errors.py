"""What stops a central release before anything is drawn.

    CentralError
    ├── BudgetExhausted      a release that would cost more than what is left
    ├── ConstraintBroken     an entry that mutates more than the guarantee counts with; names its row
    ├── TimeReversed         input earlier than what was already released
    ├── BadState             a saved state that is not of this mechanism, or not whole
    └── UnusableChangelog    a changelog that contradicts itself or cannot be read (also the statistics' BadChangelog,
                             and so a ValueError)

A bad argument is a ValueError with the value in it.
"""

from changeling_protocol import ChangelingError
from changeling_statistics import BadChangelog


class CentralError(ChangelingError):
    """Root of every error this package raises besides ValueError and OSError."""


class BudgetExhausted(CentralError):
    """A release would cost more than what is left of the budget; nothing was drawn."""


class ConstraintBroken(CentralError):
    """An entry mutates more than the guarantee counts with; what was released before still holds."""


class TimeReversed(CentralError):
    """Input that is earlier than what was already released; nothing was drawn."""


class BadState(CentralError):
    """A saved state that is not of this mechanism, or not whole; without its state nothing more can be released."""


class UnusableChangelog(CentralError, BadChangelog):
    """A changelog that contradicts itself or cannot be read; the message names the row. Nothing was drawn."""
