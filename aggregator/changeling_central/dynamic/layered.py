"""A map that is never changed, of which a newer one with a few other values costs little more than those.

A pile of layers, the newest last; what it says of a key is what the newest layer with that key says. A layer that is
not more than twice as long as the one upon it is joined with it, so that n keys lie in about log n layers, and a key
is copied about log n times in all: a period costs what changed in it, not the whole database.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Value = TypeVar("Value")

Key = int | str


@dataclass(frozen=True, slots=True)
class Layered(Generic[Value]):
    """layers: of keys and their values, the newest last; the value None means that the key's is gone."""

    layers: tuple[Mapping[Key, Value | None], ...] = ()

    def get(self, key: Key) -> Value | None:
        """The key's value; None where there is none, or it is gone."""
        for layer in reversed(self.layers):
            if key in layer:
                return layer[key]
        return None

    def __contains__(self, key: Key) -> bool:
        return any(key in layer for layer in self.layers)

    def items(self) -> Iterator[tuple[Key, Value | None]]:
        """Every key once, with its newest value; those that are gone too, as long as they are remembered."""
        return iter(_joined(self.layers).items())

    def over(self, newer: Mapping[Key, Value | None], forget: bool = False) -> "Layered[Value]":
        """The map with these values instead of its own.

        forget: whether what is gone may be forgotten, as if it had never been.
        """
        if not newer:
            return self
        layers = [*self.layers, newer]
        while len(layers) > 1 and len(layers[-2]) <= 2 * len(layers[-1]):
            layers[-2:] = [_joined(layers[-2:])]
            if forget and len(layers) == 1:  # below it there is nothing that a key could come back from
                layers = [{key: value for key, value in layers[0].items() if value is not None}]
        return Layered(tuple(layers))


def _joined(layers: Sequence[Mapping[Key, Value | None]]) -> dict[Key, Value | None]:
    joined: dict[Key, Value | None] = {}
    for layer in layers:
        joined.update(layer)
    return joined
