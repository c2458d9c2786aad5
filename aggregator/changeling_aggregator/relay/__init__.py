"""The relay: it stands between devices and a server, so that the server cannot tell devices apart."""

from .app import make_app
from .forwarding import Batching
from .relay import Relay, RelaySettings
from .upstream import Upstream

__all__ = ["Batching", "Relay", "RelaySettings", "Upstream", "make_app"]
