"""Forwarding what waits, round by round: shuffled, in full bodies, again and again until the server has it.

The server is always spoken to in the same words, whoever's envelopes are forwarded.

Time is cut into rounds of equal length, the same for every survey and never begun by an arrival. All that is known of
when an envelope came is its round. At the start of each round those of the rounds before it go, if they are enough, or
if one of them could not wait for another round. What the server refuses is counted by reason and let go of: the device
was told that the relay has it, and nothing else.
"""

import asyncio
import json
import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TypeVar
from urllib.parse import urlsplit

import httpx
from changeling_protocol import ID_BYTES, Coins, MalformedBytes, Refusal, SurveyId
from changeling_protocol.wire import (
    KEYS,
    MOST_BODY_BYTES,
    MSGPACK,
    SURVEYS,
    UPLOADS,
    decode_acknowledgement,
    decode_key_list,
    encode_upload_request,
    is_loopback,
    survey_path,
)
from starlette.concurrency import run_in_threadpool

from ..errors import UpstreamTrouble
from .files import Copy, RelaySettings, WaitingEnvelope

TIMEOUT_SECONDS = 30.0
"""A whole exchange takes no longer."""
_REASONS = {each.value: each for each in Refusal}
_HEADERS = {"user-agent": "changeling-relay", "accept": "*/*", "accept-encoding": "identity"}


