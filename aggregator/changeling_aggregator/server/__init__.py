"""The aggregation server over HTTP."""

from .app import ROUTES, Front, listen, make_app, make_server
from .clock import Clock, GuardedClock, MovableClock, real_time
from .fold_loop import FoldLoop
from .front_door import FrontDoor
from .limits import Bodies, Rates, network_of
from .operations import show_alive
from .requests import id_in_path, read_body
from .responses import HANDLERS, packed
from .service import ServerSettings, Service

__all__ = [
    "HANDLERS",
    "ROUTES",
    "Bodies",
    "Clock",
    "FoldLoop",
    "Front",
    "FrontDoor",
    "GuardedClock",
    "MovableClock",
    "Rates",
    "ServerSettings",
    "Service",
    "id_in_path",
    "listen",
    "make_app",
    "make_server",
    "network_of",
    "packed",
    "read_body",
    "real_time",
    "show_alive",
]
