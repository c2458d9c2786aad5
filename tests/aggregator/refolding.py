"""The whole log folded again from empty: what the stored tallies must be."""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial

from changeling_aggregator.fold.counting import count
from changeling_aggregator.opening import open_requests
from changeling_aggregator.store import ClosingKey, LoggedRequest, View
from changeling_protocol import Survey
from changeling_statistics import Tallies
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey


def whole_log(view: View) -> list[LoggedRequest]:
    """Every request that is not deleted, in the log's order."""
    return sorted(view.kept_requests())


def refold(
    batches: Iterable[Iterable[LoggedRequest]],
    surveys: Mapping[bytes, Survey],
    keys: Mapping[bytes, X25519PrivateKey],
) -> Tallies:
    """All strata's tallies of a log of one survey, folded from empty: what the stored ones must be.

    Envelopes whose private key is destroyed do not open any more, so this holds while the keys live; of what is sealed
    it does not hold, as the log is pruned.
    """
    whole = Tallies({}, {})
    runs: dict[ClosingKey, list[bytes]] = {}
    for batch in map(list, batches):
        opened = open_requests([each.body for each in batch], surveys, keys)
        counted = count(batch, opened, surveys, partial(_among, runs), {})
        for (_, track, node, _), tally in counted.tallies.items():
            whole += Tallies({(track, node): tally}, {})
        for (_, group, period, _), here in counted.attendance.items():
            whole += Tallies({}, {(group, period): here})
        for key, ids in counted.ids.items():
            runs.setdefault(key, []).append(ids)
    return whole


def _among(runs: Mapping[ClosingKey, list[bytes]], wanted: Iterable[ClosingKey]) -> Iterator[tuple[ClosingKey, bytes]]:
    return ((key, ids) for key in wanted for ids in runs.get(key, ()))


def shown(tallies: Tallies) -> dict[tuple[int, int], tuple[int, list[int]]]:
    """By track and node: how many reports, and the slots."""
    return {key: (tally.reports, tally.slots.tolist()) for key, tally in tallies.items()}


def present(tallies: Tallies) -> dict[tuple[int, int], tuple[int, int, int]]:
    """By group and period: how many were heard, were new, and were missed before."""
    return {key: (here.heard, here.new, here.missed) for key, here in tallies.attendance.items()}
