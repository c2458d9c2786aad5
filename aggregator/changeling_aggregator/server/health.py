"""Troubles of a server, each by a name of its own.

Read from memory and the file system alone, so that asking costs nothing and works while the store does not.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from changeling_protocol import DURATION_UNITS, SealingKey, UnixSeconds

from ..fold import MOST_RETENTION_SECONDS
from ..ingest import PublishedSurvey, Registry
from ..store import IN_CLEAR
from .service import Service

MOST_FAILURES = 3
"""So many failures of the fold in a row are more than a busy disk."""
MOST_UNFOLDED_SECONDS = 60.0
"""A fold that runs elsewhere and keeps up reaches the log's end within seconds."""
WARNING_SECONDS = 14 * 86_400
WARNING_SHARE = 10
"""Before the last key expires operators are warned, for so long or this part of its life, whichever is shorter."""


class Severity(StrEnum):
    """How bad a trouble is."""

    OK = "ok"
    """Only to be known."""
    DEGRADED = "degraded"
    """Uploads are taken and counted; somebody has to look."""
    BAD = "bad"
    """Uploads are turned away, lost, or not counted."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something wrong. name: for machines. detail: a sentence for people."""

    name: str
    severity: Severity
    detail: str


def troubles_of(service: Service) -> list[Trouble]:
    """All that is wrong with a server now, the worst first."""
    troubles = [
        *_of_the_process(service),
        *_of_the_store(service),
        *_of_the_surveys(service),
        *troubles_of_keys(service.registry, service.clock()),
    ]
    return sorted(troubles, key=lambda trouble: [*Severity].index(trouble.severity), reverse=True)


def status_of(troubles: Iterable[Trouble]) -> Severity:
    """The severity of the worst of them."""
    return max((trouble.severity for trouble in troubles), key=[*Severity].index, default=Severity.OK)


def covered_until(keys: Iterable[SealingKey], now: UnixSeconds) -> SealingKey | None:
    """The last of the keys that follow the one valid now without a gap; None where none is valid.

    now: Unix seconds.
    """
    last = None
    for key in sorted(keys, key=lambda key: key.begins):
        if key.expires >= now and key.begins <= (now if last is None else last.expires):
            last = key
    return last


def _of_the_process(service: Service) -> Iterator[Trouble]:
    if not service.folding.running:
        yield Trouble("fold", Severity.BAD, "the thread that folds has died")
    elif service.folding.failures >= MOST_FAILURES:
        yield Trouble("fold", Severity.BAD, "the fold fails: the log says why")
    elif not service.folding.folds and service.folding.age > MOST_UNFOLDED_SECONDS:
        detail = f"this server does not fold, and for {service.folding.age:.0f}s no other process has folded all"
        yield Trouble("fold", Severity.DEGRADED, detail)
    if trouble := service.committer.trouble:
        yield Trouble("uploads", Severity.BAD, trouble)
    if (clock := service.guarded_clock) and (doubt := clock.doubt):
        yield Trouble("clock", Severity.DEGRADED, f"nothing is sealed or destroyed: {doubt.value}")


def _of_the_store(service: Service) -> Iterator[Trouble]:
    if trouble := service.store.trouble():
        yield Trouble("store", Severity.BAD, trouble)
    if service.store.at_rest == IN_CLEAR:
        yield Trouble("keys-in-clear", Severity.OK, "sealing keys lie in the store unencrypted: give it a store key")


def _of_the_surveys(service: Service) -> Iterator[Trouble]:
    for id_ in service.registry.unreadable:
        yield Trouble("survey", Severity.DEGRADED, f"survey {id_.hex()} cannot be read by this version, and is not run")
    for id_ in service.folding.uncounted:
        detail = f"uploads of survey {id_.hex()} could not be counted: the log says why"
        yield Trouble("survey", Severity.DEGRADED, detail)


def troubles_of_keys(registry: Registry, now: UnixSeconds) -> Iterator[Trouble]:
    """Where no sealing key is valid, or none will be soon, for a survey that takes answers. now: Unix seconds."""
    surveys = [each for each in registry.surveys.values() if now <= _answered_until(each)]
    if not surveys:
        return
    keys = [each.key for each in registry.keys.values()]
    last, needed = covered_until(keys, now), max(map(_answered_until, surveys))
    if last is None:
        begun = any(each.survey.calendar.start <= now for each in surveys)
        coming = min((key.begins for key in keys if key.begins > now), default=None)
        then = "none is to come" if coming is None else f"the next begins in {_shown(coming - now)}"
        detail = f"no sealing key is valid, and {then}: no device can send anything"
        yield Trouble("keys", Severity.BAD if begun else Severity.DEGRADED, detail)
    elif last.expires < needed and last.expires - now < min(
        WARNING_SECONDS, (last.expires - last.begins) / WARNING_SHARE
    ):
        detail = f"the last sealing key expires in {_shown(last.expires - now)}: publish the next"
        yield Trouble("keys", Severity.DEGRADED, detail)


def _answered_until(published: PublishedSurvey) -> int:
    survey = published.survey
    return survey.calendar.time(published.last) + min(survey.grace, MOST_RETENTION_SECONDS)


def _shown(seconds: float) -> str:
    """A duration in the widest unit of which it has two or more."""
    unit = next((unit for unit, length in DURATION_UNITS.items() if seconds >= 2 * length), "s")
    return f"{seconds // DURATION_UNITS[unit]:.0f}{unit}"
