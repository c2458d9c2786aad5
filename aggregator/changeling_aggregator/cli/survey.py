"""`changeling survey`: write a survey, sign it, publish it, look at it, make code of it, go on from it, end it."""

from pathlib import Path
from typing import Annotated

import typer
from changeling_protocol import EarlyEnd
from changeling_protocol.wire import END, survey_path
from changeling_statistics import constraint_in_words, format_duration, format_instant, parse_count, read_survey

from .code import code
from .expectations import MANY_DEVICES, ask_if_hopeless
from .extend import extend
from .files import read_private_key
from .remote import TokenFile, put, token_in
from .tables import console, cost_table
from .wish import new

app = typer.Typer(help="Write, sign, publish and show surveys.", no_args_is_help=True)

app.command()(new)
app.command()(extend)
app.command()(code)

Output = Annotated[Path, typer.Option("--output", "-o", help="File to write.")]


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
    devices: Annotated[
        str | None, typer.Option(help="How many are expected to answer: 20000, 1e6.", show_default="ten million")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Publish it also if it would show nothing.")] = False,
) -> None:
    """Publish a signed survey. Doing so again changes nothing but who may read its results, if that is said.

    If so many devices would show nothing, it asks first.
    """
    survey = read_survey(file)
    if not yes:
        ask_if_hopeless(survey, MANY_DEVICES if devices is None else parse_count(devices))
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
    typer.echo(f"entries   {constraint_in_words(survey.constraint)}")
    typer.echo(f"minimum   {survey.minimum} reports; grace {format_duration(survey.grace)}")
    typer.echo(f"epsilon   {survey.epsilon}")
    console().print(cost_table(survey))
