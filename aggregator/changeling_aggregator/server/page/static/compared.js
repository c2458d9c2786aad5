// Differences of shares, between arms and between times; and the mean and the median of a number.

import { escaped, traces } from "./bands.js";
import { at, element, onceOpened, table } from "./elements.js";
import { draw } from "./plots.js";
import { MOST_ROWS, dayOf, timeAxis, timeOf } from "./series.js";
import { share } from "./words.js";

const points = (figure) => `${figure > 0 ? "+" : figure < 0 ? "−" : ""}${Math.abs(100 * figure).toFixed(2)}`;
const chance = (p) => (p < 0.001 ? "p < .001" : `p = ${p.toFixed(3).slice(1)}`);
const unknown = { value: null, low: null, high: null, words: "unknown" };

// How far the changes that devices did not count may move the last figures, where the survey asks for it.
function freezing(answer, off) {
  const last = answer.series.map((each) => each.freezing).filter(Boolean).at(-1);
  return last ? ` Freezing: ${last.shares.map(share).join(" and ")} of these entries had made a change that is not counted. Beyond its band ${off(last)} at most.` : "";
}

// Whom one may compare with: nobody, or the entries of one value of a breakdown.
export function offerComparison(survey) {
  const arms = survey.breakdowns.flatMap(({ name, values }) => values.map((value) => `${name}:${value}`));
  at("against").replaceChildren(element("option", { value: "" }, "no others"), ...arms.map((arm) => element("option", { value: arm }, arm)));
  at("since").value = "0";
  at("since").max = survey.periods - 1;
}

// The parameters of the comparison that is chosen; null where none is. ticked: of whom the page is, if not of everybody.
export function comparison(survey, ticked) {
  const [against, after] = [at("against").value, Number(at("since").value) || 0];
  if (!against && !after) return null;
  const name = against.split(":")[0];
  const others = survey.breakdowns.filter((each) => each.name === name)
    .flatMap(({ values }) => values.map((value) => `${name}:${value}`)).filter((each) => each !== against);
  const arm = ticked.length || !against ? ticked : others;
  return [...arm.map((each) => ["stratum", each]), ...(against ? [["against", against]] : []), ["after", after]];
}

export function drawDifferences(survey, answer, view) {
  at("difference-shown").hidden = !answer;
  if (!answer) return;
  const known = (each, number) => {
    if (each.differences === null) return unknown;
    const [value, [low, high]] = [each.differences[number], each.intervals[number]];
    return { value: 100 * value, low: 100 * low, high: 100 * high,
      words: `${points(value)} (${points(low)} to ${points(high)}), ${chance(each.p_values[number])}` };
  };
  draw(at("difference-chart"), () => ({
    traces: view.answers.flatMap((number) =>
      traces(survey.answers[number], number, answer.series.map((each) => ({ time: timeOf(survey, each.period), ...known(each, number) })))),
    yaxis: { title: { text: "difference, in percentage points" }, zeroline: true, zerolinewidth: 2, tickformat: "+~f" },
    x: timeAxis(survey, "period"),
  }));
  const level = share(answer.confidence).replace(".0%", "%");
  at("difference-note").textContent = `Each band by itself holds the true difference with a chance of ${level}. ` +
    "p is the chance of so large a difference by noise alone; decide which period counts before you look." +
    freezing(answer, ({ bound }) => `a difference may be off by ${share(bound)}`);
  onceOpened(at("difference-numbers"), () =>
    table("Differences, in percentage points", ["end of the period", ...survey.answers, "any answer"],
      answer.series.slice(-MOST_ROWS).reverse().map((each) => [
        dayOf(survey, each.period), ...survey.answers.map((_, number) => known(each, number).words),
        each.differences === null ? "" : chance(each.p_together),
      ])));
}

export function drawNumber(survey, answer) {
  at("number").hidden = !answer;
  if (!answer) return;
  const figure = (value) => `${Number(value.toPrecision(4)).toLocaleString("en")} ${answer.unit}`.trim();
  const known = (found) => {
    if (!found) return unknown;
    const { value, interval: [low, high] } = found;
    return { value, low, high, words: `${figure(value)} (${figure(low)} to ${figure(high)})` };
  };
  const lines = [["mean", (each) => known(each.mean)], ["median", (each) => known(each.quantiles?.[0])]];
  draw(at("number-chart"), () => ({
    traces: lines.flatMap(([name, of], number) =>
      traces(name, number, answer.series.map((each) => ({ time: timeOf(survey, each.period), ...of(each) })))),
    yaxis: { title: { text: escaped(answer.unit) || "its own unit" } },
    x: timeAxis(survey, "period"),
    more: { showlegend: false },
  }));
  at("number-note").textContent = `The mean, and the median, which is drawn in the second colour. Rounding to levels moves a number by at most ${figure(answer.rounding)}, on average; ` +
    "what lies beyond the first or last level counts as that." +
    freezing(answer, ({ bound }) => `the mean may be off by ${figure(bound * (answer.levels.at(-1) - answer.levels[0]))}`);
  onceOpened(at("number-numbers"), () =>
    table("The number over time", ["end of the period", ...lines.map(([name]) => name)],
      answer.series.slice(-MOST_ROWS).reverse().map((each) => [dayOf(survey, each.period), ...lines.map(([, of]) => of(each).words)])));
}
