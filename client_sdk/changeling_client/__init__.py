"""The SDK an app embeds: it records answers on the device, and reports how they change through exact randomizers.

client = Client("changeling.db", server="https://surveys.example.org", authority=[key], max_epsilon=10)
survey = client.join("48f7e5af2dd8ff764869b955e9d67f62")
survey.record("employment")
client.flush()
"""

from changeling_protocol import __version__

from .client import Client
from .errors import (
    BadSurvey,
    CannotJoin,
    ClientError,
    EnrolmentOver,
    ServerTrouble,
    StoreBusy,
    StoreUnusable,
    TooCostly,
    WrongSurvey,
)
from .flushing import Flushed
from .handle import SurveyHandle
from .ledger import Ledger
from .recording import Recorded

__all__ = [
    "BadSurvey",
    "CannotJoin",
    "Client",
    "ClientError",
    "EnrolmentOver",
    "Flushed",
    "Ledger",
    "Recorded",
    "ServerTrouble",
    "StoreBusy",
    "StoreUnusable",
    "SurveyHandle",
    "TooCostly",
    "WrongSurvey",
    "__version__",
]
