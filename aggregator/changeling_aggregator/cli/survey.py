"""`changeling survey`: write a survey, sign it, publish it, look at it, make code of it, go on from it, end it."""

from pathlib import Path
from typing import Annotated

import typer
from changeling_protocol import Calendar, Survey
from changeling_protocol.ending import EarlyEnd
from changeling_protocol.wire import survey_path
from changeling_protocol.wire.paths import END
from changeling_statistics.constraint_words import constraint_of, in_words
from changeling_statistics.durations import format_duration, parse_duration
from changeling_statistics.epsilons import parse_epsilon
from changeling_statistics.instants import format_instant, parse_instant
from changeling_statistics.survey_files import read_survey, write_survey

from .code import code
from .extend import extend
from .files import read_private_key
from .remote import TokenFile, put, token_in
from .tables import console, cost_table

app = typer.Typer(help="Write, sign, publish and show surveys.", no_args_is_help=True)

app.command()(extend)
app.command()(code)

Output = Annotated[Path, typer.Option("--output", "-o", help="File to write.")]


@app.command()
def new(
    question: Annotated[str, typer.Option(help="What people are asked.")],
    answers: Annotated[str, typer.Option(help="The answers, with commas between them.")],
    start: Annotated[str, typer.Option(help="When the first period begins: ISO 8601, UTC by default.")],
    period: Annotated[str, typer.Option(help="The shortest span that is reported on: 10s, 1h, 1d, 13w.")],
    epsilon: Annotated[str, typer.Option(help="What an entry may lose over the whole survey.")],
    output: Output,
    periods: Annotated[int | None, typer.Option(help="How many periods there are.")] = None,
    horizon: Annotated[str | None, typer.Option(help="How long the survey lasts, instead of --periods.")] = None,
    at_most: Annotated[
        int | None, typer.Option(help="An entry's answer changes at most so often; appearing counts.")
    ] = None,
    within: Annotated[
        str | None, typer.Option(help="An entry's changes lie within so long of its first. With --at-most: both hold.")
    ] = None,
    branching: Annotated[int, typer.Option(help="How many nodes make one of the next layer.")] = 2,
    layers: Annotated[int, typer.Option(help="Layers of the hierarchy; 1 reports single periods.")] = 1,
    skew: Annotated[str, typer.Option(help="How far a device's clock may be off.")] = "5m",
    spread: Annotated[str, typer.Option(help="Answers are spread over so long after a period's close.")] = "1h",
    grace: Annotated[str, typer.Option(help="Reports are taken for so long after a period's close.")] = "7d",
    minimum: Annotated[int, typer.Option(help="Nodes with fewer reports are not published.")] = 100,
) -> None:
    """Write a survey as readable JSON, with the paper's hierarchical plan, and print what it costs an entry.

    Nothing is signed yet: read the file, then use `changeling survey sign`.
    """
    from changeling_statistics.planning.paper import hierarchical_plan

    calendar = _calendar(start, period, periods, horizon)
    constraint = constraint_of(at_most, None if within is None else parse_duration(within))
    names = tuple(answer.strip() for answer in answers.split(","))
    plan = hierarchical_plan(
        len(names), calendar, constraint, epsilon=parse_epsilon(epsilon), branching=branching, layers=layers
    )
    survey = Survey.at_cost(
        question=question,
        answers=names,
        calendar=calendar,
        constraint=constraint,
        plan=plan,
        skew=parse_duration(skew),
        spread=parse_duration(spread),
        grace=parse_duration(grace),
        minimum=minimum,
    )
    write_survey(output, survey)
    console().print(cost_table(survey))
    typer.echo(f"wrote {output}; not signed yet")


@app.command()
def sign(
    file: Annotated[Path, typer.Argument(help="A survey that `survey new` wrote.")],
    key: Annotated[Path, typer.Option(help="The authority's private key.")],
    output: Output,
) -> None:
    """Sign a survey, which fixes it and gives it its id."""
    survey = read_survey(file)
    output.write_bytes(survey.signed_by(read_private_key(key)))
    typer.echo(f"wrote {output}, survey {survey.id.hex()}")


@app.command()
def publish(
    file: Annotated[Path, typer.Argument(help="A signed survey.")],
    server: Annotated[str, typer.Option(help="The server's URL.")],
    token_file: TokenFile = None,
    public: Annotated[
        bool | None, typer.Option(help="Whether its results are open to all, or ask for a token, as they do at first.")
    ] = None,
) -> None:
    """Publish a signed survey. Doing so again changes nothing but who may read its results, if that is said."""
    survey = read_survey(file)
    query = {} if public is None else {"public": str(public).lower()}
    added = put(server, survey_path(survey.id.hex()), file.read_bytes(), token_in(token_file), **query)
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
    typer.echo(f"{survey.question}  ({', '.join(survey.answers)})")
    typer.echo(f"id        {survey.id.hex()}")
    typer.echo(
        f"calendar  {calendar.periods} periods of {format_duration(calendar.period)} from "
        f"{format_instant(calendar.start)} to {format_instant(calendar.time(calendar.periods))}"
    )
    typer.echo(f"entries   {in_words(survey.constraint)}")
    typer.echo(f"minimum   {survey.minimum} reports; grace {format_duration(survey.grace)}")
    typer.echo(f"epsilon   {survey.epsilon}")
    console().print(cost_table(survey))


def _calendar(start: str, period: str, periods: int | None, horizon: str | None) -> Calendar:
    seconds = parse_duration(period)
    if (periods is None) == (horizon is None):
        raise ValueError("say how long the survey lasts: either --periods or --horizon")
    if horizon is not None:
        periods, rest = divmod(parse_duration(horizon), seconds)
        if rest:
            raise ValueError(f"a horizon of {horizon} is no whole number of periods of {period}")
    return Calendar(int(parse_instant(start)), seconds, periods or 0)
