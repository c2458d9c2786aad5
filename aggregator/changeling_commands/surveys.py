"""`changeling survey`: write it, sign it, publish it, look at it, make code of it, go on from it, end it; its cost."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from math import inf, isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from changeling_aggregator.cli import TokenFile, console, put, read_private_key, read_public_key, token_in
from changeling_protocol import (
    BadSignature,
    EarlyEnd,
    Group,
    MalformedBytes,
    Survey,
    Track,
    format_duration,
    format_instant,
    group_cost,
    rounded_up,
    track_cost,
)
from changeling_protocol.wire import END, survey_path
from changeling_statistics import (
    check_successor,
    constraint_in_words,
    next_calendar,
    offsets,
    parse_count,
    parse_epsilon,
    read_survey,
    total_cost,
    write_survey,
)
from rich.table import Table

from .questionnaires import planned_questions, refuse_hopeless_questions
from .settling import breakdowns_in_words, devices_in_words, planning_bar, settled, three_digits, when_shown
from .survey_code import survey_module
from .wishes import WishOptions, ask_to_overwrite, taking

if TYPE_CHECKING:
    from changeling_statistics import Option


def cost_table(survey: Survey) -> Table:
    """The most that each track, or joint group, can cost an entry, and the dearest group; odds are of one report."""
    table = Table(title="What the plan can cost an entry", show_footer=True)
    table.add_column("track", footer="an entry, at most", justify="right")
    table.add_column("reports on", footer="")
    table.add_column("nodes", justify="right")
    table.add_column("width", justify="right")
    table.add_column("largest odds", justify="right")
    table.add_column("epsilon", justify="right", footer=f"{rounded_up(survey.cost):.4f}")
    for number, group in enumerate(survey.plan.groups):
        for track_number, track in survey.plan.numbered(number):
            losses = track.randomizer.losses
            table.add_row(
                str(track_number),
                "changes" if track.reports_changes else "states",
                str(track.count),
                format_duration(track.width * survey.calendar.period),
                f"{float(max(losses.mutations, losses.appears, losses.vanishes).exp()):.6g} : 1",
                _charge(survey, group, track),
            )
    return table


def total_table(surveys: Sequence[Survey]) -> Table:
    """The cost of successive surveys to a person who takes part in all of them, each and together, and per week."""
    total, weekly = total_cost(surveys)
    table = Table(title="What a person can lose in all, with one entry in each", show_footer=True)
    table.add_column("survey", footer="together, at most", no_wrap=True)
    table.add_column("from")
    table.add_column("to")
    table.add_column("epsilon", justify="right", footer=f"{total}")
    table.add_column("a week, on average", justify="right", footer=f"{weekly}")
    for survey in surveys:
        calendar = survey.calendar
        ends = format_instant(calendar.start), format_instant(calendar.time(calendar.periods))
        table.add_row(survey.id.hex(), *ends, f"{survey.epsilon}", f"{survey.per_week}")
    return table


def _charge(survey: Survey, group: Group, track: Track) -> str:
    """The cost of a track; of a joint group, which costs its odds whole, it stands at the first track."""
    circumstances = survey.calendar, survey.constraints, survey.closed
    if group.joint is None:
        return f"{rounded_up(track_cost(track, *circumstances)):.4f}"
    return f"{rounded_up(group_cost(group, *circumstances)):.4f} jointly" if track is group.tracks[0] else ""


def warn_of_unreached(survey: Survey) -> None:
    """Print how many periods no node of the plan ends with, as where a calendar was lengthened and its plan was not."""
    periods = survey.calendar.periods
    for place, question in enumerate(survey.questions):
        tracks = (track for track in survey.plan.tracks if track.question == place)
        if missing := periods - len({node.end for track in tracks for node in track.nodes()}):
            about = f" about {question.name}" if len(survey.questions) > 1 else ""
            typer.echo(
                f"warning: no node{about} ends with {missing} of the {periods} periods: nothing is shown of them"
            )


POINT = 0.01
MANY_DEVICES = 10_000_000
"""More devices than nearly any survey has; asked of one that is published by whoever does not say how many it has."""


def expected_of(survey: Survey, devices: int) -> "Option | None":
    """The survey's own plan with what is predicted for so many devices; None where it has too many periods for that.

    Of several questions it is the one whose error is largest.
    """
    from changeling_statistics import MOST_PLANNED_PERIODS, Option, predict

    if survey.calendar.periods > MOST_PLANNED_PERIODS:
        return None
    views = (survey.about(question) for question in range(len(survey.questions)))
    options = (Option("the survey's own", "", view, predict(view, devices)) for view in views)
    return max(options, key=lambda option: option.prediction.mean)


def _signed_in(file: Path) -> bytes:
    """The bytes of a signed survey. Raises BadSignature for a draft."""
    content = file.read_bytes()
    try:
        Survey.unverified(content)
    except MalformedBytes as error:
        raise BadSignature(f"{file} is not signed: sign it with `changeling survey sign`") from error
    return content


def ask_if_hopeless(survey: Survey, devices: int) -> None:
    """Ask whether to publish a survey of which so many devices would show nothing.

    Raises ValueError for a no, and where nobody is there to answer.
    """
    option = expected_of(survey, devices)
    if option is None or not option.hopeless:
        return
    console().print(expectation_table(option))
    refusal = f"of {devices:,} devices this survey would show nothing: --yes publishes it all the same"
    if not sys.stdin.isatty():
        raise ValueError(refusal)
    try:
        agreed = typer.confirm(f"{devices:,} devices would show nothing. Publish it all the same?")
    except typer.Abort:
        agreed = False
    if not agreed:
        raise ValueError("not published")


def expectation_table(option: "Option", points: float = 1.0) -> Table:
    """How accurate a survey will be, when its figures are shown, and what it costs.

    points: the standard error that devices are counted for, in percentage points.
    """
    survey, prediction = option.survey, option.prediction
    table = Table(title=f"What it will show of {prediction.devices:,} devices", show_header=False, title_justify="left")
    table.add_column()
    table.add_column()
    table.add_row("standard error of a share, online", _error(prediction.mean, prediction.devices))
    table.add_row("in its worst period", _error(prediction.worst, prediction.devices))
    needed = prediction.devices_for(points * POINT) if prediction.mean < inf else inf
    table.add_row(
        f"devices for an error of {points:g} point{'s' * (points != 1)}",
        devices_in_words(needed),
    )
    table.add_row("first figures", _first(option))
    fewest = option.least_reports(prediction.devices)
    table.add_row("shown, for good", when_shown(survey, fewest))
    table.add_row(
        "shown at all", f"what {survey.minimum} devices reported, or more; the fewest expected are {fewest:,.0f}"
    )
    for row in breakdowns_in_words(survey, prediction.devices):
        table.add_row(*row)
    table.add_row("epsilon for life", f"{survey.epsilon}")
    table.add_row("epsilon a week, on average", f"{survey.per_week}")
    return table


def _first(option: "Option") -> str:
    errors = option.prediction.errors
    period = next((number for number, error in enumerate(errors.tolist(), 1) if isfinite(error)), None)
    if period is None:
        return "none: no nodes of the plan connect a period with the start"
    when = format_instant(option.survey.calendar.time(period))
    return f"of period {period}, which closes at {when}, {100 * errors[period - 1]:.3g} points"


def _error(error: float, devices: int) -> str:
    if not isfinite(error):
        return "there is no estimate of some periods"
    return f"{100 * error:.3g} points, or {three_digits(error * devices):,} devices"


app = typer.Typer(help="Write, sign, publish and show surveys.", no_args_is_help=True)


Output = Annotated[Path, typer.Option("--output", "-o", help="File to write.")]


def new(
    options: WishOptions,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="File to write.")],
    points: Annotated[float, typer.Option(metavar="X", help="Say how many devices it takes for this error.")] = 1.0,
) -> None:
    """Write a survey as readable JSON, with the plan that shows most, and print what it will show and cost.

    Nothing is signed yet: read the file, then use `changeling survey sign`. `changeling-sim plan` shows the plan beside
    others.
    """
    if not points > 0:
        raise ValueError(f"a standard error to reach is above 0 points, got {points}")
    if options.questions is None and not options.question:
        raise ValueError("say what is asked: --question and --answers, or a file of --questions")
    ask_to_overwrite(output)
    if options.questions is not None or options.ask_freezing:
        planned = planned_questions(console(), options, points)
        refuse_hopeless_questions(planned, options.anyway)
        survey = options.handled(planned.survey)
    else:
        survey = _of_alike_questions(options, points)
    write_survey(output, survey)
    typer.echo(f"wrote {output}; not signed yet")


def _of_alike_questions(options: WishOptions, points: float) -> Survey:
    """The survey of one question, or of several with the same answers; what it will show is printed."""
    from changeling_statistics import optimal_plan, plan_in_words

    asked = settled(console(), options)
    wish, planned = asked.wish, asked.planned
    if planned is None:
        with planning_bar() as progress:
            planned = optimal_plan(wish, progress)
    survey = asked.survey(planned.option.survey)
    option = replace(planned.option, survey=survey)
    typer.echo(f"The plan: {plan_in_words(planned)}.")
    console().print(expectation_table(option, points))
    if wish.questions == 1:
        typer.echo(planned.distance.words)
    asked.say(console(), option, planned)
    asked.refuse_hopeless(option)
    if option.least_reports(wish.devices) < survey.minimum:
        typer.echo("warning: some of its nodes will have fewer reports than are shown: choose a smaller --minimum")
    return survey


app.command()(taking(WishOptions, new))


@app.command()
def sign(
    file: Annotated[Path, typer.Argument(help="A survey that `survey new` wrote.")],
    key: Annotated[Path, typer.Option(help="The authority's private key.")],
    output: Output,
) -> None:
    """Sign a survey, which fixes it and gives it its id."""
    ask_to_overwrite(output)
    survey = read_survey(file)
    output.write_bytes(survey.signed_by(read_private_key(key)))
    warn_of_unreached(survey)
    typer.echo(f"wrote {output}, survey {survey.id.hex()}")


@app.command()
def publish(
    file: Annotated[Path, typer.Argument(help="A signed survey.")],
    server: Annotated[str, typer.Option(help="The server's URL.")],
    token_file: TokenFile = None,
    public: Annotated[
        bool | None, typer.Option(help="Whether its results are open to all, or ask for a token, as they do at first.")
    ] = None,
    devices: Annotated[
        str | None, typer.Option(help="How many are expected to answer: 20000, 1e6.", show_default="ten million")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Publish it also if it would show nothing.")] = False,
) -> None:
    """Publish a signed survey. Doing so again changes nothing but who may read its results, if that is said.

    If so many devices would show nothing, it asks first.
    """
    survey, signed = read_survey(file), _signed_in(file)
    if not yes:
        ask_if_hopeless(survey, MANY_DEVICES if devices is None else parse_count(devices))
    query = {} if public is None else {"public": str(public).lower()}
    added = put(server, survey_path(survey.id.hex()), signed, token_in(token_file), **query)
    typer.echo(f"survey {survey.id.hex()} {'is published' if added else 'was published before'}")


@app.command()
def close(
    file: Annotated[Path, typer.Argument(help="A survey, signed or not, that is published.")],
    after: Annotated[int, typer.Option(help="The number of the last period that counts.")],
    key: Annotated[Path, typer.Option(help="The authority's private key.")],
    server: Annotated[str, typer.Option(help="The server's URL.")],
    token_file: TokenFile = None,
) -> None:
    """End a survey before its calendar does. The end is signed and published; it cannot be changed.

    Devices answer on until the calendar's end, and are refused. All that costs them no more than the survey states.
    """
    survey = read_survey(file)
    if not 1 <= after < survey.calendar.periods:
        raise ValueError(f"a survey is ended early after period 1 to {survey.calendar.periods - 1}, got {after}")
    signed = EarlyEnd(survey.id, after).signed_by(read_private_key(key))
    added = put(server, survey_path(survey.id.hex()) + END, signed, token_in(token_file))
    when = format_instant(survey.calendar.time(after))
    typer.echo(f"survey {survey.id.hex()} {'is' if added else 'was before'} ended with period {after}, at {when}")


@app.command()
def show(file: Annotated[Path, typer.Argument(help="A survey, signed or not.")]) -> None:
    """Print a survey and what it costs an entry. The signature is not checked."""
    survey = read_survey(file)
    calendar = survey.calendar
    for question in survey.questions:
        typer.echo(f"{question.text}  ({', '.join(question.answers)}); {constraint_in_words(question.constraint)}")
    typer.echo(f"id        {survey.id.hex()}")
    typer.echo(
        f"calendar  {calendar.periods} periods of {format_duration(calendar.period)} from "
        f"{format_instant(calendar.start)} to {format_instant(calendar.time(calendar.periods))}"
    )
    typer.echo(f"minimum   {survey.minimum} reports; grace {format_duration(survey.grace)}")
    typer.echo(f"epsilon   {survey.epsilon}")
    warn_of_unreached(survey)
    console().print(cost_table(survey))


@app.command()
def code(
    file: Annotated[Path, typer.Argument(help="A signed survey.")],
    authority: Annotated[
        list[Path], typer.Option(help="Public key that apps pin, which signed it; again for the next one.")
    ],
    output: Output,
) -> None:
    """Write a signed survey as a typed Python module: its id, its answers as an enum, and the authority's keys.

    With it a misspelt answer is a type error. The signature must be of one of the keys.
    """
    ask_to_overwrite(output)
    keys = [read_public_key(key) for key in authority]
    survey = read_survey(file)
    try:
        Survey.from_signed(file.read_bytes(), keys)
    except (BadSignature, MalformedBytes) as error:  # a draft is no signed object
        raise BadSignature(f"{file} is signed by none of these keys: sign it with `changeling survey sign`") from error
    output.write_text(survey_module(survey, keys), encoding="utf-8")
    typer.echo(f"wrote {output}, survey {survey.id.hex()}")


@app.command()
def extend(
    files: Annotated[
        list[Path], typer.Argument(help="The surveys so far, signed or not, in order; it goes on from the last.")
    ],
    output: Output,
    periods: Annotated[int | None, typer.Option(help="How many periods there are; as many as before.")] = None,
    plan: Annotated[
        Path | None,
        typer.Option(help="A survey that `changeling-sim plan` wrote: its plan, length and constraint are taken."),
    ] = None,
    epsilon: Annotated[
        str | None, typer.Option(help="Plan anew, as `survey new` does, so that an entry loses at most so much.")
    ] = None,
    devices: Annotated[str | None, typer.Option(help="With --epsilon: how many are expected to answer.")] = None,
) -> None:
    """Write the successor of a survey, with a budget of its own, and print what all of them cost a person.

    Question, answers, breakdowns and all else are those of the survey before, and so is the plan unless another is
    asked for. Nothing is signed yet.
    """
    ask_to_overwrite(output)
    before = [read_survey(file) for file in files]
    offsets(before)
    last = before[-1]
    if plan is not None and epsilon is not None:
        raise ValueError("choose one of --plan and --epsilon")
    if (epsilon is None) != (devices is None):
        raise ValueError("--epsilon and --devices go together")
    if plan is not None:
        survey = _with_plan(last, read_survey(plan), periods)
    elif epsilon is not None and devices is not None:
        length = last.calendar.periods if periods is None else periods
        survey = _planned_anew(last, length, epsilon, devices)
    elif periods not in (None, last.calendar.periods):
        raise ValueError(
            f"the plan is made for {last.calendar.periods} periods: for {periods} give --plan, "
            "or --epsilon and --devices"
        )
    else:
        survey = replace(last, calendar=next_calendar(last, last.calendar.periods), follows=last.id)
    check_successor(last, survey)
    write_survey(output, survey)
    console().print(cost_table(survey))
    console().print(total_table([*before, survey]))
    typer.echo(f"wrote {output}, which follows survey {last.id.hex()}; not signed yet")


def _with_plan(last: Survey, planned: Survey, periods: int | None) -> Survey:
    """The successor that takes from `planned` what the planner decides, and its cost."""
    if planned.calendar.period != last.calendar.period:
        raise ValueError(
            f"the plan is made for periods of {planned.calendar.period} s, the survey has {last.calendar.period} s"
        )
    if periods not in (None, planned.calendar.periods):
        raise ValueError(f"the plan is made for {planned.calendar.periods} periods, got {periods}")
    return replace(
        last,
        questions=(replace(last.only, constraint=planned.constraint, expected=planned.expected),),
        calendar=next_calendar(last, planned.calendar.periods),
        plan=planned.plan,
        epsilon_micro=planned.epsilon_micro,
        closed=planned.closed,
        follows=last.id,
    )


def _planned_anew(last: Survey, periods: int, epsilon: str, devices: str) -> Survey:
    """The successor with the best plan for a budget and so many devices, who change as often as before."""
    from changeling_statistics import Wish, optimal_plan

    wish = Wish(
        answers=len(last.answers),
        calendar=next_calendar(last, periods),
        constraint=last.constraint,
        epsilon=parse_epsilon(epsilon),
        devices=parse_count(devices),
        closed=last.closed,
        expected=last.expected,
        minimum=last.minimum,
    )
    return _with_plan(last, wish.survey(optimal_plan(wish).plan), None)


@app.command()
def notice(file: Annotated[Path, typer.Argument(metavar="SURVEY", help="A survey, signed or not.")]) -> None:
    """Print a paragraph for the privacy notice of an app that asks the survey. The signature is not checked."""
    from changeling_client import privacy_notice

    typer.echo(privacy_notice(read_survey(file)))
