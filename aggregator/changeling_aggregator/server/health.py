"""A server's health: what is wrong with it, by name, and its figures for Prometheus, on an address of their own.

Troubles are read from memory and the file system alone, so that asking costs nothing and works while the store does
not. No figure here is for the public: counts move with single uploads, which is more than the padding of messages lets
anybody else see. So they are of all surveys together; of a survey there stands what its calendar says.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from ipaddress import ip_address
from socket import gethostname
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import prometheus_client as prometheus
from changeling_protocol import DURATION_UNITS, SealingKey, UnixSeconds, __version__
from msgspec import Struct
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from ..fold import MOST_RETENTION_SECONDS
from ..ingest import Registry
from ..store import IN_CLEAR, STORE_FAILURES, StoredSurvey, View
from .http import UNNAMED_PROXY, turned_down_so_far
from .service import Service

MOST_FAILURES = 3
"""So many failures of the fold in a row are more than a busy disk."""
MOST_UNFOLDED_SECONDS = 60.0
"""A fold that runs elsewhere and keeps up reaches the log's end within seconds."""
WARNING_SECONDS = 14 * 86_400
WARNING_SHARE = 10
"""Before the last key expires operators are warned, for so long or this part of its life, whichever is shorter."""


class Severity(StrEnum):
    """How bad a trouble is."""

    OK = "ok"
    """Only to be known."""
    DEGRADED = "degraded"
    """Uploads are taken and counted; somebody has to look."""
    BAD = "bad"
    """Uploads are turned away, lost, or not counted."""


class Trouble(Struct, frozen=True, forbid_unknown_fields=True):
    """Something wrong. name: for machines. detail: a sentence for people."""

    name: str
    severity: Severity
    detail: str


def troubles_of(service: Service) -> list[Trouble]:
    """All that is wrong with a server now, the worst first."""
    troubles = [
        *_of_the_process(service),
        *_of_the_store(service),
        *_of_the_surveys(service),
        *troubles_of_keys(service.registry, service.clock()),
    ]
    return sorted(troubles, key=lambda trouble: [*Severity].index(trouble.severity), reverse=True)


def status_of(troubles: Iterable[Trouble]) -> Severity:
    """The severity of the worst of them."""
    return max((trouble.severity for trouble in troubles), key=[*Severity].index, default=Severity.OK)


def covered_until(keys: Iterable[SealingKey], now: UnixSeconds) -> SealingKey | None:
    """The last of the keys that follow the one valid now without a gap; None where none is valid.

    now: Unix seconds.
    """
    last = None
    for key in sorted(keys, key=lambda key: key.begins):
        if key.expires >= now and key.begins <= (now if last is None else last.expires):
            last = key
    return last


def _of_the_process(service: Service) -> Iterator[Trouble]:
    if not service.folding.running:
        yield Trouble("fold", Severity.BAD, "the thread that folds has died")
    elif service.folding.failures >= MOST_FAILURES:
        yield Trouble("fold", Severity.BAD, "the fold fails: the log says why")
    elif not service.folding.folds and service.folding.age > MOST_UNFOLDED_SECONDS:
        detail = f"this server does not fold, and for {service.folding.age:.0f}s no other process has folded all"
        yield Trouble("fold", Severity.DEGRADED, detail)
    if trouble := service.committer.trouble:
        yield Trouble("uploads", Severity.BAD, trouble)
    if service.traffic.unnamed_proxy:
        yield Trouble("proxy", Severity.OK, UNNAMED_PROXY)
    if (clock := service.guarded_clock) and (doubt := clock.doubt):
        yield Trouble("clock", Severity.DEGRADED, f"nothing is sealed or destroyed: {doubt.value}")


def _of_the_store(service: Service) -> Iterator[Trouble]:
    if trouble := service.store.trouble():
        yield Trouble("store", Severity.BAD, trouble)
    if service.store.at_rest == IN_CLEAR:
        yield Trouble("keys-in-clear", Severity.OK, "sealing keys lie in the store unencrypted: give it a store key")