class Upstream:
    """A server.

    url: its base URL, HTTPS or on loopback. token: the relay's own, shown with uploads alone; None for none. Devices
    need none for the relay, and theirs would not be passed on. Raises ValueError for a URL that will not do.
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        parts = urlsplit(url)
        local = is_loopback(parts.hostname or "")
        if parts.scheme not in ("https", "http") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"the server's URL must be like https://host/path, got {url!r}")
        if parts.scheme == "http" and not local:
            raise ValueError(f"the server's URL must be https, but on loopback, got {url!r}")
        self._url = url.rstrip("/")
        self._uploading = {"content-type": MSGPACK}
        if token is not None:
            self._uploading["authorization"] = f"Bearer {token}"
        self._http = httpx.AsyncClient(
            headers=_HEADERS,
            timeout=TIMEOUT_SECONDS,
            trust_env=not local,
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def surveys(self) -> list[SurveyId]:
        """The ids of the surveys that are published there. Raises UpstreamTrouble."""
        try:
            rows = json.loads(await self._ask("GET", SURVEYS))["surveys"]
            ids = [SurveyId(bytes.fromhex(row["id"])) for row in rows]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise UpstreamTrouble("the server's list of surveys cannot be read") from error
        return [id_ for id_ in ids if len(id_) == ID_BYTES]

    async def survey(self, survey: SurveyId) -> bytes:
        """The signed survey that it has under this id; nothing of it is checked. Raises UpstreamTrouble."""
        return await self._ask("GET", survey_path(survey.hex()))

    async def keys(self) -> list[bytes]:
        """The signed sealing keys; their signatures are not checked. Raises UpstreamTrouble."""
        try:
            return decode_key_list(await self._ask("GET", KEYS))
        except MalformedBytes as error:
            raise UpstreamTrouble("the server's list of keys cannot be read") from error

    async def upload(self, envelopes: Sequence[bytes]) -> list[Refusal | None]:
        """Hands envelopes over; returns the reason of each that was refused, None where we do not know it.

        All others are on the server's disk. Raises UpstreamTrouble; then any of them may have arrived.
        """
        answer = await self._ask("POST", UPLOADS, encode_upload_request(envelopes))
        try:
            reasons = decode_acknowledgement(answer, len(envelopes)).values()
        except MalformedBytes as error:
            raise UpstreamTrouble("the server's acknowledgement cannot be read") from error
        return [_REASONS.get(reason) for reason in reasons]

    async def _ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        headers = {} if body is None else self._uploading
        content = bytearray()
        try:
            async with (
                asyncio.timeout(TIMEOUT_SECONDS),  # httpx bounds each read, and not what they add up to
                self._http.stream(method, self._url + path, content=body, headers=headers) as response,
            ):
                if response.status_code != 200:
                    silence = response.headers.get("retry-after", "")
                    raise UpstreamTrouble(
                        f"the server answered with status {response.status_code}",
                        response.status_code,
                        int(silence[:9]) if silence.isascii() and silence.isdigit() else 0,
                    )
                async for chunk in response.aiter_raw():  # never unpacked: a few bytes could become many
                    content += chunk
                    if len(content) > MOST_BODY_BYTES:
                        raise UpstreamTrouble(f"the server's answer is longer than {MOST_BODY_BYTES} bytes")
        except (httpx.HTTPError, OSError) as error:
            raise UpstreamTrouble(f"the server could not be reached: {type(error).__name__}") from error
        return bytes(content)


_Item = TypeVar("_Item")


def shuffled(items: Iterable[_Item], coins: Coins) -> list[_Item]:
    """The items in an order that is uniform over all orders, whatever the one they come in."""
    order = list(items)
    for last in range(len(order) - 1, 0, -1):
        drawn = coins.below(last + 1)
        order[last], order[drawn] = order[drawn], order[last]
    return order


FIRST_PAUSE_SECONDS = 2.0
"""The longest pause after a first failure; after each further one it is twice as long, up to MOST_PAUSE_SECONDS."""
MOST_PAUSE_SECONDS = 300.0
MOST_SILENCE_SECONDS = 3600
"""A server that asks for more silence than this is asked again after so many seconds."""
_LOOK_SECONDS = 1.0
_log = logging.getLogger(__name__)


class Forwarding:
    """Forwards what one survey's devices sent."""

    def __init__(self, copy: Copy, upstream: Upstream, settings: RelaySettings) -> None:
        self._copy, self._upstream, self._batching = copy, upstream, settings.batching
        self._coins, self._clock = settings.coins, settings.clock
        self.failures = 0
        """The number of attempts that failed since the server last took something."""
        self.refused: Counter[Refusal | None] = Counter()
        """Counts of the envelopes that the server refused, by its reason; None for reasons that we do not know."""

    async def run(self) -> None:
        """Forward whatever is due at the start of each round, until cancelled."""
        last = self._batching.round_at(self._clock())
        while True:
            now = self._batching.round_at(self._clock())
            if now != last:
                last = now
                try:
                    await self.forward_due(now)
                except Exception:  # a disk that fails today is no reason not to try again
                    self.failures += 1
                    _log.exception("survey %s: forwarding failed and will be tried again", self._copy.survey.id.hex())
            left = self._batching.wait - self._clock() % self._batching.wait
            await asyncio.sleep(min(left, _LOOK_SECONDS))

    async def forward_due(self, now: int) -> None:
        """Forward what is due in this round; returns when the server has all of it, and networks have room again."""
        for waiting in _by_key(self._copy.spool.waiting(), now):
            at_once = self._batching.at_once(self._copy.most_bytes)
            longest = self._batching.longest(self._copy.survey)
            count = self._batching.due([each.round for each in waiting], now, longest, at_once)
            order = shuffled([each.slot for each in waiting], self._coins)[:count]
            before = self.refused.copy()
            for first in range(0, count, at_once):
                await self._forward(order[first : first + at_once])
            if refused := self.refused - before:
                reasons = ", ".join(sorted(f"{number} {reason or 'otherwise'}" for reason, number in refused.items()))
                _log.warning("survey %s: of %d the server refused %s", self._copy.survey.id.hex(), count, reasons)
        self._copy.spool.forget_shares(now)

    async def _forward(self, slots: Sequence[int]) -> None:
        """Send one body until the server has answered for it, then erase it here."""
        envelopes = await run_in_threadpool(self._copy.spool.read, slots)
        while True:
            try:
                self.refused.update(await self._upstream.upload(envelopes))
            except UpstreamTrouble as trouble:
                if trouble.status == 413 and len(slots) > 1:
                    for half in (slots[: len(slots) // 2], slots[len(slots) // 2 :]):
                        await self._forward(half)
                    return
                await asyncio.sleep(self._pause(trouble))
            else:
                self.failures = 0
                break
        await run_in_threadpool(self._copy.spool.erase, slots)

    def _pause(self, trouble: UpstreamTrouble) -> float:
        if self.failures == 0:
            _log.warning("survey %s: %s; trying on", self._copy.survey.id.hex(), trouble)
        most = min(FIRST_PAUSE_SECONDS * 2 ** min(self.failures, 20), MOST_PAUSE_SECONDS)
        self.failures += 1
        drawn = most * (1 + self._coins.below(1000) / 1000) / 2
        return float(min(trouble.silence, MOST_SILENCE_SECONDS) + drawn)


def _by_key(waiting: Sequence[WaitingEnvelope], now: int) -> list[list[WaitingEnvelope]]:
    """Group by key all that came in an earlier round, or in one that a clock set back has yet to reach."""
    groups: dict[bytes, list[WaitingEnvelope]] = defaultdict(list)
    for each in waiting:
        if each.round != now:
            groups[each.key].append(each)
    return [groups[key] for key in sorted(groups)]
