"""A device of the development server: it never has an answer, and answers every period."""

from typing import TYPE_CHECKING

from changeling_protocol import Closing, Node, Report, SealingKey, Standing, Survey, SystemCoins, seal
from changeling_protocol.quantities import NodeNumber, StratumNumber, TrackNumber, UnixSeconds
from changeling_protocol.upload import draw_closing_id, encode_upload

if TYPE_CHECKING:
    from ..server import Service

NO_CHANGE = 0
TRACK = TrackNumber(0)
STRATUM = StratumNumber(0)


class QuietNeighbour:
    """Reports "no change" on the first track's nodes, as a device would, so that none of them is empty."""

    def __init__(self, survey: Survey, key: SealingKey, service: "Service") -> None:
        self._survey, self._key, self._service = survey, key, service
        self._coins = SystemCoins()
        self._answered = 0

    def answer(self, now: UnixSeconds) -> None:
        """Answer the periods that have closed by now, in Unix seconds, and have not been answered."""
        until = self._survey.calendar.closed(now)
        if until == self._answered:
            return
        track = self._survey.plan.tracks[TRACK]
        span = Node(self._answered, until)
        closings, reports = [], []
        for period in range(span.start + 1, span.end + 1):
            standing = Standing.NEW if period == 1 else Standing.KNOWN
            closings.append(Closing(period, draw_closing_id(self._coins), standing, STRATUM))
            reports.append(Report(TRACK, NodeNumber(period), track.randomizer.respond(NO_CHANGE, self._coins)))
        plaintext = encode_upload(self._survey.plan, 0, span, closings, reports)
        self._service.committer.submit([seal(plaintext, self._survey.id, self._key)]).result()
        self._answered = until
