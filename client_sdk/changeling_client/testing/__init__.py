"""A kit for an app's tests: a clock that they move, a server without a network, a survey, and a client of these.

Never for production: its coins can be foreseen, and its keys are known to everybody. The SDK itself does not import it.
pytest finds the fixtures `changeling_clock`, `changeling_server` and `changeling_client` by itself.
"""

from .clients import ForeseeableCoins, Household, audit, let_report, make_client, stored
from .server import AUTHORITY, FIRST_DAY, FakeServer, ManualClock, ReceivedReport, make_survey, read_upload

__all__ = [
    "AUTHORITY",
    "FIRST_DAY",
    "FakeServer",
    "ForeseeableCoins",
    "Household",
    "ManualClock",
    "ReceivedReport",
    "audit",
    "let_report",
    "make_client",
    "make_survey",
    "read_upload",
    "stored",
]
