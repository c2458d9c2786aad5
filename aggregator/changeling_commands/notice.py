"""`changeling survey notice`: what an app can put into its privacy notice. It is the client SDK that writes it."""

from pathlib import Path
from typing import Annotated

import typer


def notice(file: Annotated[Path, typer.Argument(help="A survey, signed or not.")]) -> None:
    """Print a paragraph for the privacy notice of an app that asks the survey. The signature is not checked."""
    from changeling_client import privacy_notice
    from changeling_statistics import read_survey

    typer.echo(privacy_notice(read_survey(file)))
