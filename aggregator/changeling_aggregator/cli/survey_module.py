"""A survey as a typed Python module, for the app that asks it: a misspelt answer is then a type error."""

from collections.abc import Sequence

from changeling_protocol import Breakdown, Survey

from .identifiers import classes, constants, literal, parameters

ANSWERS = "Answers"
_TAKEN = frozenset({ANSWERS, "StrEnum", "Final", "SURVEY", "QUESTION", "AUTHORITY"})

_HEAD = '''\
"""A survey as code, made by `changeling survey code`. Make it anew instead of changing it."""

# ruff: noqa
# fmt: off

from enum import StrEnum
from typing import Final

SURVEY: Final = "{id}"
"""The survey's id, for `Client.join`."""

QUESTION: Final = {question}

AUTHORITY: Final = (
{keys}
)
"""The public keys of the authority that signs surveys and keys, for `Client`."""


class {answers}(StrEnum):
    """The answers that can be recorded."""

{members}
'''

_BREAKDOWN = '''

class {name}(StrEnum):
    """The values of one of the survey's breakdowns."""

{members}
'''

_STRATUM = '''

def stratum(*, {parameters}) -> dict[str, str]:
    """What is public of an entry, for `Client.join`. Tell nothing that hangs on an answer."""
    return {{{told}}}
'''


def survey_module(survey: Survey, authority: Sequence[bytes]) -> str:
    """The text of a module with the survey's id, the authority's keys, and its answers and breakdowns as enums.

    authority: the public keys that an app pins, 32 bytes each. The same survey and keys give the same text.
    """
    head = _HEAD.format(
        id=survey.id.hex(),
        question=literal(survey.question),
        keys="\n".join(f'    bytes.fromhex("{key.hex()}"),' for key in authority),
        answers=ANSWERS,
        members=_members(survey.answers, "ANSWER"),
    )
    return head + _strata(survey.breakdowns)


def _strata(breakdowns: Sequence[Breakdown]) -> str:
    if not breakdowns:
        return ""
    named = [each.name for each in breakdowns]
    types, names = classes(named, "Breakdown", _TAKEN), parameters(named, "breakdown")
    enums = (
        _BREAKDOWN.format(name=name, members=_members(each.values, "VALUE"))
        for name, each in zip(types, breakdowns, strict=True)
    )
    return "".join(enums) + _STRATUM.format(
        parameters=", ".join(f"{name}: {type_}" for name, type_ in zip(names, types, strict=True)),
        told=", ".join(f"{literal(text)}: {name}" for text, name in zip(named, names, strict=True)),
    )


def _members(values: Sequence[str], prefix: str) -> str:
    names = constants(values, prefix)
    return "\n".join(f"    {name} = {literal(value)}" for name, value in zip(names, values, strict=True))
