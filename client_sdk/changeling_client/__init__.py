"""The SDK an app embeds: it records answers on the device, and reports how they change through exact randomizers.

client = Client(app="org.example.tea", server="https://surveys.example.org", authority=[key], max_epsilon=10)
survey = client.join("48f7e5af2dd8ff764869b955e9d67f62")
survey.record("employment")

Importing it costs an app next to nothing: a name is loaded when it is first used, and most of the rest when the first
client is made.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from changeling_protocol import __version__

    from .async_client import AsyncClient, AsyncSurveyHandle
    from .client import Client, SurveyHandle
    from .entries import Drop, Status
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
    from .explanation import Explanation, explain, privacy_notice
    from .flushing import Flushed
    from .ledger import Account, Ledger, SurveyAccount
    from .recording import Recorded
    from .reports import SurveyReports
    from .settings import ClientOptions
    from .witness import Callbacks, SharedCallbacks, Sidecar, Witness

_MODULES = {
    "async_client": "AsyncClient AsyncSurveyHandle",
    "client": "Client SurveyHandle",
    "flushing": "Flushed",
    "entries": "Drop Status",
    "errors": "BadEnrolment BadSurvey CannotJoin ClientClosed ClientError EnrolmentOver ServerTrouble Silenced "
    "StoreBusy StoreFull StoreReadOnly StoreUnusable TooCostly WitnessTrouble WrongSurvey",
    "explanation": "Explanation explain privacy_notice",
    "ledger": "Account Ledger SurveyAccount",
    "recording": "Recorded",
    "reports": "SurveyReports",
    "settings": "ClientOptions",
    "witness": "Callbacks SharedCallbacks Sidecar Witness",
}
_HOMES = {name: f".{module}" for module, names in _MODULES.items() for name in names.split()}
_HOMES["__version__"] = "changeling_protocol"

__all__ = [
    "Account",
    "AsyncClient",
    "AsyncSurveyHandle",
    "BadEnrolment",
    "BadSurvey",
    "Callbacks",
    "CannotJoin",
    "Client",
    "ClientClosed",
    "ClientError",
    "ClientOptions",
    "Drop",
    "EnrolmentOver",
    "Explanation",
    "Flushed",
    "Ledger",
    "Recorded",
    "ServerTrouble",
    "SharedCallbacks",
    "Sidecar",
    "Silenced",
    "Status",
    "StoreBusy",
    "StoreFull",
    "StoreReadOnly",
    "StoreUnusable",
    "SurveyAccount",
    "SurveyHandle",
    "SurveyReports",
    "TooCostly",
    "Witness",
    "WitnessTrouble",
    "WrongSurvey",
    "__version__",
    "explain",
    "privacy_notice",
]


def __getattr__(name: str) -> object:
    """Loads a name when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(_HOMES[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
