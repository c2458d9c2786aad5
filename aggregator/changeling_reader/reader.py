"""Asking a server for what it shows, and its estimates: arrays, a tidy data frame, and a plot."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict, Unpack

import httpx
import numpy as np
from changeling_protocol.wire import CHANGE, COMPARISON, HISTOGRAM, NUMBERS, SERIES, WINDOWS, survey_path
from numpy.typing import NDArray

from .client import Parameter, ServerClient

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]


LAST_SHOWN = 12
"""So many estimates a notebook shows."""


def _figures(rows: Sequence[Mapping[str, Any]], name: str, *shape: int) -> Floats:
    """A figure of each row, of this shape; not a number where a row has none."""
    lost = np.full(shape, np.nan).tolist()
    found = [lost if row.get(name) is None else row[name] for row in rows]
    return np.array(found, np.float64).reshape(len(rows), *shape)


@dataclass(frozen=True, slots=True, eq=False)
class Estimates:
    """k estimates of one survey: histograms at ends of periods, or changes over windows of them.

    survey, question, answers: whose; z answers.
    epsilon: what the survey can cost an entry at most.
    method: online, retrospective or smoothed. biased: whether that is biased.
    confidence: the level of intervals; None if none were asked for.
    start, end: the periods that each is of, shape (k,); start is 0 for a histogram.
    times: when the last of these periods ended, UTC, shape (k,); NaT for changes.
    values: unbiased unless smoothed, never clipped, shape (k, z), in entries; nan for a period that has no estimate.
    They are of what devices report: an entry that has used up the changes its survey allows stands still (freezing).
    freezing: how many entries have made a change that is not counted, an estimate; and the upper end of its interval,
    by which freezing moves any of the values at most; shape (k, 2), nan where the survey does not ask.
    standard_errors: shape (k, z); nan too where a variance, itself estimated, came out below zero.
    intervals: of each figure by itself; simultaneous: of all of them together; lower and upper ends, shape (k, z, 2).
    bounds: what share of `entries` holds of all who ever enrolled, whatever those are like who were not heard, shape
    (k, z, 2).
    covariance: shape (k, z, z), in entries squared; None unless asked for.
    population: whom figures are about: `heard`, those heard at the last closing, or `enrolled`, all who ever enrolled.
    entries: how many these are, shape (k,); 0 without an estimate.
    enrolled, heard: how many entries enrolled, and how many of them were heard, shape (k,); likewise.
    false_entries: how many invented entries could move a share by one percentage point, shape (k,).
    provisional: whether late reports may still change it, shape (k,).
    upper_bound: whether the standard errors are upper bounds, shape (k,).
    diagnostics: whether the tallies are possible at all. nodes: the published nodes behind the estimates.
    """

    survey: str
    question: str
    answers: tuple[str, ...]
    epsilon: float
    method: str
    population: str
    biased: bool
    confidence: float | None
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    times: NDArray[np.datetime64]
    values: Floats
    standard_errors: Floats
    intervals: Floats
    simultaneous: Floats
    bounds: Floats
    freezing: Floats
    covariance: Floats | None
    entries: NDArray[np.int64]
    enrolled: NDArray[np.int64]
    heard: NDArray[np.int64]
    false_entries: NDArray[np.int64]
    provisional: NDArray[np.bool_]
    upper_bound: NDArray[np.bool_]
    diagnostics: Mapping[str, Any]
    nodes: Sequence[Mapping[str, Any]]

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> "Estimates":
        """The estimates in a server's answer."""
        rows: Sequence[Mapping[str, Any]] = answer.get("series", [answer])
        z = len(answer["answers"])

        def whole(name: str) -> NDArray[np.int64]:
            return np.array([row.get(name, 0) for row in rows], np.int64)

        frozen = [row.get("freezing") or {} for row in rows]
        ended = [row["time"].removesuffix("Z") if "time" in row else "NaT" for row in rows]
        covered = any("covariance" in row for row in rows)
        return cls(
            **{name: answer[name] for name in ("survey", "question", "epsilon", "method", "population")},
            **{name: answer[name] for name in ("biased", "confidence")},
            answers=tuple(answer["answers"]),
            start=whole("after"),
            end=np.array([row["until"] if "until" in row else row["period"] for row in rows], np.int64),
            times=np.array(ended, "datetime64[s]"),
            values=_figures(rows, "values", z),
            standard_errors=_figures(rows, "standard_errors", z),
            intervals=_figures(rows, "intervals", z, 2),
            simultaneous=_figures(rows, "simultaneous", z, 2),
            bounds=_figures(rows, "bounds", z, 2),
            freezing=np.stack([_figures(frozen, "entries"), _figures(frozen, "bound")], axis=-1),
            covariance=_figures(rows, "covariance", z, z) if covered else None,
            entries=whole("entries"),
            enrolled=whole("enrolled"),
            heard=whole("heard"),
            false_entries=whole("false_entries"),
            provisional=whole("provisional").astype(np.bool_),
            upper_bound=whole("upper_bound").astype(np.bool_),
            diagnostics=answer["diagnostics"],
            nodes=answer["nodes"],
        )

    def __len__(self) -> int:
        """How many there are."""
        return len(self.end)

    @property
    def shares(self) -> Floats:
        """The values as shares of the entries that they are about, shape (k, z)."""
        entries = np.where(self.entries > 0, self.entries, np.nan)
        shares: Floats = self.values / entries[:, None]
        return shares

    @property
    def widened(self) -> Floats:
        """The intervals, wide enough for what freezing may do: of what entries hold, and not of what devices report.

        Shape (k, z, 2), in entries; nan where the survey does not ask the freezing question. Each misses at most as
        often as the interval and the bound do together: 7.5% at a confidence of 0.95.
        """
        widened: Floats = self.intervals + self.freezing[:, 1, None, None] * np.array([-1.0, 1.0])
        return widened

    def _repr_html_(self) -> str:
        """Percent with intervals, of the last estimates."""
        low, high = np.moveaxis(self.intervals, -1, 0) / np.where(self.entries > 0, self.entries, np.nan)[:, None]
        rows = []
        for at in range(len(self))[-LAST_SHOWN:]:
            ended = f"{self.times[at]}" if not np.isnat(self.times[at]) else f"{self.start[at]} to {self.end[at]}"
            cells = [
                "-" if np.isnan(share) else f"{share:.1%} ({left:.1%} to {right:.1%})".replace(" (nan% to nan%)", "")
                for share, left, right in zip(self.shares[at], low[at], high[at], strict=True)
            ]
            rows.append("".join(f"<td>{cell}</td>" for cell in (ended.replace("T", " "), *cells)))
        heads = "".join(f"<th>{escape(name)}</th>" for name in ("period ended", *self.answers))
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        return f"<table><caption>{escape(self.question)}</caption><tr>{heads}</tr>{body}</table>"

    @property
    def response_rate(self) -> Floats:
        """The share of those enrolled who were heard, shape (k,)."""
        rate: Floats = self.heard / np.where(self.enrolled > 0, self.enrolled, np.nan)
        return rate

    def frame(self) -> "pd.DataFrame":
        """A row for each estimate and answer."""
        import pandas as pd  # late: it loads slowly

        k, z = self.values.shape
        columns = {
            **{name: np.repeat(getattr(self, name), z) for name in ("start", "end", "times")},
            "answer": pd.Categorical(np.tile(np.array(self.answers, object), k), categories=list(self.answers)),
            **{"value": self.values.ravel(), "standard_error": self.standard_errors.ravel()},
            "share": self.shares.ravel(),
            **{
                f"{name}_{side}": getattr(self, name)[..., at].ravel()
                for name in ("intervals", "simultaneous", "bounds")
                for at, side in enumerate(("low", "high"))
            },
            **{
                name: np.repeat(getattr(self, name), z)
                for name in ("entries", "enrolled", "heard", "false_entries", "provisional", "upper_bound")
            },
            **{name: np.repeat(self.freezing[:, at], z) for at, name in enumerate(("freezing", "freezing_bound"))},
        }
        return pd.DataFrame(columns)

    def plot(self, axes: "Axes | None" = None) -> "Axes":
        """Lines with their bands, which all hold together; with a single estimate, points with their intervals.

        axes: of matplotlib; by default new ones, which are returned. What is provisional has open markers.
        """
        from matplotlib import pyplot  # late: it loads slowly

        drawn = axes if axes is not None else pyplot.subplots(layout="constrained")[1]
        together = self.simultaneous if self.confidence is not None else np.stack([self.values] * 2, axis=-1)
        if len(self) == 1:
            off = np.abs(together[0] - self.values[0][:, None]).T
            drawn.errorbar(self.answers, self.values[0], yerr=off, fmt="o", capsize=4)
        else:
            when = self.end if np.isnat(self.times).any() else self.times
            for at, answer in enumerate(self.answers):
                (line,) = drawn.plot(when, self.values[:, at], label=answer)
                drawn.fill_between(when, *together[:, at].T, color=line.get_color(), alpha=0.2, linewidth=0)
                open_ = self.provisional
                drawn.plot(when[open_], self.values[open_, at], "o", mfc="none", color=line.get_color())
            drawn.legend()
        drawn.set_title(self.question)
        drawn.set_ylabel(f"entries {'heard' if self.population == 'heard' else 'that ever enrolled'}")
        return drawn


