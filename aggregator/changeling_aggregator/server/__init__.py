"""The aggregation server over HTTP."""

from .clock import Clock, MovableClock, real_time
from .listening import is_loopback, listen, make_server
from .service import Service, Settings

__all__ = ["Clock", "MovableClock", "Service", "Settings", "is_loopback", "listen", "make_server", "real_time"]
