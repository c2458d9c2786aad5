"""`changeling survey code`: a survey as a typed module for the app that asks it."""

from pathlib import Path
from typing import Annotated

import typer
from changeling_protocol import BadSignature, MalformedBytes, Survey
from changeling_statistics import read_survey

from .files import read_public_key
from .survey_module import survey_module


def code(
    file: Annotated[Path, typer.Argument(help="A signed survey.")],
    authority: Annotated[
        list[Path], typer.Option(help="Public key that apps pin, which signed it; again for the next one.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write.")],
) -> None:
    """Write a signed survey as a typed Python module: its id, its answers as an enum, and the authority's keys.

    With it a misspelt answer is a type error. The signature must be of one of the keys.
    """
    keys = [read_public_key(key) for key in authority]
    survey = read_survey(file)
    try:
        Survey.from_signed(file.read_bytes(), keys)
    except (BadSignature, MalformedBytes) as error:  # a draft is no signed object
        raise BadSignature(f"{file} is signed by none of these keys: sign it with `changeling survey sign`") from error
    output.write_text(survey_module(survey, keys), encoding="utf-8")
    typer.echo(f"wrote {output}, survey {survey.id.hex()}")