@dataclass(frozen=True, slots=True, eq=False)
class Differences:
    """Differences of shares at the ends of k periods: between arms, between times, or how much more an arm changed.

    survey, question, answers, epsilon, method, confidence: as of `Estimates`; z answers.
    after: the period since whose end changes are compared; 0 where shares are.
    end: the periods, shape (k,). times: when they ended, UTC, shape (k,).
    values: the differences, 0.02 is two points, shape (k, z); nan for a period that cannot be estimated.
    standard_errors: shape (k, z). intervals: lower and upper ends, shape (k, z, 2).
    p_values: the chance of at least so large a difference by noise alone, shape (k, z). p_together: of one so clear in
    any of the answers, shape (k,).
    entries: how many were heard in each arm, shape (k, arms).
    freezing: the share of them that has made a change which is not counted, an estimate, shape (k, arms).
    freezing_bound: by which that moves any of the differences at most, shape (k,); both nan where the survey does not
    ask the freezing question.
    provisional: whether late reports may still change it, shape (k,).
    """

    survey: str
    question: str
    answers: tuple[str, ...]
    epsilon: float
    method: str
    confidence: float | None
    after: int
    end: NDArray[np.int64]
    times: NDArray[np.datetime64]
    values: Floats
    standard_errors: Floats
    intervals: Floats
    p_values: Floats
    p_together: Floats
    entries: NDArray[np.int64]
    freezing: Floats
    freezing_bound: Floats
    provisional: NDArray[np.bool_]

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> "Differences":
        """The differences in a server's answer."""
        rows: Sequence[Mapping[str, Any]] = answer["series"]
        z, arms = len(answer["answers"]), max((len(row.get("entries", ())) for row in rows), default=1)
        frozen = [row.get("freezing") or {} for row in rows]
        return cls(
            **{name: answer[name] for name in ("survey", "question", "epsilon", "method", "confidence", "after")},
            answers=tuple(answer["answers"]),
            end=np.array([row["period"] for row in rows], np.int64),
            times=np.array([row["time"].removesuffix("Z") for row in rows], "datetime64[s]"),
            values=_figures(rows, "differences", z),
            standard_errors=_figures(rows, "standard_errors", z),
            intervals=_figures(rows, "intervals", z, 2),
            p_values=_figures(rows, "p_values", z),
            p_together=_figures(rows, "p_together"),
            entries=np.nan_to_num(_figures(rows, "entries", arms)).astype(np.int64),
            freezing=_figures(frozen, "shares", arms),
            freezing_bound=_figures(frozen, "bound"),
            provisional=np.array([row.get("provisional", False) for row in rows], np.bool_),
        )

    def __len__(self) -> int:
        """How many periods there are."""
        return len(self.end)

    @property
    def widened(self) -> Floats:
        """The intervals, wide enough for what freezing may do, as of `Estimates`; shape (k, z, 2)."""
        widened: Floats = self.intervals + self.freezing_bound[:, None, None] * np.array([-1.0, 1.0])
        return widened

    def frame(self) -> "pd.DataFrame":
        """A row for each period and answer."""
        import pandas as pd  # late: it loads slowly

        k, z = self.values.shape
        columns = {
            **{name: np.repeat(getattr(self, name), z) for name in ("end", "times")},
            "answer": pd.Categorical(np.tile(np.array(self.answers, object), k), categories=list(self.answers)),
            **{name: getattr(self, name).ravel() for name in ("values", "standard_errors", "p_values")},
            **{f"intervals_{side}": self.intervals[..., at].ravel() for at, side in enumerate(("low", "high"))},
            **{name: np.repeat(getattr(self, name), z) for name in ("p_together", "freezing_bound", "provisional")},
        }
        return pd.DataFrame(columns)


