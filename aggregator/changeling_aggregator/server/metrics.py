"""Figures for Prometheus, on an address of its own, as no figure here is for the public.

Counts here move with single uploads, which is more than the padding of messages lets anybody else see: so they are of
all surveys together. Of a survey there stands what its calendar says.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from socket import AF_INET, AF_INET6, gethostname
from threading import Thread
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from wsgiref.simple_server import WSGIRequestHandler, make_server

import prometheus_client as prometheus
from changeling_protocol import __version__
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from ..store import STORE_FAILURES, View
from .operations import Severity, covered_until, troubles_of
from .responses import turned_down_so_far
from .service import Service

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment


def registry_of(service: Service) -> prometheus.CollectorRegistry:
    """All that a server tells."""
    return registry_with(service.traffic, service.committer.commits, ServiceCollector(service))


def registry_with(*collectors: Collector) -> prometheus.CollectorRegistry:
    """What these tell, with the process and its version."""
    registry = prometheus.CollectorRegistry()
    prometheus.ProcessCollector(registry=registry)
    prometheus.Info("changeling", "The version that runs.", registry=registry).info({"version": __version__})
    for collector in collectors:
        registry.register(collector)
    return registry


@contextmanager
def telling(registry: prometheus.CollectorRegistry, host: str, port: int) -> Iterator[int]:
    """Answer Prometheus on this address for as long as the context lasts; gives the port. Raises OSError."""
    app = _for_own_hosts(prometheus.make_wsgi_app(registry), host)
    kind: type[ThreadingWSGIServer] = type(
        "Server", (ThreadingWSGIServer,), {"address_family": AF_INET6 if ":" in host else AF_INET}
    )
    try:
        server = make_server(host, port, app, kind, Quiet)
    except OSError as error:
        raise OSError(f"cannot listen on {host}, port {port}, for metrics: {error.strerror}") from error
    thread = Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Quiet(WSGIRequestHandler):
    """Logs no requests."""

    def log_message(self, *_: object) -> None:
        """Nothing."""


def _for_own_hosts(app: "WSGIApplication", host: str) -> "WSGIApplication":
    """The application, to whom asks for this machine: by an address, or by one of its names.

    A page in an operator's browser could else read the figures, by a name of its own that leads to this address.
    """
    own = {"localhost", host.lower(), gethostname().lower()}

    def answer(environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        if (asked := _host_in(environ.get("HTTP_HOST", ""))) in own or _is_address(asked):
            return app(environ, start_response)
        start_response("421 Misdirected Request", [("content-type", "text/plain")])
        return [b"ask by this machine's address or name\n"]

    return answer


def _host_in(header: str) -> str:
    """The host of a header `Host`, without a port; empty where it is none."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


class ServiceCollector(Collector):
    """Figures that are looked up when they are asked for, in memory and in the store."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def describe(self) -> Iterable[Metric]:
        """Nothing, so that registering this asks no store."""
        return []

    def collect(self) -> Iterable[Metric]:
        """All figures; the store's figures are left out while it cannot be read."""
        yield from _of_the_process(self._service)
        try:
            with self._service.store.view() as view:
                figures = [*_of_the_store(view, self._service.clock())]
            kept = self._service.store.bytes_kept()
            figures.append(GaugeMetricFamily("changeling_store_bytes", "What the store keeps, segments too.", kept))
        except STORE_FAILURES:
            figures = []
        yield GaugeMetricFamily("changeling_store_readable", "1 while the store can be read.", len(figures) > 0)
        yield from figures


def _of_the_process(service: Service) -> Iterator[Metric]:
    trouble = GaugeMetricFamily(
        "changeling_trouble", "What is wrong, as /readyz tells it: 0 to be known, 1 degraded, 2 bad.", labels=["name"]
    )
    worst: dict[str, int] = {}
    for each in troubles_of(service):
        worst[each.name] = max(worst.get(each.name, 0), [*Severity].index(each.severity))
    for name, severity in worst.items():
        trouble.add_metric([name], severity)
    yield trouble
    turned_down = CounterMetricFamily("changeling_turned_down", "Requests that were turned down.", labels=["reason"])
    for reason, count in turned_down_so_far.items():
        turned_down.add_metric([reason.value], count)
    yield turned_down
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


def _of_the_store(view: View, now: float) -> Iterator[Metric]:
    yield CounterMetricFamily("changeling_appended", "What was ever appended, by all servers.", view.appended())
    yield GaugeMetricFamily("changeling_unfolded", "What of the log the fold has not counted.", view.unfolded())
    size = view.segment_bytes()
    yield GaugeMetricFamily("changeling_segments_bytes", "What the segments in the catalogue take.", size)
    yield GaugeMetricFamily("changeling_segments", "How many segments the catalogue has.", view.segment_count())
    first = view.first_unfolded()
    lag = 0.0 if first is None else max(0.0, now - first / 1000)
    yield GaugeMetricFamily("changeling_fold_lag_seconds", "How long the first of that has waited.", lag)
    refused = CounterMetricFamily("changeling_refused", "What was refused, by all servers.", labels=["reason"])
    for reason, count in view.total_refusals().items():
        refused.add_metric([reason.value], count)
    yield refused
