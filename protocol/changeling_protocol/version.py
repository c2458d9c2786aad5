"""The version of the protocol: part of every signed object, every seal and every derived key."""

VERSION = 1
