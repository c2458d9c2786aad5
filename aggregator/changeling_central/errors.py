"""What stops a central release before anything is drawn.

CentralError
├── BudgetExhausted      a release that would cost more than what is left
├── ConstraintBroken     an entry that mutates more than the guarantee counts with; names its row
├── TimeReversed         input earlier than what was already released
└── BadState             a saved state that is not of this mechanism, or not whole
"""

from changeling_protocol.errors import ChangelingError


class CentralError(ChangelingError):
    """Root of the central mechanisms' errors besides ValueError."""


class BudgetExhausted(CentralError):
    """A release would cost more than what is left of the budget; nothing was drawn."""


class ConstraintBroken(CentralError):
    """An entry mutates more than the guarantee counts with; the release before it still holds."""


class TimeReversed(CentralError):
    """Input that is earlier than what was already released."""


class BadState(CentralError):
    """A saved state that is not of this mechanism, or not whole."""
