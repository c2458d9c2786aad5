"""What a log counts for, worked out envelope by envelope and row by row, with nothing of either fold's."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from changeling_aggregator.store import LoggedRequest, Store
from changeling_aggregator.testing import counted_rows
from changeling_protocol import CannotOpen, MalformedBytes, Refusal, Survey, head_of, open_envelope
from changeling_protocol.wire import decode_upload_request
from changeling_statistics import counterpart_of
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from ..aggregator.reference_fold import Reference, _add, _read

Rows = list[tuple[Any, ...]]
NOT_COUNTED_HERE = Refusal.UNOPENABLE.value
"""What opening refuses, which the measure leaves out."""


def recount(
    requests: Iterable[LoggedRequest], surveys: Mapping[bytes, Survey], keys: Mapping[bytes, X25519PrivateKey]
) -> dict[str, Rows]:
    """The tallies, the attendance and the refusals that these requests come to, as rows of the store's tables.

    requests: all that there ever were, with the arrivals that count, in any order. None is of a survey that was ended.
    """
    found = {id_: Reference() for id_ in surveys}
    seen: dict[bytes, set[tuple[int, bytes]]] = {id_: set() for id_ in surveys}
    for request in sorted(requests):
        try:
            envelopes = decode_upload_request(request.body)
        except (MalformedBytes, ValueError):
            continue
        for envelope in envelopes:
            head = head_of(envelope)
            if head.survey not in surveys or head.key not in keys:
                continue
            try:
                plaintext = open_envelope(envelope, keys[head.key])
            except CannotOpen:
                continue
            survey, into = surveys[head.survey], found[head.survey]
            upload = _read(survey, plaintext)
            if upload is None:
                into.refused[Refusal.MALFORMED] += 1
            else:
                _add(into, survey, upload, seen[head.survey], request.arrival / 1000)
    return {
        "tallies": sorted(row for id_, each in found.items() for row in _tallies(surveys[id_], each)),
        "attendance": sorted(
            (id_, *key, *counts) for id_, each in found.items() for key, counts in each.attendance.items()
        ),
        "refusals": sorted(
            (id_, reason.value, count) for id_, each in found.items() for reason, count in each.refused.items()
        ),
    }


def _tallies(survey: Survey, found: Reference) -> Rows:
    rows = []
    for (track, node, stratum), symbols in found.symbols.items():
        reported = np.array([symbol for symbol, times in symbols.items() for _ in range(times)], np.uint64)
        counterpart = counterpart_of(survey.plan.tracks[track].randomizer)
        (tally,) = counterpart.tallies(reported, np.zeros(len(reported), np.int64), 1)
        rows.append((survey.id, track, node, stratum, tally.reports, tally.slots.astype("<i8").tobytes()))
    return rows


def stored(store: Store) -> dict[str, Rows]:
    """What a store has of it."""
    rows = counted_rows(store)
    return {**rows, "refusals": [row for row in rows["refusals"] if row[1] != NOT_COUNTED_HERE]}
