"""Whether a host is this machine: the one place where nobody listens on the way."""

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server on the host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
