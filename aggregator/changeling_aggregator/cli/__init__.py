"""The operators' commands of `changeling`. Each imports what is heavy where it runs. For commands of other wings: what
theirs have in common with these."""

from .access import (
    TokenFile,
    asking,
    console,
    interrupt,
    put,
    read_private_key,
    read_public_key,
    shown_error,
    token_in,
    write_private_key,
    write_public_key,
)

__all__ = [
    "TokenFile",
    "asking",
    "console",
    "interrupt",
    "put",
    "read_private_key",
    "read_public_key",
    "shown_error",
    "token_in",
    "write_private_key",
    "write_public_key",
]
