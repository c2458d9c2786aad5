"""The server that a fleet is to load: whether it may be, the key to seal to, its time, and what it has counted."""

from email.utils import parsedate_to_datetime
from typing import Any, Self
from urllib.parse import urlsplit

import httpx
from changeling_protocol import MalformedBytes, SealingKey, Survey, UnixSeconds
from changeling_protocol.wire import (
    FOLD,
    KEYS,
    MSGPACK,
    SERIES,
    STATUS,
    ErrorAnswer,
    decode_key_list,
    is_loopback,
    survey_path,
)

TIMEOUT_SECONDS = 600
"""A fold to the log's end is answered once it is there."""


class Server:
    """A server, asked as an operator asks it; use as a context.

    url: its base URL. token: of an operator, with the scopes read and fold; None for what is open to all.
    transport: instead of a connection, for tests. Raises ValueError for a token that would go over plain HTTP.
    """

    def __init__(self, url: str, token: str | None = None, transport: httpx.BaseTransport | None = None) -> None:
        self._here = is_loopback(urlsplit(url).hostname or "")
        self._secure = urlsplit(url).scheme == "https"
        if token is not None and not (self._secure or self._here):
            raise ValueError(f"{url} would be sent a token that anybody on the way can read: use https")
        self.url, self.token = url, token
        headers = {"authorization": f"Bearer {token}"} if token else {}
        self._http = httpx.Client(base_url=url, headers=headers, timeout=TIMEOUT_SECONDS, transport=transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def admit(self, survey: Survey, *, i_run_it: bool) -> None:
        """Pass where this server may be sent a fleet's envelopes: it is the user's own, and nobody answered there.

        i_run_it: whether the user says that it is. Raises ValueError, which says what is missing.
        """
        if not self._here and not i_run_it:
            raise ValueError(
                f"{self.url} is another machine: a fleet is load, and made-up answers; if the server is yours, say "
                "--i-run-this-server"
            )
        self.published(survey.id.hex())
        status = self.status(survey.id.hex())
        if not self._here and "refused" not in status:
            raise ValueError(
                "beyond this machine a server is sent a fleet only by who operates it: show a token with the scopes "
                "read and fold"
            )
        if any(closing["heard"] for closing in status["closings"]):
            raise ValueError(
                f"survey {survey.id.hex()} has answers already, which a fleet would spoil: sign one for the rehearsal"
            )

    def published(self, survey: str) -> Survey:
        """The survey as it is published there. survey: its id, in hex. Raises ValueError where it is not."""
        answer = self._http.get(survey_path(survey), headers={"accept": MSGPACK})
        if answer.status_code == httpx.codes.NOT_FOUND:
            raise ValueError(f"survey {survey} is not published on {self.url}: publish it there first")
        return Survey.unverified(_checked(answer).content)

    def key(self) -> tuple[SealingKey, UnixSeconds]:
        """The sealing key that is valid longest, and the server's time, in Unix seconds.

        Whose signature the key has does not matter for what nobody has said. Raises ValueError where none is valid.
        """
        answer = _checked(self._http.get(KEYS))
        now = UnixSeconds(parsedate_to_datetime(answer.headers["date"]).timestamp())
        keys = [SealingKey.unverified(signed) for signed in decode_key_list(answer.content)]
        valid = [key for key in keys if key.valid_at(now)]
        if not valid:
            raise ValueError(f"{self.url} has no sealing key that is valid now: sign and publish one")
        return max(valid, key=lambda key: key.expires), now

    def fold(self) -> None:
        """Have it count all that it has taken. Raises ValueError without a token for that."""
        _checked(self._http.post(FOLD))

    def status(self, survey: str) -> dict[str, Any]:
        """How far the survey is, as operators see it, or everybody. survey: its id, in hex. Raises ValueError."""
        content: dict[str, Any] = _checked(self._http.get(survey_path(survey) + STATUS)).json()
        return content

    def series(self, survey: str) -> dict[str, Any]:
        """All histograms that it shows. survey: its id, in hex. Raises ValueError."""
        content: dict[str, Any] = _checked(self._http.get(survey_path(survey) + SERIES)).json()
        return content


def _checked(answer: httpx.Response) -> httpx.Response:
    if answer.is_success:
        return answer
    try:
        detail = ErrorAnswer.decode(answer.content).detail
    except MalformedBytes:
        detail = f"it answers {answer.status_code}"
    raise ValueError(f"{answer.request.method} {answer.request.url}: {detail}")