def _of_the_surveys(service: Service) -> Iterator[Trouble]:
    for id_ in service.registry.unreadable:
        yield Trouble("survey", Severity.DEGRADED, f"survey {id_.hex()} cannot be read by this version, and is not run")
    for id_ in service.folding.uncounted:
        detail = f"uploads of survey {id_.hex()} could not be counted: the log says why"
        yield Trouble("survey", Severity.DEGRADED, detail)


def troubles_of_keys(registry: Registry, now: UnixSeconds) -> Iterator[Trouble]:
    """Where no sealing key is valid, or none will be soon, for a survey that takes answers. now: Unix seconds."""
    surveys = [each for each in registry.surveys.values() if now <= _answered_until(each)]
    if not surveys:
        return
    keys = [each.key for each in registry.keys.values()]
    last, needed = covered_until(keys, now), max(map(_answered_until, surveys))
    if last is None:
        begun = any(each.survey.calendar.start <= now for each in surveys)
        coming = min((key.begins for key in keys if key.begins > now), default=None)
        then = "none is to come" if coming is None else f"the next begins in {_shown(coming - now)}"
        detail = f"no sealing key is valid, and {then}: no device can send anything"
        yield Trouble("keys", Severity.BAD if begun else Severity.DEGRADED, detail)
    elif last.expires < needed and last.expires - now < min(
        WARNING_SECONDS, (last.expires - last.begins) / WARNING_SHARE
    ):
        detail = f"the last sealing key expires in {_shown(last.expires - now)}: publish the next"
        yield Trouble("keys", Severity.DEGRADED, detail)


def _answered_until(published: StoredSurvey) -> int:
    survey = published.survey
    return survey.calendar.time(published.last) + min(survey.grace, MOST_RETENTION_SECONDS)


def _shown(seconds: float) -> str:
    """A duration in the widest unit of which it has two or more."""
    unit = next((unit for unit, length in DURATION_UNITS.items() if seconds >= 2 * length), "s")
    return f"{seconds // DURATION_UNITS[unit]:.0f}{unit}"


if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment


def registry_of(service: Service) -> prometheus.CollectorRegistry:
    """All that a server tells."""
    mine = turned_down_so_far, service.committer.commits, ServiceCollector(service)
    return registry_with(*service.traffic.collectors, *mine)


def registry_with(*collectors: Collector) -> prometheus.CollectorRegistry:
    """A registry of these collectors, with the process and its version."""
    prometheus.disable_created_metrics()  # type: ignore[no-untyped-call]  # when a counter began helps nobody
    registry = prometheus.CollectorRegistry()
    prometheus.ProcessCollector(registry=registry)
    prometheus.Info("changeling", "The version that runs.", registry=registry).info({"version": __version__})
    for collector in collectors:
        registry.register(collector)
    return registry


