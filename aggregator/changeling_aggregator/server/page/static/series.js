// A survey's histograms over time: as a chart, in numbers, and the latest by itself.

import { grounds, stepOf, traces } from "./bands.js";
import { newestComplete } from "./chart.js";
import { at, drawing, element, onceOpened, table } from "./elements.js";
import { draw } from "./plots.js";
import { count, moment, periods, plural, runs, share, spanOf } from "./words.js";

export const MOST_ROWS = 1000;

export const timeOf = (survey, period) => new Date((survey.start + period * survey.period_seconds) * 1000);
export const dayOf = (survey, period) => moment(survey.start + period * survey.period_seconds, survey.period_seconds);

// How one figure of an estimate is shown: as a share of the entries it is about, or as it is.
export function figures(estimate, number, view) {
  if (estimate.values === null) return { value: null, low: null, high: null };
  const by = view.unit === "share" ? estimate.entries || 1 : 1;
  const [low, high] = estimate[view.bands][number];
  return { value: estimate.values[number] / by, low: low / by, high: high / by };
}

const shown = (view) => (view.unit === "share" ? share : count);

export function interval({ value, low, high }, view) {
  const as = shown(view);
  if (value === null) return "unknown";
  return `${as(value)} (${as(low)} to ${as(high)})`;
}

// The axis of time. what: of which its times are the ends.
export const timeAxis = (survey, what) => ({
  title: { text: `end of the ${what}, UTC` },
  hoverformat: survey.period_seconds % 86400 || survey.start % 86400 ? "%Y-%m-%d %H:%M" : "%Y-%m-%d",
});
export const ticks = (view) => (view.unit === "share" ? { tickformat: ".0~%" } : { tickformat: ",d" });

export function drawSeries(survey, series, view) {
  const estimates = series.series;
  const late = estimates.filter((each) => each.provisional).map((each) => each.period);
  draw(at("series"), () => ({
    traces: view.answers.flatMap((number) =>
      traces(survey.answers[number], number, estimates.map((each) => {
        const known = figures(each, number, view);
        return { time: timeOf(survey, each.period), ...known, words: interval(known, view) };
      })),
    ),
    yaxis: { title: { text: view.unit === "share" ? `share of the ${view.population}` : `entries, of the ${view.population}` }, ...ticks(view) },
    x: timeAxis(survey, "period"),
    more: grounds(runs(late.length < estimates.length ? late : []).map(([from, to]) => [timeOf(survey, from - 1), timeOf(survey, to)]), "provisional"),
  }));
  at("series-notes").replaceChildren(...notes(survey, series, view, late).map((each) => element("li", {}, each)));
  onceOpened(at("series-numbers"), () => numbers(survey, estimates, view));
}

function notes(survey, series, view, late) {
  const said = [];
  const gaps = series.series.filter((each) => each.values === null);
  for (const [from, to] of runs(gaps.map((each) => each.period)).slice(0, 12)) {
    const { missing } = gaps.find((each) => each.period === from);
    const because = missing ? `: too few reports on the release over ${spanOf(missing.start + 1, missing.end)}` : "";
    said.push(`Unknown: ${spanOf(from, to)}${because}.`);
  }
  if (late.length) said.push(`Provisional: ${periods(late)}. Late reports may still change them.`);
  if (series.biased) said.push("Smoothed estimates are biased: they lean on the belief that shares drift slowly.");
  if (series.series.some((each) => each.upper_bound)) said.push("Bands are at least as wide as they should be, where not all of the variance can be told.");
  const frozen = series.series.filter((each) => each.freezing && each.entries).at(-1);
  if (frozen) said.push(freezing(frozen));
  const level = share(series.confidence).replace(".0%", "%");
  said.push(view.bands === "intervals"
    ? `Each band by itself holds the true figure with a chance of ${level}; of many, some do not.`
    : `All bands together hold every true figure with a chance of ${level}.`);
  const step = stepOf(series.series.length);
  if (step > 1) said.push(`The charts draw one period in ${count(step)}; all of them are in the CSV.`);
  said.push("Figures are not clipped: a small share may come out below zero.");
  return said;
}

