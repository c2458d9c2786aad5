"""Python identifiers and literals for any text: always the same ones, distinct, and safe to write into a file."""

import unicodedata
from collections.abc import Iterable, Sequence, Set
from itertools import count
from keyword import iskeyword


def constants(texts: Iterable[str], prefix: str) -> list[str]:
    """A name in capitals for each text, for the members of an enum.

    prefix: stands before what begins with a digit, and for what holds no letter or digit at all.

    >>> constants(["a b", "a-b", "18 to 24", "?!"], "ANSWER")
    ['A_B', 'A_B_2', 'ANSWER_18_TO_24', 'ANSWER']
    """
    return _distinct([_begun(_words(text).upper(), prefix) for text in texts])


def classes(texts: Iterable[str], prefix: str, taken: Set[str] = frozenset()) -> list[str]:
    """A name for a class for each text: AppVersion for "app version". taken: names that none may have."""
    joined = ("".join(word[:1].upper() + word[1:] for word in _words(text).split("_")) for text in texts)
    return _distinct([_begun(name, prefix) for name in joined], taken)


def parameters(texts: Iterable[str], prefix: str) -> list[str]:
    """A name in small letters for each text, for the parameters of a function."""
    return _distinct([_begun(_words(text).lower(), prefix) for text in texts])


def literal(text: str) -> str:
    """A string in double quotes; what cannot be printed, or turns the direction of writing, is escaped."""
    return '"' + "".join({'"': '\\"', "\\": "\\\\"}.get(c, c if c.isprintable() else repr(c)[1:-1]) for c in text) + '"'


def _words(text: str) -> str:
    """The letters and digits of a text, with single underscores for what is between them."""
    letters = ("_" if c == "_" or not f"_{c}".isidentifier() else c for c in unicodedata.normalize("NFKC", text))
    return "_".join(filter(None, "".join(letters).split("_")))


def _begun(name: str, prefix: str) -> str:
    """The name in the form in which Python compares names, with something before it if it cannot begin one."""
    name = _words(name)  # changing the case may undo the form
    if name.isidentifier():
        return f"{name}_" if iskeyword(name) else name
    return f"{prefix}_{name}" if name else prefix


def _distinct(names: Sequence[str], taken: Set[str] = frozenset()) -> list[str]:
    """Each name, or where it is taken the name with the first number from 2 on that is free, also of later names."""
    reserved, given = {*names, *taken}, dict[str, None]()
    for name in names:
        numbered = (f"{name}_{number}" for number in count(2))
        free = name not in given and name not in taken
        given[name if free else next(each for each in numbered if each not in reserved and each not in given)] = None
    return list(given)
