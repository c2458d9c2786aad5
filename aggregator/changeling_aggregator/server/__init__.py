"""The aggregation server over HTTP."""

from .app import ROUTES, listen, make_app, make_server, show_alive
from .clock import MOST_STEP, Clock, Doubt, GuardedClock, MovableClock, real_time
from .health import Severity, covered_until, registry_of, registry_with, telling, troubles_of, troubles_of_keys
from .http import BURST_SECONDS, HANDLERS, Bodies, FrontDoor, Rates, Traffic, network_of, packed
from .requests import id_in_path, read_body
from .service import FoldLoop, ServerSettings, Service

__all__ = [
    "BURST_SECONDS",
    "HANDLERS",
    "MOST_STEP",
    "ROUTES",
    "Bodies",
    "Clock",
    "Doubt",
    "FoldLoop",
    "FrontDoor",
    "GuardedClock",
    "MovableClock",
    "Rates",
    "ServerSettings",
    "Service",
    "Severity",
    "Traffic",
    "covered_until",
    "id_in_path",
    "listen",
    "make_app",
    "make_server",
    "network_of",
    "packed",
    "read_body",
    "real_time",
    "registry_of",
    "registry_with",
    "show_alive",
    "telling",
    "troubles_of",
    "troubles_of_keys",
]
