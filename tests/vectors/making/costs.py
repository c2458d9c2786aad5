"""What reports cost: losses of randomizers, and what whole surveys cost an entry, in millionths, rounded up."""

from collections.abc import Iterator
from typing import Any

from changeling_protocol import Odds, Randomizer, Survey, lives_cost, micro, randomizer_as_fields

from .examples import RANDOMIZERS, SURVEYS
from .notation import Case, fields, number, odds

_ODDS = (
    Odds(1, 1),
    Odds(2, 1),
    Odds(3, 1),
    Odds(55, 1),
    Odds(2**63, 1),
    Odds(2**63, 2**63 - 1),
    Odds(10**6 + 1, 10**6),
)


def cases() -> list[Case]:
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
        yield {"kind": "survey", "name": name, **_asked(survey), **_costs(survey)}


def _asked(survey: Survey) -> dict[str, Any]:
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
