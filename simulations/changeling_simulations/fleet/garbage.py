"""Envelopes that a server must refuse, each for a reason that is known when it is made."""

import os
from collections.abc import Callable
from dataclasses import replace

from changeling_protocol import (
    CLOSING_BYTES,
    HEAD_BYTES,
    ID_BYTES,
    MOST_SPANNED_PERIODS,
    Closing,
    Node,
    Refusal,
    Report,
    SealingKey,
    StratumNumber,
    Survey,
    SurveyId,
    encode_upload,
    seal,
    symbol_bytes,
)

from .devices import Device
from .truth import Adding

Make = Callable[[Survey, SealingKey, Device, Node, Adding], bytes]
"""Makes an envelope about a span of one period with a closing, and adds what it must come to."""


def _noise(_: Survey, __: SealingKey, ___: Device, ____: Node, adding: Adding) -> bytes:
    adding.truth.told[Refusal.MALFORMED.value] += 1
    return b"\0" + os.urandom(199)  # of no protocol version


def _unknown_survey(survey: Survey, key: SealingKey, device: Device, span: Node, adding: Adding) -> bytes:
    adding.truth.told[Refusal.UNKNOWN_SURVEY.value] += 1
    envelope = _good(survey, key, device, span)
    return envelope[:1] + SurveyId(os.urandom(ID_BYTES)) + envelope[1 + ID_BYTES :]


def _unknown_key(survey: Survey, key: SealingKey, device: Device, span: Node, adding: Adding) -> bytes:
    _told(adding, Refusal.UNKNOWN_KEY)
    envelope = _good(survey, key, device, span)
    return envelope[: 1 + ID_BYTES] + os.urandom(ID_BYTES) + envelope[HEAD_BYTES:]


def _too_large(survey: Survey, key: SealingKey, device: Device, span: Node, adding: Adding) -> bytes:
    _told(adding, Refusal.TOO_LARGE)
    tracks = survey.plan.tracks
    row = CLOSING_BYTES + sum(symbol_bytes(track.randomizer) + 5 for track in tracks) + 64
    return _good(survey, key, device, span) + bytes(row * (MOST_SPANNED_PERIODS + 2))


def _altered(survey: Survey, key: SealingKey, device: Device, span: Node, adding: Adding) -> bytes:
    adding.refuse(Refusal.UNOPENABLE)
    envelope = _good(survey, key, device, span)
    return envelope[:-1] + bytes([envelope[-1] ^ 1])


def _no_upload(survey: Survey, key: SealingKey, _: Device, __: Node, adding: Adding) -> bytes:
    adding.refuse(Refusal.MALFORMED)
    return seal(b"no upload of this plan" + os.urandom(64), survey.id, key)


def _unknown_stratum(survey: Survey, key: SealingKey, device: Device, span: Node, adding: Adding) -> bytes:
    closings, reports = device.answer(span)
    adding.refuse(Refusal.UNKNOWN_STRATUM, len(closings))
    wrong = [replace(each, stratum=StratumNumber(survey.strata)) for each in closings]
    return _sealed(survey, key, device.group, span, wrong, reports)


def _no_such_symbol(survey: Survey, key: SealingKey, device: Device, span: Node, adding: Adding) -> bytes:
    """The closing counts, and its other reports; where it has no report that can be wrong, all of it does."""
    closings, reports = device.answer(span)
    for place, report in enumerate(reports):
        randomizer = survey.plan.tracks[report.track].randomizer
        if randomizer.symbols + 1 < 256 ** symbol_bytes(randomizer):
            adding.refuse(Refusal.SYMBOL_OUT_OF_RANGE)
            adding.accept(device.group, closings, reports[:place] + reports[place + 1 :])
            reports[place] = replace(report, symbol=randomizer.symbols)
            break
    else:
        adding.accept(device.group, closings, reports)
    return _sealed(survey, key, device.group, span, closings, reports)


TOLD: tuple[Make, ...] = (_noise, _unknown_survey, _unknown_key, _too_large)
"""What is refused from outside, so that no log holds it."""
COUNTED: tuple[Make, ...] = (_altered, _no_upload, _unknown_stratum, _no_such_symbol)
"""What is refused once it is open."""


def _told(adding: Adding, reason: Refusal) -> None:
    """Of a refusal that is told, and counted for the survey too."""
    adding.truth.told[reason.value] += 1
    adding.refuse(reason)


def _good(survey: Survey, key: SealingKey, device: Device, span: Node) -> bytes:
    return _sealed(survey, key, device.group, span, *device.answer(span))


def _sealed(
    survey: Survey, key: SealingKey, group: int, span: Node, closings: list[Closing], reports: list[Report]
) -> bytes:
    return seal(encode_upload(survey.plan, group, span, closings, reports), survey.id, key)
