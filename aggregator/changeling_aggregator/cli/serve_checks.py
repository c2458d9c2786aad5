"""What each setting of `changeling serve` must be, before anything is opened; each raises what is wrong with one."""

from pathlib import Path

import typer
from changeling_protocol import authority_key
from changeling_protocol.wire import is_loopback

from .files import read_public_key, read_store_key


def checked_authority(files: list[Path]) -> list[Path]:
    """Files with public keys that can sign."""
    for file in files:
        authority_key(read_public_key(file))
    return files


def checked_store_key(file: Path | None) -> Path | None:
    """A file, or the environment, with a store key."""
    read_store_key(file)
    return file


def checked_clock(context: typer.Context, movable: bool) -> bool:
    """A movable clock is for loopback."""
    host = context.params.get("host")
    if movable and host is not None and not is_loopback(host):
        raise ValueError(f"a movable clock is for loopback only, not for {host}")
    return movable


def checked_front(context: typer.Context, key: Path | None) -> Path | None:
    """The certificate's key, if there is a certificate; beyond loopback there is one, or a proxy that has one."""
    host, certificate = context.params.get("host"), context.params.get("certificate")
    if (certificate is None) != (key is None):
        raise ValueError("give both --certificate and --certificate-key, or neither")
    if host is not None and not is_loopback(host) and not context.params.get("proxy") and certificate is None:
        raise ValueError(
            f"on {host} tokens could be read on the way: give a --certificate, or name the --proxy before the server"
        )
    return key


def checked_admission(name: str | None) -> str | None:
    """The name of something that can be imported."""
    from uvicorn.importer import ImportFromStringError, import_from_string

    try:
        if name is not None:
            import_from_string(name)
    except ImportFromStringError as error:
        raise ValueError(f"--admission {name}: {error}") from error
    return name


def checked_segments(place: str | None) -> str | None:
    """A folder, or an object store that segments can be kept in, with the libraries for it."""
    from ..segments import checked_place

    return None if place is None else checked_place(place)


def checked_address(address: str | None) -> str | None:
    """HOST:PORT."""
    if address is not None:
        host_and_port(address)
    return address


def host_and_port(address: str) -> tuple[str, int]:
    """The two parts of HOST:PORT; an IPv6 address has brackets. Raises ValueError."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"a metrics address is HOST:PORT, as 127.0.0.1:9090, and not {address!r}")
    return host.strip("[]"), int(port)
