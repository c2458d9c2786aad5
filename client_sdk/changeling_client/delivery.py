"""What a device asks a server for: a survey, the sealing keys, and to take envelopes. And, with each, what time it is.

Whatever goes wrong is ServerTrouble, whose words hold nothing but where the server is, a status, a survey's id or what
the operating system says of a connection. Its obstacle says what it was. A server that failed is left in peace for a
while (`patience`), and nothing that waits is dropped for it (`obstacles`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from changeling_protocol import Coins, MalformedBytes, SurveyId, UnixMilliseconds
from changeling_protocol.wire import (
    KEYS,
    UPLOADS,
    decode_acknowledgement,
    decode_key_list,
    encode_upload_request,
    survey_path,
)

from .clock import Heard, ms_of
from .errors import ServerTrouble
from .exchange import Answer, Deadline, Exchanges
from .obstacles import Obstacle
from .patience import NEVER_FAILED
from .route import Route

_Wanted = TypeVar("_Wanted")


class Server:
    """A server, or a relay that stands before it, as a device speaks with it.

    route: the way there. clock: the device's, in Unix seconds. coins: what pauses after failures are drawn from.
    """

    def __init__(self, route: Route, clock: Callable[[], float], coins: Coins) -> None:
        self._exchanges = Exchanges(route)
        self._origin = route.origin
        self._clock, self._coins = clock, coins
        self.patience = NEVER_FAILED
        """What is known of its failures. Whoever keeps it over restarts sets it at the start."""
        self.heard: Heard | None = None
        """The time that an answer told last, also if the exchange failed otherwise; whoever reads it may forget it."""

    def survey(self, survey: SurveyId, deadline: Deadline) -> bytes:
        """The signed survey that the server has under this id; nothing of it is checked. Raises ServerTrouble."""
        try:
            return self._ask("GET", survey_path(survey.hex()), None, deadline, bytes)
        except ServerTrouble as error:
            if error.obstacle is not Obstacle.NOT_HERE:
                raise
            sentence = f"{self._origin} does not know the survey {survey.hex()}: {error}"
            raise ServerTrouble(sentence, error.obstacle) from None

    def sealing_keys(self, deadline: Deadline) -> list[bytes]:
        """The server's signed sealing keys; their signatures are not checked. Raises ServerTrouble."""
        return self._ask("GET", KEYS, None, deadline, decode_key_list)

    def upload(self, envelopes: Sequence[bytes], deadline: Deadline) -> dict[int, str]:
        """Hands envelopes over, at most MOST_ENVELOPES of them.

        Returns the reasons of those that were refused, by place; all others are on the server's disk.
        Raises ServerTrouble; then any of them may have arrived.
        """
        decode = partial(decode_acknowledgement, envelopes=len(envelopes))
        return self._ask("POST", UPLOADS, encode_upload_request(envelopes), deadline, decode)

    def interrupt(self) -> None:
        """Ends the exchange that is under way in another thread, if there is one. Returns at once."""
        self._exchanges.interrupt()

    def close(self) -> None:
        """Ends the exchange under way; from now on each fails at once. Returns within a tenth of a second."""
        self._exchanges.close()

    def _ask(
        self, method: str, path: str, body: bytes | None, deadline: Deadline, decode: Callable[[bytes], _Wanted]
    ) -> _Wanted:
        asked_ms, silence_ms = self._now_ms(), 0
        if not self.patience.allows(asked_ms):
            raise ServerTrouble("the server asked to be left alone for a while", Obstacle.LEFT_ALONE)
        try:
            answer = self._exchanges.ask(method, path, body, deadline)
            date_ms = self._hear(answer, asked_ms)
            if answer.status != 200:
                silence_ms = _silence_ms(answer, asked_ms if date_ms is None else date_ms)
                raise ServerTrouble(f"the server answered with status {answer.status}", Obstacle.of(answer.status))
            try:
                wanted = decode(answer.body)
            except MalformedBytes:
                raise ServerTrouble("the server's answer cannot be read", Obstacle.UNREADABLE) from None
        except ServerTrouble as trouble:
            if trouble.obstacle.is_failure:
                self.patience = self.patience.after_failure(self._now_ms(), silence_ms, self._coins)
            raise
        self.patience = NEVER_FAILED
        return wanted

    def _hear(self, answer: Answer, asked_ms: UnixMilliseconds) -> UnixMilliseconds | None:
        """Takes in the time that an answer tells. Returns it, None if it tells none."""
        date_ms = _unix_ms(answer.headers.get("date", ""))
        if date_ms is None or _is_cached(answer):
            return None
        asked_ms = min(asked_ms, self._now_ms())  # the clock may have been set back meanwhile
        self.heard = Heard(date_ms, asked_ms)
        return date_ms

    def _now_ms(self) -> UnixMilliseconds:
        return ms_of(self._clock())


def _is_cached(answer: Answer) -> bool:
    """Whether an answer has lain somewhere for a while, so that its date is an old time."""
    return answer.headers.get("age", "0").strip("0") != ""


def _silence_ms(answer: Answer, now_ms: UnixMilliseconds) -> int:
    """For how long an answer asks not to be asked again, in milliseconds; 0 if it does not say.

    now_ms: the server's time where it told one, else the device's: what a date is measured from.
    """
    after = answer.headers.get("retry-after", "").strip()
    if after.isascii() and after.isdigit():
        return 1000 * int(after[:9])
    until_ms = _unix_ms(after)
    return 0 if until_ms is None else max(0, until_ms - now_ms)


def _unix_ms(date: str) -> UnixMilliseconds | None:
    """The Unix milliseconds of an HTTP date; None if it is none."""
    from datetime import UTC
    from email.utils import parsedate_to_datetime

    try:
        moment = parsedate_to_datetime(date)
        if moment.tzinfo is None:  # "-0000": nothing to do with the zone the device is in
            moment = moment.replace(tzinfo=UTC)
        return UnixMilliseconds(int(moment.timestamp()) * 1000)
    except (ValueError, TypeError, OverflowError):
        return None
