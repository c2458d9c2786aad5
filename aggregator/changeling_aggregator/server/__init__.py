"""The aggregation server over HTTP."""

from .clock import Clock, MovableClock, real_time
from .guarded_clock import GuardedClock
from .listening import Front, listen, make_server
from .service import Service, Settings

__all__ = [
    "Clock",
    "Front",
    "GuardedClock",
    "MovableClock",
    "Service",
    "Settings",
    "listen",
    "make_server",
    "real_time",
]
