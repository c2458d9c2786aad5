"""Whether a host is this machine: the one place where nobody listens on the way."""


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server on the host."""
    import ipaddress  # which few devices need, and all would load

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
