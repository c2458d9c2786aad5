// Who takes part, and what was refused.

import { thinned } from "./bands.js";
import { at, element, onceOpened, table } from "./elements.js";
import { colour, draw } from "./plots.js";
import { MOST_ROWS, dayOf, timeAxis, timeOf } from "./series.js";
import { count, share } from "./words.js";

export function drawMembers(survey, series, status) {
  const all = thinned(series.series.map((each) => (each.values === null ? { period: each.period } : each)));
  const known = series.series.filter((each) => each.values !== null);
  const joined = new Map(status.closings.map((each) => [each.period, each]));
  const times = all.map((each) => timeOf(survey, each.period));
  const mode = known.length === 1 ? "markers" : "lines";
  const line = (name, y, shade, more) => ({ x: times, y, name, mode, line: { color: colour(shade), width: 2, ...more }, marker: { color: colour(shade) } });
  draw(at("members"), () => ({
    traces: [
      { ...line("enrolled", all.map((each) => each.enrolled ?? null), "c5", { dash: "dash" }), hovertemplate: "%{y:,d}" },
      { ...line("heard", all.map((each) => each.heard ?? null), "c0"), hovertemplate: "%{y:,d}" },
      { ...line("response rate", all.map((each) => each.response_rate ?? null), "c2"), yaxis: "y2", hovertemplate: "%{y:.1%}" },
    ],
    x: { ...timeAxis(survey, "period"), anchor: "y2" },
    yaxis: { title: { text: "entries" }, domain: [0.42, 1], rangemode: "tozero", tickformat: ",d" },
    yaxis2: { title: { text: "response rate" }, domain: [0, 0.34], range: [0, 1.05], tickformat: ".0%" },
    more: { showlegend: true, legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" } },
  }));
  onceOpened(at("members-numbers"), () =>
    table("Who takes part", ["end of the period", "enrolled", "heard", "response rate", "heard for the first time"],
      known.slice(-MOST_ROWS).reverse().map((each) => [
        dayOf(survey, each.period), count(each.enrolled), count(each.heard), share(each.response_rate), count(joined.get(each.period)?.new ?? 0),
      ]),
    ),
  );
}

export function drawRefused(status) {
  if (!status.refused) {
    at("refused").replaceChildren(element("p", { class: "note" },
      "Counts of refusals are for operators alone, who sign in with a token that may fold as well: from a counter that moves, " +
      "whoever sends an envelope again could read what is sealed in it."));
    return;
  }
  const counted = Object.entries(status.refused).sort(([, one], [, other]) => other - one);
  const made = table("Refusals by reason", ["reason", "how often"], counted.map(([reason, figure]) => [reason.replaceAll("-", " "), count(figure)]));
  at("refused").replaceChildren(
    counted.length ? made : element("p", {}, "Nothing was refused so far."),
    element("p", { class: "note" },
      `Last folded: ${status.last_fold ?? "never"}. Requests that wait to be folded: ${count(status.unfolded_requests)}.`),
  );
}
