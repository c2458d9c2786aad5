"""The relay: it stands between devices and a server, so that the server cannot tell devices apart."""

from .forwarding import Batching, Upstream
from .relay import Relay, RelaySettings, make_app, registry_of

__all__ = ["Batching", "Relay", "RelaySettings", "Upstream", "make_app", "registry_of"]