@contextmanager
def telling(registry: prometheus.CollectorRegistry, host: str, port: int) -> Iterator[int]:
    """Answer Prometheus on this address for as long as the context lasts; gives the port. Raises OSError."""
    try:
        server, thread = prometheus.start_http_server(port, host, registry)
    except OSError as error:
        raise OSError(f"cannot listen on {host}, port {port}, for metrics: {error.strerror}") from error
    server.set_app(_for_own_hosts(prometheus.make_wsgi_app(registry), host))
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _for_own_hosts(app: "WSGIApplication", host: str) -> "WSGIApplication":
    """The application, to whom asks for this machine: by an address, or by one of its names.

    A page in an operator's browser could else read the figures, by a name of its own that leads to this address.
    """
    own = {"localhost", host.lower(), gethostname().lower()}

    def answer(environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        if _named_in(environ.get("HTTP_HOST", "")) in own:
            return app(environ, start_response)
        start_response("421 Misdirected Request", [("content-type", "text/plain")])
        return [b"ask by this machine's address or name\n"]

    return answer


def _named_in(header: str) -> str:
    """The host of a header `Host`, without a port; "localhost" for an address, and empty where it is none."""
    host = ""
    with suppress(ValueError):
        host = urlsplit(f"//{header}").hostname or ""
        ip_address(host)
        return "localhost"
    return host


class ServiceCollector(Collector):
    """Figures that are looked up when they are asked for, in memory and in the store."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def describe(self) -> Iterable[Metric]:
        """Nothing, so that registering this asks no store."""
        return []

    def collect(self) -> Iterable[Metric]:
        """All figures; the store's figures are left out while it cannot be read."""
        yield from _process_figures(self._service)
        try:
            with self._service.store.view() as view:
                figures = [*_store_figures(self._service, view)]
        except STORE_FAILURES:
            figures = []
        yield GaugeMetricFamily("changeling_store_readable", "1 while the store can be read.", len(figures) > 0)
        yield from figures


def _process_figures(service: Service) -> Iterator[Metric]:
    trouble = GaugeMetricFamily(
        "changeling_trouble", "What is wrong, as /readyz tells it: 0 to be known, 1 degraded, 2 bad.", labels=["name"]
    )
    worst: dict[str, int] = {}
    for each in troubles_of(service):
        worst[each.name] = max(worst.get(each.name, 0), [*Severity].index(each.severity))
    for name, severity in worst.items():
        trouble.add_metric([name], severity)
    yield trouble
    folding, now = service.folding, service.clock()
    yield GaugeMetricFamily("changeling_fold_age_seconds", "Since this process last folded to the end.", folding.age)
    yield GaugeMetricFamily("changeling_fold_failures", "How often in a row folding has failed.", folding.failures)
    committer = service.committer
    yield GaugeMetricFamily("changeling_store_most_bytes", "With more no upload is taken.", committer.most_store_bytes)
    yield GaugeMetricFamily("changeling_unfolded_most", "With more uncounted none is.", committer.most_unfolded)
    if (free := committer.free_bytes()) is not None:
        yield GaugeMetricFamily("changeling_disk_free_bytes", "What the disk of uploads has free.", free)
    last = covered_until((each.key for each in service.registry.keys.values()), now)
    ends = 0 if last is None else last.expires
    yield GaugeMetricFamily("changeling_keys_end_seconds", "Unix time of the last key's end; 0 without a key.", ends)
    survey = GaugeMetricFamily("changeling_survey_end_seconds", "Unix time of its last period.", labels=["survey"])
    for id_, published in service.registry.surveys.items():
        survey.add_metric([id_.hex()], published.survey.calendar.time(published.last))
    yield survey


def _store_figures(service: Service, view: View) -> Iterator[Metric]:
    log = view.log_state()
    kept, now = service.store.bytes_kept(log), service.clock()
    yield GaugeMetricFamily("changeling_store_bytes", "What the store keeps, segments too.", kept)
    appended, first, size = log.folded + log.unfolded, log.first_unfolded, log.segment_bytes
    yield CounterMetricFamily("changeling_appended", "What was ever appended, by all servers.", appended)
    yield GaugeMetricFamily("changeling_unfolded", "What of the log the fold has not counted.", log.unfolded)
    yield GaugeMetricFamily("changeling_segments_bytes", "What the segments in the catalogue take.", size)
    yield GaugeMetricFamily("changeling_segments", "How many segments the catalogue has.", log.segments)
    lag = 0.0 if first is None else max(0.0, now - first / 1000)
    yield GaugeMetricFamily("changeling_fold_lag_seconds", "How long the first of that has waited.", lag)
    refused = CounterMetricFamily("changeling_refused", "What was refused, by all servers.", labels=["reason"])
    for reason, count in view.refusals().items():
        refused.add_metric([reason.value], count)
    yield refused