@dataclass(frozen=True, slots=True, eq=False)
class Numbers:
    """The figures of a number at the ends of the periods 1 to k.

    survey, question, unit, levels, epsilon, method, confidence: whose, and how.
    rounding: how far a number is from its levels on average over the offsets, at most; no interval holds it.
    times: when the periods ended, UTC, shape (k,).
    mean: in the unit, with the ends of its interval, shape (k, 3): value, low, high; nan where it cannot be estimated.
    quantiles: likewise, by the quantile asked for. above: the shares at or above values, by the value.
    heard: of how many entries, shape (k,). provisional: whether late reports may still change it, shape (k,).
    freezing: the share of those that hold a number which has made a change that is not counted, an estimate; and the
    most by which that moves a share at or above a value, shape (k, 2); nan where the survey does not ask the freezing
    question. A mean is off by that times the last level less the first, at most.
    """

    survey: str
    question: str
    unit: str
    levels: tuple[float, ...]
    epsilon: float
    method: str
    confidence: float
    rounding: float
    times: NDArray[np.datetime64]
    mean: Floats
    quantiles: Mapping[float, Floats]
    above: Mapping[float, Floats]
    heard: NDArray[np.int64]
    freezing: Floats
    provisional: NDArray[np.bool_]

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> "Numbers":
        """The figures in a server's answer."""
        rows: Sequence[Mapping[str, Any]] = answer["series"]
        frozen = [row.get("freezing") or {} for row in rows]

        def ends(figures: Sequence[Mapping[str, Any] | None]) -> Floats:
            lost = [np.nan] * 3
            return np.array([lost if each is None else [each["value"], *each["interval"]] for each in figures])

        def listed(name: str) -> dict[float, Floats]:
            return {
                mark: ends([None if row[name] is None else row[name][at] for row in rows])
                for at, mark in enumerate(answer[name])
            }

        same = ("survey", "question", "unit", "epsilon", "method", "confidence", "rounding")
        return cls(
            **{name: answer[name] for name in same},
            levels=tuple(answer["levels"]),
            times=np.array([row["time"].removesuffix("Z") for row in rows], "datetime64[s]"),
            mean=ends([row["mean"] for row in rows]),
            quantiles=listed("quantiles"),
            above=listed("above"),
            heard=np.array([row["heard"] for row in rows], np.int64),
            freezing=np.concatenate([_figures(frozen, "shares", 1), _figures(frozen, "bound", 1)], axis=1),
            provisional=np.array([row["provisional"] for row in rows], np.bool_),
        )


