"""What a survey comes to: its calendar, its strata, and its cost."""

from itertools import product, starmap

import pytest
from changeling_protocol import (
    Calendar,
    Odds,
    Survey,
    UnixSeconds,
    closings,
    lives_cost,
    micro,
    randomizer_as_fields,
    stratum_of,
)

from .examples import PUBLIC, RANDOMIZERS, SURVEYS
from .notation import fields, number, odds

_CALENDAR = Calendar(1_800_000_000, 60, 8)


def calendars():
    """Times beside every edge, then the closings of some plans."""
    start = _CALENDAR.start * 1000
    edges = [start + 60_000 * period for period in (0, 1, 2, 7, 8)]
    for time_ms in sorted({0, start - 10**6, start + 10**9, *(edge + off for edge in edges for off in (-1, 0, 1))}):
        closed = _CALENDAR.closed(UnixSeconds(time_ms / 1000))
        calendar = [_CALENDAR.start, _CALENDAR.period, _CALENDAR.periods]
        yield {"kind": "closed", "calendar": calendar, "time_ms": time_ms, "closed": closed}
    for name in ("hierarchy", "mixed", "closed", "states", "time-bounded"):
        survey = SURVEYS[name]
        last, plan = survey.calendar.periods, survey.as_fields()["plan"]
        tracks = [[each[k] for k in ("width", "first", "last")] for group in plan for each in group["tracks"]]
        for after, until in ((0, last), (3, 6), (4, 4), (last - 1, last)):
            periods = closings(survey.plan, after, until)
            yield {"kind": "closings", "tracks": tracks, "after": after, "until": until, "periods": periods}


def strata():
    """All strata of two breakdowns; that of none; what must be refused."""
    declared = [[each.name, *each.values] for each in PUBLIC]
    for values in product(*(each.values for each in PUBLIC)):
        told = dict(zip(("platform", "channel"), values, strict=True))
        yield {"kind": "stratum", "breakdowns": declared, "told": told, "stratum": stratum_of(PUBLIC, told)}
    yield {"kind": "stratum", "breakdowns": [], "told": {}, "stratum": stratum_of((), {})}
    for why, told in (
        ("a breakdown is missing", {"platform": "mac"}),
        ("a breakdown that is not declared", {"platform": "mac", "channel": "beta", "colour": "red"}),
        ("a value that is not declared", {"platform": "amiga", "channel": "beta"}),
        ("no values", {}),
    ):
        with pytest.raises(ValueError, match=r"stratum|one of"):
            stratum_of(PUBLIC, told)
        yield {"kind": "refused", "why": why, "breakdowns": declared, "told": told}


_ODDS = ((1, 1), (2, 1), (3, 1), (55, 1), (2**63, 1), (2**63, 2**63 - 1), (10**6 + 1, 10**6))


def costs():
    """From odds to surveys."""
    for each in starmap(Odds, _ODDS):
        yield {"kind": "odds", "odds": odds(each), "micro": micro(each.epsilon)}
    for randomizer in RANDOMIZERS:
        losses = randomizer.losses
        yield {
            "kind": "losses",
            "randomizer": fields(randomizer_as_fields(randomizer)),
            "answers": randomizer.space.answers,
            **{name: micro(getattr(losses, name)) for name in ("mutations", "appears", "vanishes", "insertions")},
        }
    for name, survey in SURVEYS.items():
        yield {"kind": "survey", "name": name, **_cost(survey)}


def _cost(survey: Survey):
    """Of a survey what its cost depends on, and its cost."""
    restored = lives_cost(survey.plan, survey.calendar, survey.constraints, survey.closed, lives=2)
    return {
        "answers": [len(each.answers) for each in survey.questions],
        "constraints": [fields(each.constraint.as_fields()) for each in survey.questions],
        **{name: fields(survey.as_fields()[name]) for name in ("calendar", "closed", "plan")},
        "micro": number(micro(survey.cost)),
        "stated_micro_per_week": number(micro(survey.per_week)),
        "stated_micro": number(survey.epsilon_micro),
        "micro_if_restored": number(micro(restored)),
    }
