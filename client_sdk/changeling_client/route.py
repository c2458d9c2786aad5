"""The way to one server: its URL, and what the app says about proxies, certificates and transports.

The client that sends is our own. Nothing that the app has set up for its own requests reaches ours: no cookies, no
hooks, no headers, and no credentials but what it passed for uploads. Proxies and certificates that the environment
names serve for real hosts, and never for a server on this machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from changeling_protocol import wire

if TYPE_CHECKING:
    import ssl

    import httpx

PROXY_SCHEMES = ("http", "https", "socks5", "socks5h")


@dataclass(frozen=True, slots=True)
class Route:
    """How to get to a server.

    url: its base URL; HTTPS, or on loopback.
    transport: sends our requests in place of httpx's own; it is closed with the client.
    proxy: the URL of a proxy for all requests; None goes by the environment.
    verify: whether certificates are checked, or the context that checks them.
    upload_token: shown with uploads, and with nothing else; None for none.
    Raises ValueError for a URL or a token that will not do, or for a proxy beside a transport.
    """

    url: str
    transport: httpx.BaseTransport | None = None
    proxy: str | None = None
    verify: ssl.SSLContext | bool = True
    upload_token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        _check_server(self.url)
        if self.upload_token is not None:
            _check_token(self.upload_token)
        if self.proxy is not None:
            _check_proxy(self.proxy)
            if self.transport is not None:
                raise ValueError("a transport of the app's own goes through no proxy of ours: pass one of the two")

    @property
    def origin(self) -> str:
        """Scheme, host and port, for words about the server."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    def to(self, path: str) -> str:
        """The URL of a path behind the server's base URL."""
        return self.url.rstrip("/") + path

    def open(self) -> httpx.Client:
        """A new client that goes this way, and keeps neither connections nor cookies. Imports httpx."""
        from http.cookiejar import CookieJar, DefaultCookiePolicy

        import httpx

        return httpx.Client(
            transport=self.transport,
            proxy=self.proxy,
            verify=self.verify if self._is_secret() else _trusting_nobody(),
            trust_env=not is_loopback(self.url),
            limits=httpx.Limits(max_connections=1, max_keepalive_connections=0),
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
        )

    def _is_secret(self) -> bool:
        return urlsplit(self.url).scheme == "https"


def _trusting_nobody() -> ssl.SSLContext:
    """For plain HTTP, which checks no certificate: loading those of all authorities takes 40 ms and a megabyte."""
    import ssl

    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _check_server(url: str) -> None:
    parts = urlsplit(url)
    _ = parts.port  # raises ValueError where it is no number
    if parts.username or parts.password:
        raise ValueError("the server's URL must not hold credentials")
    if parts.query or parts.fragment or not parts.hostname or parts.scheme not in ("https", "http"):
        raise ValueError(f"the server's URL must be like https://host/path, got {url!r}")
    if parts.scheme == "http" and not is_loopback(url):
        raise ValueError(f"the server's URL must be https, but on loopback, got {url!r}")


def _check_proxy(url: str) -> None:
    """Its URL may hold credentials, which are the proxy's alone, so no error repeats it."""
    parts = urlsplit(url)
    if parts.scheme not in PROXY_SCHEMES or not parts.hostname:
        raise ValueError(f"the proxy's URL must be like http://host:port, with one of {', '.join(PROXY_SCHEMES)}")


def _check_token(token: str) -> None:
    """What goes into a header as it is; no error repeats it."""
    if not token or not all("!" <= sign <= "~" for sign in token):
        raise ValueError("the upload token must be the server's own text: printable ASCII, without spaces")


def is_loopback(url: str) -> bool:
    """Whether a URL's host is this machine."""
    return wire.is_loopback(urlsplit(url).hostname or "")
