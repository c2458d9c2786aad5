// How the histogram changed over windows of one width.

import { traces } from "./bands.js";
import { at, onceOpened, table } from "./elements.js";
import { draw } from "./plots.js";
import { MOST_ROWS, dayOf, figures, timeAxis, timeOf } from "./series.js";
import { count } from "./words.js";

const points = (figure) => `${figure > 0 ? "+" : figure < 0 ? "−" : ""}${Math.abs(figure).toFixed(1)}`;
const signed = (figure) => `${figure > 0 ? "+" : ""}${count(figure)}`;

// The change of totals, or in points: hundredths of the entries it is about at the window's end.
function figuresOf(estimate, number, view) {
  const known = figures(estimate, number, view);
  const by = view.unit === "share" ? 100 : 1;
  return Object.fromEntries(Object.entries(known).map(([name, each]) => [name, each === null ? null : by * each]));
}

function interval({ value, low, high }, view) {
  const as = view.unit === "share" ? points : signed;
  if (value === null) return "unknown";
  return `${as(value)} (${as(low)} to ${as(high)})`;
}

export function drawChanges(survey, windows, view) {
  const first = windows.series.filter((each) => each.after > 0); // what is before period 1 is no answer at all
  const there = first.length ? first : windows.series;
  draw(at("change"), () => ({
    traces: view.answers.flatMap((number) =>
      traces(survey.answers[number], number, there.map((each) => {
        const known = figuresOf(each, number, view);
        return { time: timeOf(survey, each.until), ...known, words: interval(known, view) };
      })),
    ),
    yaxis: { title: { text: view.unit === "share" ? "change, in percentage points" : `change, in entries of the ${view.population}` }, zeroline: true, zerolinewidth: 2,
      tickformat: view.unit === "share" ? "+~f" : "+,d" },
    x: timeAxis(survey, "window"),
  }));
  onceOpened(at("change-numbers"), () =>
    table(`Changes over windows, in ${view.unit === "share" ? "percentage points" : "entries"}`, ["from", "to", ...survey.answers],
      windows.series.slice(-MOST_ROWS).reverse().map((each) => [
        dayOf(survey, each.after), dayOf(survey, each.until),
        ...survey.answers.map((_, number) => interval(figuresOf(each, number, view), view)),
      ]),
    ),
  );
}
