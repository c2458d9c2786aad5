"""`changeling verify`: what is published of an open survey, worked out again by who need not trust the server."""

from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from reprlib import repr as shortened
from typing import Annotated

import typer
from changeling_protocol import (
    BadSignature,
    EarlyEnd,
    Edition,
    MalformedBytes,
    ResultsKey,
    Survey,
    UnixSeconds,
    edition_id,
    format_instant,
)
from changeling_protocol.wire import EDITION_FILE, EDITIONS, END, KEY_FILE, ErrorCode, survey_path
from changeling_statistics import WrongFigure, tallies_in, verify_files

from .access import TokenFile, asking, read_public_key, token_in

SURVEY_FILE, END_FILE = "survey.signed", "end.signed"
LATEST = "latest"
MOST_LINES = 40
MOST_SIGNS = 200
"""Of a name or a text in a file that should hold figures, so much is shown."""


def verify(
    survey: Annotated[str, typer.Argument(help="The survey's id; or a folder that --keep wrote.")],
    server: Annotated[str | None, typer.Option(help="The server's URL, if it is not a folder.")] = None,
    edition: Annotated[str, typer.Option(help="The edition's name; by default the newest.")] = LATEST,
    authority: Annotated[
        list[Path] | None, typer.Option(help="The survey authority's public key; again for a next one.")
    ] = None,
    keep: Annotated[Path | None, typer.Option(help="Folder to keep all that was looked at in.")] = None,
    token_file: TokenFile = None,
) -> None:
    """Work out every published figure of an open survey again, from its signed tallies, and say which differ.

    Exit status 1 where any does, or where a signature or a hash is wrong.
    """
    folder = Path(survey)
    if server is None:
        if not folder.is_dir():
            raise ValueError("name the server with --server, or a folder that --keep wrote")
        files = {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}
    else:
        files = _fetched(server, survey, edition, token_in(token_file))
    asked, pinned, wrong = None if server is None else survey, [read_public_key(each) for each in authority or ()], 0
    for line, is_wrong in _verified(files, pinned, asked, edition):
        wrong += is_wrong
        typer.echo(_printable(line))
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (keep / name).unlink(missing_ok=True)  # a link, perhaps, which is not written through
            (keep / name).write_bytes(content)
    if wrong:
        raise typer.Exit(1)


def _fetched(server: str, survey: str, edition: str, token: str | None) -> dict[str, bytes]:
    """The survey, its early end if there is one, and all files of one edition, under its own name, so that they belong
    together. Raises ValueError where the server calls the edition by another name than its own."""
    from changeling_reader import ServerAnswered

    path = survey_path(survey)
    with asking(server, token) as client:
        first = client.request("GET", f"{path}{EDITIONS}/{edition}/{EDITION_FILE}")
        name = edition_id(first.content).hex()
        place = first.headers.get("content-location", f"/{name}/") if edition == LATEST else f"/{name}/"
        if f"/{name}/" not in place:
            raise ValueError(f"the server says that edition {name} lies at {place!r}, which is not its name")
        files = {SURVEY_FILE: client.request("GET", path).content, EDITION_FILE: first.content}
        editions = {each: f"{EDITIONS}/{name}/{each}" for each in (*Edition.unverified(first.content).files, KEY_FILE)}
        for each, place in {**editions, END_FILE: END}.items():
            try:
                files[each] = client.request("GET", path + place).content
            except ServerAnswered as error:
                if error.code is not ErrorCode.NOT_FOUND:
                    raise
    return files


