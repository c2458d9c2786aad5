"""What a development server keeps in its folder: an authority, a survey, the server's store, and the port it had."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from changeling_protocol import (
    AtMost,
    Calendar,
    Group,
    KaryResponse,
    Odds,
    ReleasePlan,
    SealingKey,
    StateSpace,
    Survey,
    Track,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from .files import read_private_key, write_private_key, write_public_key

if TYPE_CHECKING:
    from ..store import Store

PERIOD_SECONDS = 10
PERIODS = 2160
MOST_CHANGES = 1000
ODDS = Odds(1_000_000, 1)
"""Far too generous for people: one device's answer shows through."""
FLEET_ODDS = Odds(9, 1)
"""So that estimates of a simulated fleet have bands to be seen. Too generous too, as every period is reported."""
FLEET_PAST = 40
"""How many periods a simulated fleet has lived through when it begins: less than the grace allows."""
KEY_SECONDS = 10 * 365 * 86_400
"""How long a sealing key of development is good."""


def fleet_survey(answers: Sequence[str], now: float) -> Survey:
    """A survey that began FLEET_PAST periods ago, for devices that are simulated. now: Unix seconds."""
    return development_survey(answers, now - FLEET_PAST * PERIOD_SECONDS, FLEET_ODDS)


def development_survey(answers: Sequence[str], now: float, odds: Odds = ODDS) -> Survey:
    """A survey that begins with the period that holds `now`, in Unix seconds.

    A device reports its answer at the end of every period, and not its change over it: so what it says does not hang on
    periods in which nobody was there. Raises ValueError for answers that no survey has.
    """
    calendar = Calendar(int(now) // PERIOD_SECONDS * PERIOD_SECONDS, PERIOD_SECONDS, PERIODS)
    track = Track(1, KaryResponse(StateSpace(len(answers)), odds), 0, PERIODS)
    return Survey.at_cost(
        question="What do you drink? (development only)",
        answers=answers,
        calendar=calendar,
        constraint=AtMost(MOST_CHANGES),
        plan=ReleasePlan((Group((track,)),)),
        skew=1,
        spread=2,
        grace=600,
        minimum=1,
    )


def kept_authority(folder: Path) -> Ed25519PrivateKey:
    """The authority that signs in a folder, made the first time; `authority.pub` is what apps pin of it.

    Raises ValueError for a file that holds none.
    """
    file = folder / "authority.key"
    if not file.exists():
        write_private_key(file, Ed25519PrivateKey.generate())
    authority = read_private_key(file)
    write_public_key(folder / "authority.pub", authority.public_key().public_bytes_raw())
    return authority


def kept_survey(folder: Path, authority: Ed25519PrivateKey, answers: Sequence[str], now: float) -> Survey:
    """The survey made in a folder last, if it has these answers and its calendar lasts; else a new one, kept there.

    now: Unix seconds. Raises ProtocolError for a file that holds no survey of this authority, or ValueError.
    """
    file = folder / "survey.signed"
    if file.exists():
        survey = Survey.from_signed(file.read_bytes(), [authority.public_key().public_bytes_raw()])
        if survey.answers == tuple(answers) and now < survey.calendar.time(survey.calendar.periods):
            return survey
    survey = development_survey(answers, now)
    file.write_bytes(survey.signed_by(authority))
    return survey


def kept_port(folder: Path) -> int:
    """The port that the server of a folder had the last time; 0 if it had none, which takes a free one."""
    file = folder / "port"
    return int(file.read_text()) if file.exists() else 0


def keep_port(folder: Path, port: int) -> None:
    """Remembers the port, so that an app finds the server again."""
    (folder / "port").write_text(f"{port}\n")


def publish(store: "Store", authority: Ed25519PrivateKey, survey: Survey, now: float) -> None:
    """Put the survey into the server's store, and a sealing key if none is good as long as the survey is answered."""
    until = survey.calendar.time(survey.calendar.periods) + survey.grace
    with store.transaction() as writing:
        writing.add_survey(survey.id, survey.signed_by(authority), public=True)
        keys = [published.key for published in writing.published_keys().values()]
        if not any(key.begins <= now and key.expires > until for key in keys):
            begins = max([survey.calendar.start, *(key.expires for key in keys)])
            key = SealingKey(writing.make_key(), begins, until + KEY_SECONDS)
            writing.publish_key(key, key.signed_by(authority))
