"""Measures 9 and 16 of a server: one network at its limit with garbage, and a plan for many devices in a store.

9: one network sends as much as it is let, in bodies of every size, of envelopes that are sealed to nobody; meanwhile
devices of other networks send one each, and wait until it is counted; and the same on a machine whose processors others
keep busy. 16: the store is given the settings that
`changeling-sim capacity` plans for 10⁸ devices, and what comes in the busiest hour, of which nothing is folded.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from threading import Event

import httpx
from changeling_aggregator.errors import Overloaded
from changeling_aggregator.ingest import Committer
from changeling_aggregator.store import Store
from changeling_aggregator.testing.killing import prepared_log, sealed_upload
from changeling_aggregator.testing.serving import RunningServer, SurveyLog
from changeling_protocol import AtMost, Calendar, SurveyId, UnixMilliseconds, UnixSeconds
from changeling_protocol.wire import MOST_ENVELOPES_TAKEN, UPLOADS, encode_upload_request
from changeling_simulations import paper_survey
from changeling_simulations.capacity import ServerDesign, demanded, sized

HONEST, APART_SECONDS = 30, 1.0
"""So many honest uploads, begun so far apart."""
GREEDY, MINUTE = (MOST_ENVELOPES_TAKEN, 512, 32, 1), 60.0
"""The envelopes in bodies of the rude network's connections; who is not counted after a minute is not waited for."""
DEVICES, TRIED = 10**8, 2000


def measure() -> dict[str, float | None]:
    return {**garbage(), **busy(), **planned()}


def busy() -> dict[str, float | None]:
    """As `garbage`, while as many processes as there are processors compute, with no less right to them."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        return {f"{figure}_on_a_busy_machine": number for figure, number in garbage().items()}
    finally:
        for each in others:
            each.kill()
            each.wait()


def garbage() -> dict[str, float | None]:
    """Seconds until an honest upload is counted, and the share that is within a minute."""
    with tempfile.TemporaryDirectory() as folder:
        log = prepared_log(Path(folder))
        honest = [encode_upload_request([sealed_upload(log, os.urandom(16))]) for _ in range(HONEST)]
        with RunningServer(Path(folder), "--proxy", "127.0.0.1") as server, ThreadPoolExecutor(len(GREEDY)) as pool:
            stop = Event()
            rude = [pool.submit(_rude, server.url, log, most, stop) for most in GREEDY]
            waits = _counted(server.url, log, honest)
            stop.set()
            taken = sum(each.result() for each in rude)
        log.store.close()
    counted = [wait for wait in waits if wait <= MINUTE]
    return {
        "9_garbage_envelopes_taken": taken,
        "9_honest_counted_in_a_minute": len(counted) / HONEST,
        "9_slowest_seconds_to_be_counted": max(waits),
    }


def _rude(url: str, log: SurveyLog, most: int, stop: Event) -> int:
    """Sends until it is told to stop; how many envelopes were taken. Each has a head that is right, and no more.

    most: the envelopes of a body. What is too early is sent again when the server says, so that its limit is used up.
    """
    head, taken = sealed_upload(log, os.urandom(16)), 0
    body = encode_upload_request([head[:-64] + os.urandom(64) for _ in range(most)])
    with httpx.Client(base_url=url, headers={"x-forwarded-for": "192.0.2.1"}, timeout=100) as http:
        while not stop.is_set():
            answer = http.post(UPLOADS, content=body)
            taken += most * (answer.status_code == 200)
            stop.wait(float(answer.headers.get("retry-after", 0)))
    return taken


def _counted(url: str, log: SurveyLog, honest: list[bytes]) -> list[float]:
    """Seconds until each upload is counted, in the order of the log, as seen every twentieth of a second."""
    sent, waits, began = list[float](), list[float](), time.monotonic()
    while len(waits) < len(honest) and time.monotonic() - began < len(honest) * APART_SECONDS + MINUTE:
        if len(sent) < len(honest) and time.monotonic() >= began + len(sent) * APART_SECONDS:
            address = {"x-forwarded-for": f"198.51.{len(sent)}.1"}
            sent.append(time.monotonic())
            httpx.post(url + UPLOADS, content=honest[len(sent) - 1], headers=address, timeout=100).raise_for_status()
        with log.store.view() as view:
            nodes = view.tallies(log.survey.id).values()
        reports = sum(tally.reports for tally in nodes)
        waits += [time.monotonic() - at for at in sent[len(waits) : reports]]
        time.sleep(0.05)
    return waits + [float("inf")] * (len(honest) - len(waits))


def planned() -> dict[str, float | None]:
    """Uploads that are turned away once the busiest hour waits, by the plan's settings; and by a million requests."""
    daily = Calendar(0, "1d", 364)
    survey = replace(
        paper_survey(tuple("abcd"), daily, AtMost(4), epsilon=Decimal(8), branching=7, layers=3), grace=7 * 86_400
    )
    demand = demanded(survey, DEVICES)
    plan = sized(demand, ServerDesign.SPARK)
    hour = int(3600 * plan.peak)
    with tempfile.TemporaryDirectory() as folder:
        log = prepared_log(Path(folder))
        upload = encode_upload_request([sealed_upload(log, os.urandom(16))])
        for first in range(0, hour, 10_000):
            some = [upload] * min(10_000, hour - first)
            log.store.append(log.stream, some, UnixMilliseconds(int(1000 * time.time())))
        refused = {
            most: asyncio.run(_refused(log.store, log.survey.id, upload, plan.most_store * 2**30, most))
            for most in (plan.most_waiting, 10**6)
        }
        log.store.close()
    return {
        "16_devices": DEVICES,
        "16_waiting_requests": hour,
        "16_most_waiting": plan.most_waiting,
        "16_most_store_gib": plan.most_store,
        "16_refused": refused[plan.most_waiting],
        "16_refused_by_a_million_waiting": refused[10**6],
    }


async def _refused(store: Store, survey: SurveyId, upload: bytes, most_store: int, most_waiting: int) -> int:
    """How many of some uploads are turned away, after one that may be the first to see that all is full."""
    committer = Committer(store, lambda: UnixSeconds(time.time()), most_store, most_waiting)
    committer.start()
    answers = []
    for _ in range(TRIED):
        (answer,) = await asyncio.gather(committer.append(upload, [survey]), return_exceptions=True)
        answers.append(answer)
    committer.close()
    if others := [each for each in answers if each is not None and not isinstance(each, Overloaded)]:
        raise RuntimeError("a commit failed") from others[0]
    return sum(isinstance(each, Overloaded) for each in answers)
