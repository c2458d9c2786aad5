"""The SDK an app embeds: records answers on the device, and reports their changes through exact randomizers."""

from .client import Client
from .errors import (
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
]
