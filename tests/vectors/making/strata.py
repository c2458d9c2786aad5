"""Numbers of strata, and what is no stratum."""

from itertools import product

import pytest
from changeling_protocol import Breakdown, stratum_of

from .examples import PUBLIC
from .notation import Case

_REFUSED = (
    ("a breakdown is missing", {"platform": "mac"}),
    ("a breakdown that is not declared", {"platform": "mac", "channel": "beta", "colour": "red"}),
    ("a value that is not declared", {"platform": "amiga", "channel": "beta"}),
    ("no values", {}),
)


def cases() -> list[Case]:
    """All strata of two breakdowns; that of none; what must be refused."""
    told = [dict(zip(("platform", "channel"), each, strict=True)) for each in product(*(b.values for b in PUBLIC))]
    return [*(_stratum(PUBLIC, each) for each in told), _stratum((), {}), *(_refused(*each) for each in _REFUSED)]


def _stratum(breakdowns: tuple[Breakdown, ...], told: dict[str, str]) -> Case:
    return {"kind": "stratum", **_asked(breakdowns, told), "stratum": stratum_of(breakdowns, told)}


def _refused(why: str, told: dict[str, str]) -> Case:
    with pytest.raises(ValueError, match=r"stratum|one of"):
        stratum_of(PUBLIC, told)
    return {"kind": "refused", "why": why, **_asked(PUBLIC, told)}


def _asked(breakdowns: tuple[Breakdown, ...], told: dict[str, str]) -> Case:
    return {"breakdowns": [[each.name, *each.values] for each in breakdowns], "told": told}
