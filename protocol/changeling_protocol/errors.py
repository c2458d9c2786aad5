"""Errors between client and server, and the root of every package's errors.

    ChangelingError          each package derives its own root from it
    └── ProtocolError
        ├── MalformedBytes       bytes that are not the canonical form of anything we know
        ├── BadSignature         a signed object that none of the pinned keys signed
        ├── CannotOpen           a sealed upload that this key does not open
        └── UnderstatedEpsilon   a survey whose plan costs more than the epsilon it states (also a ValueError)

A bad argument is a plain ValueError with the value in it.
"""


class ChangelingError(Exception):
    """Root of every error that a package of changeling raises, besides ValueError and OSError."""


class ProtocolError(ChangelingError):
    """Root of every error this package raises besides ValueError."""


class MalformedBytes(ProtocolError):
    """Bytes from outside that do not parse, or that are not in canonical form."""


class BadSignature(ProtocolError):
    """A signed object that none of the pinned authority keys signed."""


class CannotOpen(ProtocolError):
    """A sealed upload that does not open: another key, another survey, or altered on its way."""


class UnderstatedEpsilon(ProtocolError, ValueError):
    """A survey whose release plan can cost an entry more than the epsilon it states."""
