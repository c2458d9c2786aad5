"""Symbols in words, for the person whose reports they are. States are named from NULL on: "no answer", "tea", …"""

from collections.abc import Sequence

from .spaces import Space


def input_in_words(space: Space, index: int, states: Sequence[str]) -> str:
    """An input: a state's name, "no change", or a change.

    >>> from .spaces import MutationSpace
    >>> input_in_words(MutationSpace(2), 4, ["no answer", "tea", "coffee"])
    'from tea to coffee'
    """
    old, new = space.pair(index)
    if not space.reports_changes:
        return states[new]
    return f"from {states[old]} to {states[new]}" if index else "no change"


def own_states(space: Space, states: Sequence[str]) -> Sequence[str]:
    """The names of the states that a space has: without NULL's in a closed cohort."""
    return states if space.null else states[1:]


def listed(names: Sequence[str], last: str) -> str:
    """Names as a part of a sentence.

    >>> listed(["tea", "water", "coffee"], "and")
    'tea, water and coffee'
    """
    return f" {last} ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)
