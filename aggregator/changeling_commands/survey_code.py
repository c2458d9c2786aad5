"""A survey as a typed Python module for the app that asks it: a misspelt answer is then a type error.

The names in it are Python identifiers and literals for any text: always the same ones, distinct, and safe to write into
a file.
"""

import unicodedata
from collections.abc import Iterable, Sequence, Set
from itertools import count
from keyword import iskeyword

from changeling_protocol import Survey


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


ANSWERS, QUESTIONS = "Answers", "Questions"
_TAKEN = frozenset({ANSWERS, QUESTIONS, "StrEnum", "Final", "SURVEY", "QUESTION", "AUTHORITY"})

_HEAD = '''\
"""A survey as code, made by `changeling survey code`. Make it anew instead of changing it."""

# ruff: noqa
# fmt: off

from enum import StrEnum
from typing import Final

SURVEY: Final = "{id}"
"""The survey's id, for `Client.join`."""
{question}
AUTHORITY: Final = (
{keys}
)
"""The public keys of the authority that signs surveys and keys, for `Client`."""
'''

_ENUM = '''

class {name}(StrEnum):
    """{said}"""

{members}
'''

_STRATUM = '''

def stratum(*, {parameters}) -> dict[str, str]:
    """What is public of an entry, for `Client.join`. Tell nothing that hangs on an answer."""
    return {{{told}}}
'''


def survey_module(survey: Survey, authority: Sequence[bytes]) -> str:
    """The text of a module with the survey's id, the authority's keys, and its answers and breakdowns as enums.

    Of several questions there are their names, and the answers to each that is no number, which is recorded as one.
    authority: the public keys that an app pins, 32 bytes each. The same survey and keys give the same text.
    """
    alone = survey.asked[0] if len(survey.asked) == 1 else None
    head = _HEAD.format(
        id=survey.id.hex(),
        question=f"\nQUESTION: Final = {literal(alone.text)}\n" if alone else "",
        keys="\n".join(f'    bytes.fromhex("{key.hex()}"),' for key in authority),
    )
    if alone:
        return head + _enum(ANSWERS, "The answers that can be recorded.", alone.answers, "ANSWER") + _strata(survey)
    names = [each.name for each in survey.asked]
    questions = _enum(QUESTIONS, "The names of the questions, for `SurveyHandle.question`.", names, "QUESTION")
    types, members = classes(names, "Question", _TAKEN), constants(names, "QUESTION")
    answers = (
        _enum(type_, f"The answers to {QUESTIONS}.{member} that can be recorded.", each.answers, "ANSWER")
        for type_, member, each in zip(types, members, survey.asked, strict=True)
        if not each.levels
    )
    return head + questions + "".join(answers) + _strata(survey, {*types})


def _strata(survey: Survey, taken: Set[str] = frozenset()) -> str:
    """The enums of its breakdowns. taken: the names of others."""
    if not survey.breakdowns:
        return ""
    named = [each.name for each in survey.breakdowns]
    types, names = classes(named, "Breakdown", _TAKEN | taken), parameters(named, "breakdown")
    enums = (
        _enum(name, "The values of one of the survey's breakdowns.", each.values, "VALUE")
        for name, each in zip(types, survey.breakdowns, strict=True)
    )
    return "".join(enums) + _STRATUM.format(
        parameters=", ".join(f"{name}: {type_}" for name, type_ in zip(names, types, strict=True)),
        told=", ".join(f"{literal(text)}: {name}" for text, name in zip(named, names, strict=True)),
    )


def _enum(name: str, said: str, values: Sequence[str], prefix: str) -> str:
    """A class with a member for each value. prefix: as for `constants`."""
    members = zip(constants(values, prefix), values, strict=True)
    return _ENUM.format(
        name=name, said=said, members="\n".join(f"    {at} = {literal(value)}" for at, value in members)
    )