Method = Literal["online", "retrospective", "smoothed"]
Population = Literal["heard", "enrolled"]
Strata = Mapping[str, Sequence[str]]


class HowEstimated(TypedDict, total=False):
    """How estimates are asked for.

    method: `online` unless said. strata: the values, by breakdown, of those who are asked about; all by default.
    confidence: the level of intervals, 0.95 unless said; None for none. covariance: whether covariances are wanted.
    question: the name of the one that it is about, of a survey with several.
    """

    method: Method
    strata: Strata | None
    confidence: float | None
    covariance: bool
    question: str | None


class Reader:
    """A reader of one server; use as a context, or close it.

    server: its base URL. token: one of its tokens for reading, if the survey asks for one: it is sent over TLS and on
    loopback only. population: whom figures are about, those heard at each time, or `enrolled`: all who ever enrolled,
    as if those who fell silent were like them. transport: instead of a connection, for tests. Raises what
    `ServerClient` raises.
    """

    def __init__(
        self,
        server: str,
        *,
        token: str | None = None,
        population: Population = "heard",
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._population = population
        self._client = ServerClient(server, token=token, transport=transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    def histogram(
        self, survey: str, *, period: int | None = None, at: datetime | None = None, **how: Unpack[HowEstimated]
    ) -> Estimates:
        """The histogram at the end of a period, by default of the last one of which anything is shown.

        survey: its id, in hex. at: instead of a period, any time, with a time zone. how: as `HowEstimated` says.
        Raises ServerAnswered or httpx.HTTPError.
        """
        return self._ask(survey, HISTOGRAM, how, period=period, time=_instant(at))

    def series(self, survey: str, *, until: int | None = None, **how: Unpack[HowEstimated]) -> Estimates:
        """The histograms at the ends of the periods 1 to `until`; otherwise as `histogram`."""
        return self._ask(survey, SERIES, how, until=until)

    def change(self, survey: str, after: int, until: int | None = None, **how: Unpack[HowEstimated]) -> Estimates:
        """The change from the end of one period to that of another; otherwise as `histogram`."""
        return self._ask(survey, CHANGE, how, after=after, until=until)

    def windows(self, survey: str, width: int, until: int | None = None, **how: Unpack[HowEstimated]) -> Estimates:
        """The changes over all windows of so many periods; otherwise as `histogram`."""
        return self._ask(survey, WINDOWS, how, width=width, until=until)

    def compare(
        self,
        survey: str,
        strata: Strata | None = None,
        against: Strata | None = None,
        *,
        after: int = 0,
        until: int | None = None,
        method: Method = "online",
        confidence: float | None = 0.95,
        question: str | None = None,
    ) -> Differences:
        """By how much shares differ: those of `strata` from those of `against`, an experiment's two arms, say.

        after: compare how much shares changed since the end of this period instead; without `against`, one arm's (or
        everybody's) with its own at that time. Otherwise as `series`.
        """
        asked = _query(method, strata, confidence, question=question, until=until, after=after)
        return Differences.of(self._client.read(survey_path(survey) + COMPARISON, asked + _named("against", against)))

    def numbers(
        self,
        survey: str,
        *,
        quantiles: Sequence[float] = (0.5,),
        above: Sequence[float] = (),
        until: int | None = None,
        method: Method = "online",
        strata: Strata | None = None,
        confidence: float = 0.95,
        question: str | None = None,
    ) -> Numbers:
        """A number's mean and quantiles, and the share of entries at or above some values; otherwise as `series`."""
        asked = _query(method, strata, confidence, question=question, until=until)
        asked += [("quantile", repr(each)) for each in quantiles] + [("above", repr(float(each))) for each in above]
        return Numbers.of(self._client.read(survey_path(survey) + NUMBERS, asked))

    def surveys(self) -> list[dict[str, Any]]:
        """The `id`, `question` and `last_period` of every published survey, and whether it is `public`: open to all.

        `edition` is the name of its newest edition, or None.
        """
        return self._client.surveys()

    def status(self, survey: str) -> dict[str, Any]:
        """How far a survey is; with an operator's token also what was refused."""
        return self._client.status(survey)

    def _ask(self, survey: str, path: str, how: HowEstimated, **asked: int | str | None) -> Estimates:
        covariance = "true" if how.pop("covariance", False) else None
        query = _query(**how, population=self._population, covariance=covariance, **asked)
        return Estimates.of(self._client.read(survey_path(survey) + path, query))


def _query(
    method: Method = "online", strata: Strata | None = None, confidence: float | None = 0.95, **asked: int | str | None
) -> list[Parameter]:
    query: list[Parameter] = [(name, str(value)) for name, value in asked.items() if value is not None]
    query += [("confidence", repr(confidence))] if confidence is not None else []
    return [*query, ("method", method), *_named("stratum", strata)]


def _named(parameter: str, strata: Strata | None) -> list[Parameter]:
    return [(parameter, f"{name}:{value}") for name, values in (strata or {}).items() for value in values]


def _instant(at: datetime | None) -> str | None:
    if at is not None and at.tzinfo is None:
        raise ValueError(f"a time has a time zone, got {at.isoformat()}")
    return None if at is None else at.isoformat()
