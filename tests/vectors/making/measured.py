"""What a survey comes to: its calendar, its strata, and its cost."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from changeling_protocol import (
    Breakdown,
    Calendar,
    Odds,
    Randomizer,
    Survey,
    UnixSeconds,
    closings,
    lives_cost,
    micro,
    randomizer_as_fields,
    stratum_of,
)

from .examples import PUBLIC, RANDOMIZERS, SURVEYS
from .notation import Case, fields, number, odds

_CALENDAR = Calendar(1_800_000_000, 60, 8)


def calendars() -> list[Case]:
    """Times beside every edge, then the closings of some plans."""
    return [*_closed(), *_closings()]


def _closed() -> Iterator[Case]:
    start = _CALENDAR.start * 1000
    edges = [start + 60_000 * period for period in (0, 1, 2, 7, 8)]
    for time_ms in sorted({0, start - 10**6, start + 10**9, *(edge + off for edge in edges for off in (-1, 0, 1))}):
        closed = _CALENDAR.closed(UnixSeconds(time_ms / 1000))
        calendar = [_CALENDAR.start, _CALENDAR.period, _CALENDAR.periods]
        yield {"kind": "closed", "calendar": calendar, "time_ms": time_ms, "closed": closed}


def _closings() -> Iterator[Case]:
    for name in ("hierarchy", "mixed", "closed", "states", "time-bounded"):
        survey = SURVEYS[name]
        last = survey.calendar.periods
        plan = survey.as_fields()["plan"]
        tracks = [[each[k] for k in ("width", "first", "last")] for group in plan for each in group["tracks"]]
        for after, until in ((0, last), (3, 6), (4, 4), (last - 1, last)):
            periods = closings(survey.plan, after, until)
            yield {"kind": "closings", "tracks": tracks, "after": after, "until": until, "periods": periods}


_REFUSED = (
    ("a breakdown is missing", {"platform": "mac"}),
    ("a breakdown that is not declared", {"platform": "mac", "channel": "beta", "colour": "red"}),
    ("a value that is not declared", {"platform": "amiga", "channel": "beta"}),
    ("no values", {}),
)


def strata() -> list[Case]:
    """All strata of two breakdowns; that of none; what must be refused."""
    told = [dict(zip(("platform", "channel"), each, strict=True)) for each in product(*(b.values for b in PUBLIC))]
    return [
        *(_stratum(PUBLIC, each) for each in told),
        _stratum((), {}),
        *(_refused_stratum(*each) for each in _REFUSED),
    ]


def _stratum(breakdowns: tuple[Breakdown, ...], told: dict[str, str]) -> Case:
    return {"kind": "stratum", **_asked_of_stratum(breakdowns, told), "stratum": stratum_of(breakdowns, told)}


def _refused_stratum(why: str, told: dict[str, str]) -> Case:
    with pytest.raises(ValueError, match=r"stratum|one of"):
        stratum_of(PUBLIC, told)
    return {"kind": "refused", "why": why, **_asked_of_stratum(PUBLIC, told)}


def _asked_of_stratum(breakdowns: tuple[Breakdown, ...], told: dict[str, str]) -> Case:
    return {"breakdowns": [[each.name, *each.values] for each in breakdowns], "told": told}


_ODDS = (
    Odds(1, 1),
    Odds(2, 1),
    Odds(3, 1),
    Odds(55, 1),
    Odds(2**63, 1),
    Odds(2**63, 2**63 - 1),
    Odds(10**6 + 1, 10**6),
)


def costs() -> list[Case]:
    """From odds to surveys."""
    return [*map(_odds, _ODDS), *map(_losses, RANDOMIZERS), *_surveys()]


def _odds(each: Odds) -> Case:
    return {"kind": "odds", "odds": odds(each), "micro": micro(each.epsilon)}


def _losses(randomizer: Randomizer) -> Case:
    losses = randomizer.losses
    return {
        "kind": "losses",
        "randomizer": fields(randomizer_as_fields(randomizer)),
        "answers": randomizer.space.answers,
        "mutations": micro(losses.mutations),
        "appears": micro(losses.appears),
        "vanishes": micro(losses.vanishes),
        "insertions": micro(losses.insertions),
    }


def _surveys() -> Iterator[Case]:
    for name, survey in SURVEYS.items():
        yield {"kind": "survey", "name": name, **_asked_of_cost(survey), **_costs(survey)}


def _asked_of_cost(survey: Survey) -> dict[str, Any]:
    """Of a survey what its cost depends on."""
    kept = ("calendar", "closed", "plan")
    asked = {"answers": [len(each.answers) for each in survey.questions]}
    asked["constraints"] = [fields(each.constraint.as_fields()) for each in survey.questions]
    return {**asked, **{name: fields(survey.as_fields()[name]) for name in kept}}


def _costs(survey: Survey) -> dict[str, Any]:
    restored = lives_cost(survey.plan, survey.calendar, survey.constraints, survey.closed, lives=2)
    return {
        "micro": number(micro(survey.cost)),
        "stated_micro_per_week": number(micro(survey.per_week)),
        "stated_micro": number(survey.epsilon_micro),
        "micro_if_restored": number(micro(restored)),
    }
