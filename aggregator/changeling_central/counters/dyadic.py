"""Prefix sums from dyadic nodes: after t steps, one released node for every binary digit 1 of t.

A step carries like a binary counter: it takes up the nodes of equal width before it and releases one node over all of
them. So a step draws once, a prefix adds at most ⌈log₂ t⌉ + 1 nodes, and as many are remembered. A step is a part of
at most one node of each level. Source: Chan, Shi, Song 2011; Dwork, Naor, Pitassi, Rothblum 2010.
"""

from typing import Any, Generic, NamedTuple

from ..errors import BadState
from ..noise import Noise
from ..static import Data, Priced, Static, as_plain, from_plain


class Closed(NamedTuple, Generic[Data]):
    """A released node of 2^level steps. data: its true dataset. prefix: the released answers up to its end."""

    level: int
    data: Data
    prefix: Data


def pushed(
    stack: tuple[Closed[Data], ...], data: Data, most: int, priced: Priced[Data], zero: Data, noise: Noise
) -> tuple[Closed[Data], ...]:
    """The stack after one more step. most: the highest level; its nodes stay side by side."""
    level = 0
    while stack and level < most and stack[-1].level == level:
        data = data + stack[-1].data
        stack = stack[:-1]
        level += 1
    before = stack[-1].prefix if stack else zero
    return stack + (Closed(level, data, before + priced.release(data, noise)),)  # noqa: RUF005 a list for mypy


def stack_fields(stack: tuple[Closed[Data], ...]) -> list[list[Any]]:
    return [[node.level, as_plain(node.data), as_plain(node.prefix)] for node in stack]


def stack_from_fields(plain: object, static: Static[Data], steps: int, most: int) -> tuple[Closed[Data], ...]:
    """What `stack_fields` wrote after so many steps. Raises BadState for anything else."""
    nothing, zero = static.gathered([]), static.zero()
    if not isinstance(plain, list):
        raise BadState("the nodes of a saved state are a list")
    try:
        nodes = [(level, data, prefix) for level, data, prefix in plain]
    except (TypeError, ValueError) as error:
        raise BadState("a saved node is a level, a dataset and answers") from error
    if [level for level, _, _ in nodes] != levels_after(steps, most):
        raise BadState(f"the nodes of a saved state are not those of {steps} steps")
    return tuple(Closed(level, from_plain(data, nothing), from_plain(prefix, zero)) for level, data, prefix in nodes)


def levels_after(steps: int, most: int) -> list[int]:
    """The levels of the nodes that cover so many steps, from the first on.

    >>> levels_after(13, 3), levels_after(8, 2)
    ([3, 2, 0], [2, 2])
    """
    below = [level for level in reversed(range(most)) if steps >> level & 1]
    return [most] * (steps >> most) + below
