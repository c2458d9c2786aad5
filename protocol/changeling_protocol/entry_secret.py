"""An entry's secret, its subkeys, and its ratchet along the calendar.

Every chance an entry takes is derived from 32 bytes of the operating system's generator. The key of period i
serves the nodes that end at i; the next is a one-way step away, so erasing a key closes its past for good.
"""

import hmac
import secrets
from dataclasses import dataclass
from functools import cached_property

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from .calendar import Node
from .coins import Coins
from .quantities import SurveyId, TrackNumber
from .version import VERSION

REPORT_ID_BYTES = 16


@dataclass(frozen=True, slots=True, repr=False)
class EntrySecret:
    """The ratchet's key at period `period`; printing it shows nothing."""

    period: int
    key: bytes

    @classmethod
    def fresh(cls, period: int) -> "EntrySecret":
        """A new secret, from the operating system's generator, that begins at this period."""
        return cls(period, secrets.token_bytes(32))

    def advanced(self, period: int) -> "EntrySecret":
        """The secret at a later period, K_{i+1} = HMAC(K_i, "next"). Raises ValueError for an earlier one."""
        if period < self.period:
            raise ValueError(f"a ratchet at period {self.period} cannot go back to {period}")
        key = self.key
        for _ in range(period - self.period):
            key = hmac.digest(key, b"next", "sha256")
        return EntrySecret(period, key)

    def subkeys(self, survey: SurveyId) -> "Subkeys":
        """The keys of this period that are derived for one survey, by its 16-byte id."""
        return Subkeys(self.key, survey)


class Subkeys:
    """The labelled subkeys of one period's key for one survey.

    survey: the survey's 16-byte id. Each subkey is HKDF-SHA256(key, info = label ‖ 0 ‖ version ‖ survey id).
    """

    def __init__(self, key: bytes, survey: SurveyId) -> None:
        self._key, self._survey = key, survey

    def response_coins(self, track: TrackNumber, node: Node, true: int) -> Coins:
        """The coins of the report on a node, given the true input."""
        return Coins(self._coins, _place(track, node) + true.to_bytes(4))

    def report_id(self, track: TrackNumber, node: Node) -> bytes:
        """16 bytes: the same on retries, unlinkable across nodes."""
        return hmac.digest(self._id, _place(track, node), "sha256")[:REPORT_ID_BYTES]

    def delay_coins(self, period: int) -> Coins:
        """The coins of the delay before the nodes that end at `period` are answered."""
        return Coins(self._delay, period.to_bytes(4))

    def group_coins(self) -> Coins:
        """The coins that draw an entry's group of tracks, at its enrolment."""
        return Coins(self._track, b"")

    def node_coins(self, track: TrackNumber) -> Coins:
        """The coins that draw which nodes of a track an entry reports, at its enrolment."""
        return Coins(self._nodes, track.to_bytes(2))

    @cached_property
    def _coins(self) -> bytes:
        return self._derive(b"coins")

    @cached_property
    def _id(self) -> bytes:
        return self._derive(b"id")

    @cached_property
    def _delay(self) -> bytes:
        return self._derive(b"delay")

    @cached_property
    def _track(self) -> bytes:
        return self._derive(b"track")

    @cached_property
    def _nodes(self) -> bytes:
        return self._derive(b"nodes")

    def _derive(self, label: bytes) -> bytes:
        info = label + b"\0" + VERSION.to_bytes(1) + self._survey
        return HKDF(SHA256(), length=32, salt=None, info=info).derive(self._key)


def _place(track: TrackNumber, node: Node) -> bytes:
    return track.to_bytes(2) + node.start.to_bytes(4) + node.end.to_bytes(4)
