"""The relay: it stands between devices and a server, so that the server cannot tell devices apart."""

from .files import Batching, RelaySettings
from .forwarding import Upstream
from .relay import Relay, make_app, registry_of

__all__ = ["Batching", "Relay", "RelaySettings", "Upstream", "make_app", "registry_of"]
