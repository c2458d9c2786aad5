"""The person's reports in plain words: those sent, those that wait, and a preview of the next.

A report was chosen at random, so beside what it says stands how often such a report is true. The true answer never
stands here: whoever looked over the person's shoulder would learn more than the server does.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction

from changeling_protocol import NodeNumber, Report, Survey, Track, TrackNumber, closings

from . import entries, outbox
from .device import Device
from .entries import Entry, Known, Status
from .errors import shown
from .explanation import moment, percent_down, percent_up, said, truthfulness
from .flushing import next_due_ms
from .server import known_time
from .store import StoreConnection, reading

MOST_EXAMPLES = 6
"""How many of the things that a report could say are listed."""


@dataclass(frozen=True, slots=True)
class ReportInWords:
    """A report that was sent, or that will be before it is chosen. `str()` says it in plain words.

    since, until: the span that it is about. about_a_change: whether it is about a change in that span, or about the
    answer at its end. truth: how often such a report tells the truth. luck: how often one would that knows nothing of
    the truth.
    says: what it says, or some of what it could say; nothing that was answered hangs on that. choices: of how many.
    """

    since: datetime
    until: datetime
    about_a_change: bool
    truth: Fraction
    luck: Fraction
    says: str
    choices: int = 1

    def __str__(self) -> str:
        until = moment(self.until)
        about = f"a change from {moment(self.since)} to {until}" if self.about_a_change else f"the answer at {until}"
        truth, luck = percent_up(self.truth), percent_down(self.luck)
        says = f"“{self.says}”" if self.choices == 1 else self.says
        return f"{about}: {says} (chosen at random: true about {truth} of the time, and {luck} by luck alone)"


@dataclass(frozen=True, slots=True)
class Told:
    """An entry's answer at a period's close, given or to come. `str()` says it in plain words.

    entry: its number. at: when the period closed or, of one to come, when it is due by the device's clock.
    arrived: whether the server has said that it has it; else it waits to be sent, or sent again. None for one to come.
    reports: those that it consists of; none, if there is nothing to be reported.
    """

    entry: int
    at: datetime
    arrived: bool | None
    reports: tuple[ReportInWords, ...]

    def __str__(self) -> str:
        how = "next" if self.arrived is None else "sent" if self.arrived else "waits to be sent"
        return "\n".join([f"{moment(self.at)}, {how}:", *(f"  {report}" for report in self.reports or ("no report",))])


@dataclass(frozen=True, slots=True)
class SurveyReports:
    """The reports of one survey. `str()` says it in plain words.

    id: the survey's, in hex. question: the survey's. told: what was answered, by entry and time. coming: what each
    entry answers next; empty once the survey is over.
    """

    id: str
    question: str
    told: tuple[Told, ...]
    coming: tuple[Told, ...]

    def __str__(self) -> str:
        return "\n".join([f"Reports on: {shown(self.question)}", *map(str, self.told), *map(str, self.coming)])


@reading
def reports(device: Device) -> tuple[SurveyReports, ...]:
    """The reports of each survey that the device takes part in. One that cannot be read is left out."""
    if not device.consent:
        return ()
    with device.store.transaction() as db:
        readable = [(known, survey) for known in entries.find_surveys(db, Status.JOINED) if (survey := known.readable)]
        return tuple(_reports(device, db, known, survey) for known, survey in readable)


def _reports(device: Device, db: StoreConnection, known: Known, survey: Survey) -> SurveyReports:
    kept = entries.load_all(db, device.store.wrapping, known.id)
    lead_ms = known_time(db, known.url).lead_ms
    told = tuple(
        Told(entry.number, _at(survey, period), arrived, tuple(_told(survey, report) for report in sent))
        for entry in kept
        for period, arrived, sent in outbox.sent(db, device.store.wrapping, entry)
    )
    coming = (_next(device, db, survey, entry, lead_ms) for entry in kept)
    return SurveyReports(known.id.hex(), survey.title, told, tuple(each for each in coming if each is not None))


def _next(device: Device, db: StoreConnection, survey: Survey, entry: Entry, lead_ms: int) -> Told | None:
    due_ms = next_due_ms(survey, entry)
    if due_ms is None:
        return None
    period, *_ = closings(survey.plan, entry.answered, survey.plan.last_closing)
    drawn = entries.drawn_nodes(db, device.store.wrapping, entry)
    due = datetime.fromtimestamp((due_ms + lead_ms) // 1000, UTC)
    ending = (
        (number, track, node)
        for number, track in survey.plan.numbered(entry.group)
        if (node := track.ending_at(period)) is not None and (track.reported is None or (number, node) in drawn)
    )
    return Told(entry.number, due, None, tuple(_possible(survey, *each) for each in ending))


def _told(survey: Survey, report: Report) -> ReportInWords:
    return _about(survey, survey.plan.tracks[report.track], report.node, said(survey, report))


def _possible(survey: Survey, number: TrackNumber, track: Track, node: NodeNumber) -> ReportInWords:
    choices = track.randomizer.symbols
    examples = [said(survey, Report(number, node, symbol)) for symbol in range(min(choices, MOST_EXAMPLES))]
    more = f"” … ({choices:,} in all)" if choices > len(examples) else "”"
    return _about(survey, track, node, f"one of “{'”, “'.join(examples)}{more}", choices)


def _about(survey: Survey, track: Track, number: NodeNumber, says: str, choices: int = 1) -> ReportInWords:
    node, known = track.node(number), truthfulness(track.randomizer)
    since, until = _at(survey, node.start), _at(survey, node.end)
    return ReportInWords(since, until, known.changes, known.truth, known.luck, says, choices)


def _at(survey: Survey, period: int) -> datetime:
    return datetime.fromtimestamp(survey.calendar.time(period), UTC)