def _verified(
    files: Mapping[str, bytes], authority: Sequence[bytes], asked: str | None, named: str
) -> Iterator[tuple[str, bool]]:
    """Yields the findings, a line each, and whether it is wrong.

    asked: the id of the survey that it should be; None for any. named: the name of the edition, or LATEST for any.
    Raises MalformedBytes for a survey or an edition that cannot be read at all, ValueError for tallies of another plan.
    """
    for name in (SURVEY_FILE, EDITION_FILE):
        if name not in files:
            raise ValueError(f"there is no {name}: it is what everything else is verified by")
    survey, edition = Survey.unverified(files[SURVEY_FILE]), Edition.unverified(files[EDITION_FILE])
    texts = " · ".join(each.text for each in survey.asked)
    made = format_instant(UnixSeconds(edition.made))
    yield f"survey {survey.id.hex()}: {texts}", False
    yield f"revision {edition.revision} of {made}, final up to period {edition.final}", False
    yield from _others(survey, edition_id(files[EDITION_FILE]).hex(), asked, named)
    yield from _signatures(files, survey, edition, authority)
    if edition.survey != survey.id:
        yield f"the edition is of another survey, {edition.survey.hex()}", True
    yield from _early_end(files.get(END_FILE), survey, edition, authority)
    beside = (SURVEY_FILE, EDITION_FILE, KEY_FILE, END_FILE)
    shown = {name: each for name, each in files.items() if name not in beside}
    for name, hashed in edition.files.items():
        if name in shown and sha256(shown[name]).digest() != hashed:
            yield f"{name} is not the file that was signed", True
    found = verify_files(survey, edition, shown)
    if not found:
        yield f"every figure in {', '.join(sorted(shown))} follows from the tallies", False
        return
    lines = list(_lines(found))
    for line in lines[:MOST_LINES]:
        yield line, True
    if len(lines) > MOST_LINES:
        yield f"and {len(lines) - MOST_LINES} more such lines", True
    yield f"{len(found):,} figures are not what the tallies give", True


def _others(survey: Survey, name: str, asked: str | None, named: str) -> Iterator[tuple[str, bool]]:
    """A finding where the survey or the edition is another than was asked for. name: of the edition that came."""
    if asked is not None and asked.lower() != survey.id.hex():
        yield f"the survey that was asked for is another, {asked}", True
    if named != LATEST and named.lower() != name:
        yield f"this is edition {name}, and the one that was asked for is another, {named}", True


def _signatures(
    files: Mapping[str, bytes], survey: Survey, edition: Edition, authority: Sequence[bytes]
) -> Iterator[tuple[str, bool]]:
    if not authority:
        yield "signatures are not checked: give the survey authority's public key with --authority", False
        return
    try:
        Survey.from_signed(files[SURVEY_FILE], authority)
    except BadSignature:
        yield f"the authority has not signed survey {survey.id.hex()}", True
    if KEY_FILE not in files:
        yield "the authority has certified no key for the edition: it is the server's word alone", False
        return
    try:
        key = ResultsKey.from_signed(files[KEY_FILE], authority)
        Edition.from_signed(files[EDITION_FILE], [key.public])
    except (BadSignature, MalformedBytes) as error:
        yield f"the edition's signature is wrong: {error}", True
        return
    if key.valid_at(UnixSeconds(edition.made)):
        yield "the survey and the edition are signed", False
    else:
        yield "the edition was made when the key that signed it was not valid", True


def _early_end(
    signed: bytes | None, survey: Survey, edition: Edition, authority: Sequence[bytes]
) -> Iterator[tuple[str, bool]]:
    """Whether the edition ends where the survey does. One of before the end was signed shows nothing that is later."""
    if signed is None:
        if edition.last != survey.calendar.periods:
            yield f"the edition ends the survey after period {edition.last}, and nobody has signed that", True
        return
    try:
        end = EarlyEnd.from_signed(signed, authority) if authority else EarlyEnd.unverified(signed)
    except BadSignature:
        yield "the authority has not signed the survey's early end", True
        return
    if end.survey != survey.id:
        yield f"the early end is of another survey, {end.survey.hex()}", True
    later = max((period for _, period in tallies_in(survey, edition).attendance), default=0) > end.last
    if later or edition.last not in (end.last, survey.calendar.periods):
        yield f"the survey was ended after period {end.last}, and the edition goes on to {edition.last}", True
    else:
        yield f"the survey was ended early, after period {end.last}", False


def _lines(found: Sequence[WrongFigure]) -> Iterator[str]:
    """A line for each file and period, with the figures in it that differ."""
    for (file, period), some in groupby(found, key=lambda each: (each.file, each.period)):
        differing = [*some]
        first = differing[0]
        where = file if period is None else f"{file}, period {period}"
        names = _short(", ".join(dict.fromkeys(each.place.partition("[")[0] for each in differing)))
        if len(differing) == 1:
            stated, recomputed = _short(first.stated), _short(first.recomputed)
            yield f"{where}: {_short(first.place)} is {stated}, and the tallies give {recomputed}"
        else:
            yield f"{where}: {len(differing)} figures of {names}"


def _short(figure: object) -> str:
    return figure[:MOST_SIGNS] if isinstance(figure, str) else shortened(figure)


def _printable(line: str) -> str:
    """The line with control signs spelled out, as words of a server must neither end a line nor move the cursor."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in line)