// How far the changes that devices did not count may move figures, where the survey asks for it.
function freezing({ period, freezing: { entries, bound }, entries: all }) {
  return `Freezing: by the end of period ${period}, ${share(entries / all)} of these entries had made a change that is not counted. No band holds that: beyond its band a share may be off by so much, and by ${share(bound / all)} at most.`;
}

function numbers(survey, estimates, view) {
  const rows = estimates.slice(-MOST_ROWS).reverse().map((each) => [
    `${dayOf(survey, each.period)}`,
    ...survey.answers.map((_, number) => interval(figures(each, number, view), view)),
    each.values === null ? "" : each.provisional ? "provisional" : "final",
  ]);
  return table("Estimates over time", ["end of the period", ...survey.answers, ""], rows);
}

export function drawLatest(survey, series, status, view) {
  const last = newestComplete(series);
  if (!last) {
    at("latest-when").textContent = "No period can be estimated yet.";
    at("latest").replaceChildren();
    at("latest-note").textContent = "";
    return;
  }
  const state = last.provisional ? "provisional, as late reports may still change it" : "final";
  const newer = series.series.filter((each) => each.values !== null && each.period > last.period);
  const soon = newer.length ? ` Of ${periods(newer.map((each) => each.period))}, which is newer, ${share(newer.at(-1).response_rate)} of the enrolled have been heard so far.` : "";
  at("latest-when").textContent = `The newest complete period is period ${last.period}, which ended ${dayOf(survey, last.period)}: ${state}.${soon}`;
  const [bars, totals] = ["share", "total"].map((unit) => ({ ...view, unit }));
  const lows = survey.answers.map((_, number) => figures(last, number, bars)).flatMap((each) => [each.value, each.low ?? 0, each.high ?? 0]);
  const [left, right] = [Math.min(0, ...lows), Math.max(0.01, ...lows)];
  const rows = survey.answers.map((answer, number) => [
    answer,
    apart(interval(figures(last, number, bars), bars)),
    bar(figures(last, number, bars), number, left, right),
    apart(interval(figures(last, number, totals), totals)),
  ]);
  const made = table("The latest estimates", ["answer", "share", "", "entries"], rows);
  for (const row of made.rows) row.cells[2].classList.add("bar");
  at("latest").replaceChildren(made);
  const level = share(series.confidence).replace(".0%", "%");
  at("latest-note").textContent =
    `About the ${plural(last.entries, "entry").replace("entrys", "entries")} that ${series.population === "heard" ? "were heard" : "ever enrolled"}; ${share(last.response_rate)} of the enrolled were heard; with ${level} intervals. ` +
    (series.population === "enrolled" && last.heard < last.enrolled ? "Those who fell silent are taken to be like those who are heard. " : "") +
    `It takes at least ${plural(last.false_entries, "invented device")}${status.most_from_network ? `, on ${plural(Math.ceil(last.false_entries / status.most_from_network), "network")} or more,` : ""} to move a share by one percentage point.`;
}

// A figure, and its interval, which has a line of its own on a small screen.
function apart(words) {
  const [figure, ...rest] = words.split(" (");
  return element("span", {}, figure, " ", element("span", { class: "range" }, rest.length ? `(${rest.join(" (")}` : ""));
}

function bar({ value, low, high }, number, left, right) {
  const place = (figure) => (100 * (figure - left)) / (right - left);
  const box = drawing("svg", { viewBox: "0 0 100 12", preserveAspectRatio: "none", "aria-hidden": "true" });
  const colour = `var(--c${number % 8})`;
  box.append(drawing("rect", { x: place(low), width: place(high) - place(low), y: 2, height: 8, fill: colour, "fill-opacity": 0.35 }));
  box.append(drawing("rect", { x: place(value) - 0.5, width: 1, y: 0, height: 12, fill: colour }));
  box.append(drawing("rect", { x: place(0), width: 0.3, y: 0, height: 12, fill: "currentColor", "fill-opacity": 0.5 }));
  return box;
}
