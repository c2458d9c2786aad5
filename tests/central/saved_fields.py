"""A saved state taken apart, so that a test can spoil a part of it and put it together again."""

import msgspec


def fields_of(mechanism, state):
    """The plain fields of the state as it is saved; arrays stay opaque."""
    return msgspec.msgpack.decode(mechanism.saved(state))[1]


def resumed(mechanism, fields):
    """The state that the mechanism makes of these fields."""
    return mechanism.resumed(msgspec.msgpack.encode((mechanism.identity(), fields)))
