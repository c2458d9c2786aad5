"""What a survey asks of its servers in a day: envelopes, bytes, closings and ids, from its plan and its devices."""

from dataclasses import dataclass

from changeling_protocol import HEAD_BYTES, MOST_SPANNED_PERIODS, SEAL_BYTES, Node, Survey, closings, upload_bytes
from changeling_statistics import counterpart_of

DAY_SECONDS = 86_400
ID_BYTES = 16
CELL_BYTES = 8
_ENVELOPE_HEAD_BYTES = 3


@dataclass(frozen=True, slots=True)
class Demand:
    """A day of a survey, or of several that are alike.

    devices: how many report. envelopes: they send in a day, all of them. envelope_bytes: of one, sealed.
    closings: that one envelope answers, on average. open_closings: how many closings' ids are kept at once.
    kept_days: how long an envelope stays in the log. cells: slots of all tallies. surveys: how many there are.
    key_days: for how long devices seal to one key. reads: how many results a second reach the servers, past all caches.
    """

    devices: int
    envelopes: float
    envelope_bytes: float
    closings: float
    open_closings: float
    kept_days: float
    cells: int
    surveys: int = 1
    key_days: float = 30.0
    reads: float = 10.0

    @property
    def answered(self) -> float:
        """How many closings are answered in a day: each is an id to look up and keep."""
        return self.envelopes * self.closings

    @property
    def keys_asked(self) -> float:
        """How often a day devices ask for a sealing key, on average: each once for each key.

        With a cache before the servers hardly any of that reaches them.
        """
        return self.devices / self.surveys / self.key_days

    @property
    def kept_ids(self) -> float:
        """How many ids are kept at once."""
        return self.devices * self.open_closings

    @property
    def log_bytes(self) -> float:
        """What the log holds, without what a store adds."""
        return self.envelopes * self.kept_days * self.envelope_bytes

    @property
    def id_bytes(self) -> float:
        """What ids take, sorted, without what a store adds."""
        return ID_BYTES * self.kept_ids

    @property
    def tally_bytes(self) -> float:
        """What all tallies take; it does not grow with devices."""
        return CELL_BYTES * self.cells


def demand_of(survey: Survey, devices: int, *, uploads_a_day: float = 1.0, retention: int | None = None) -> Demand:
    """What so many devices of a survey ask for.

    uploads_a_day: how often a device's app runs, if there is anything to report; what closed since goes in one upload.
    retention: how long an envelope stays in the log, in seconds; by default for the survey's grace, as a server does.
    Raises ValueError for no devices, or apps that never run.
    """
    if devices < 1 or uploads_a_day <= 0:
        raise ValueError(f"there must be devices whose apps run, got {devices} and {uploads_a_day} times a day")
    calendar = survey.calendar
    ends = len(closings(survey.plan, 0, calendar.periods))
    days = calendar.period * calendar.periods / DAY_SECONDS
    closings_a_day = ends / days
    uploads = min(uploads_a_day, closings_a_day)
    spanned = min(max(1, round(calendar.periods / days / uploads)), MOST_SPANNED_PERIODS, calendar.periods)
    spans = [Node(at, at + spanned) for at in range(0, calendar.periods - spanned + 1, spanned)][:64]
    plain = sum(upload_bytes(survey.plan, span) for span in spans) / len(spans)
    tracks = survey.plan.tracks
    return Demand(
        devices,
        devices * uploads,
        plain + HEAD_BYTES + SEAL_BYTES + _ENVELOPE_HEAD_BYTES,
        closings_a_day / uploads,
        min(survey.grace / DAY_SECONDS * closings_a_day + 1, ends),
        (survey.grace if retention is None else retention) / DAY_SECONDS,
        sum(track.count * counterpart_of(track.randomizer).slots for track in tracks) * survey.strata,
    )
