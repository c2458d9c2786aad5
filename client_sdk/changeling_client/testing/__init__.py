"""A kit for an app's tests: a clock that they move, a server without a network, a survey, and a client of these.

Never for production: its coins can be foreseen, and its keys are known to everybody. The SDK itself does not import it.
pytest finds the fixtures `changeling_clock`, `changeling_server` and `changeling_client` by itself.
"""

from .audit import Household, audit
from .clients import ForeseeableCoins, let_report, make_client, stored
from .server import FakeServer, ReceivedReport, read_upload
from .surveys import AUTHORITY, FIRST_DAY, ManualClock, make_survey

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
