"""The version of the protocol: part of every signed object and every seal."""

VERSION = 3
