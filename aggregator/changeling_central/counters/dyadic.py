"""Prefix sums from dyadic nodes: after t steps, one released node for every binary digit 1 of t.

A step carries like a binary counter: it takes up the nodes of equal width before it and releases one node over all of
them. So a step draws once, a prefix adds at most ⌈log₂ t⌉ + 1 nodes, and as many are remembered. A step is a part of
at most one node of each level. Source: Chan, Shi, Song 2011; Dwork, Naor, Pitassi, Rothblum 2010.
"""

from typing import Generic, NamedTuple

from ..errors import BadState
from ..noise import Noise
from ..static import Data, Priced, Static, check_answers, check_data


class Closed(NamedTuple, Generic[Data]):
    """A released node of 2^level steps. data: its true dataset. prefix: the released answers up to its end."""

    level: int
    data: Data
    prefix: Data


def pushed(
    stack: tuple[Closed[Data], ...], data: Data, most: int, priced: Priced[Data], zero: Data, noise: Noise
) -> tuple[Closed[Data], ...]:
    """The stack after one more step, whose new node is released.

    data: what the step brings. most: the highest level; its nodes stay side by side. zero: answers on no data.
    """
    level = 0
    while stack and level < most and stack[-1].level == level:
        data = data + stack[-1].data
        stack = stack[:-1]
        level += 1
    before = stack[-1].prefix if stack else zero
    return stack + (Closed(level, data, before + priced.release(data, noise)),)  # noqa: RUF005 a list for mypy


def check_stack(stack: tuple[Closed[Data], ...], static: Static[Data], steps: int, most: int) -> None:
    """Raises BadState unless the stack has the nodes of so many steps, each with a dataset and answers of `static`."""
    if [node.level for node in stack] != levels_after(steps, most):
        raise BadState(f"the nodes of the state are not those of {steps} steps")
    for node in stack:
        check_data(static, node.data)
        check_answers(static, node.prefix)


def levels_after(steps: int, most: int) -> list[int]:
    """The levels of the nodes that cover so many steps, from the first on. most: the highest level.

    >>> levels_after(13, 3), levels_after(8, 2)
    ([3, 2, 0], [2, 2])
    """
    below = [level for level in reversed(range(most)) if steps >> level & 1]
    return [most] * (steps >> most) + below
