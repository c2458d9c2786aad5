"""What is kept of an address: the network that it is in. Behind it may stand one person or many, so limits are per
network, and nothing is kept of the address itself.
"""

import ipaddress
from collections.abc import Callable, Sequence

IPV4_BITS, IPV6_BITS = 24, 48
"""How much of an address names its network."""


def network_of(host: str) -> str | None:
    """The network of an address, such as 192.0.2.0/24; None for this machine itself, on which there are no limits.

    What is no address, as a proxy may tell it, is in a network of its own name.
    """
    if host == "127.0.0.1":  # a proxy on this machine brings every request: spare them the parsing
        return None
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host[:64]
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    if address.is_loopback:
        return None
    bits = IPV4_BITS if address.version == 4 else IPV6_BITS
    return str(ipaddress.ip_network(f"{address}/{bits}", strict=False))


def among(networks: Sequence[str]) -> Callable[[str], bool]:
    """What says whether a host is one of these addresses, or in one of these networks. Raises ValueError for others."""
    known = [ipaddress.ip_network(each, strict=False) for each in networks]

    def is_among(host: str) -> bool:
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        return any(address in network for network in known)

    return is_among
