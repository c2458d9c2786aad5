"""The SDK an app embeds: it records answers on the device, and reports how they change through exact randomizers.

client = Client(app="org.example.tea", server="https://surveys.example.org", authority=[key], max_epsilon=10)
survey = client.join("48f7e5af2dd8ff764869b955e9d67f62")
survey.record("employment")
"""

from changeling_protocol import __version__

from .client import Client
from .drops import Drop
from .errors import (
    BadEnrolment,
    BadSurvey,
    CannotJoin,
    ClientClosed,
    ClientError,
    EnrolmentOver,
    ServerTrouble,
    Silenced,
    StoreBusy,
    StoreFull,
    StoreReadOnly,
    StoreUnusable,
    TooCostly,
    WitnessTrouble,
    WrongSurvey,
)
from .flushing import Flushed
from .handle import SurveyHandle
from .ledger import Account, Ledger, SurveyAccount
from .recording import Recorded
from .surveys import Status
from .witness import Callbacks, Sidecar, Witness

__all__ = [
    "Account",
    "BadEnrolment",
    "BadSurvey",
    "Callbacks",
    "CannotJoin",
    "Client",
    "ClientClosed",
    "ClientError",
    "Drop",
    "EnrolmentOver",
    "Flushed",
    "Ledger",
    "Recorded",
    "ServerTrouble",
    "Sidecar",
    "Silenced",
    "Status",
    "StoreBusy",
    "StoreFull",
    "StoreReadOnly",
    "StoreUnusable",
    "SurveyAccount",
    "SurveyHandle",
    "TooCostly",
    "Witness",
    "WitnessTrouble",
    "WrongSurvey",
    "__version__",
]
