// Lines with bands: what is known, how well, and where nothing is.

import { colour, lineOf } from "./plots.js";

// What is handed to plotly: no more points than a screen can show apart, and no text that it would read as HTML.
const MOST_POINTS = 500; // of a series

// Every how manieth of so many points is drawn.
export const stepOf = (many) => Math.max(1, Math.ceil(many / MOST_POINTS));

// Every k-th point, the last one included.
export function thinned(points) {
  const step = stepOf(points.length);
  return points.filter((_, at) => (points.length - 1 - at) % step === 0);
}

// Plotly reads what it writes into charts as HTML of a few tags: <b>, <a href>, <br>. Whatever a survey says goes through here.
export const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

const faint = (hex) => `${hex}2e`; // a colour at some 18% of its strength

// Runs of points that are known, from one gap to the next.
function known(points) {
  const found = [[]];
  for (const point of points) {
    if (point.value === null) found.push([]);
    else found[found.length - 1].push(point);
  }
  return found.filter((each) => each.length);
}

// all: {time, value, low, high, words}, of which as many are drawn as can be told apart; value null where nothing is known.
export function traces(name, number, all) {
  const line = lineOf(number);
  const points = thinned(all);
  const found = [];
  for (const run of known(points)) {
    const there = run.map((each) => each.time);
    if (run.length === 1) {
      const up = { type: "data", symmetric: false, array: [run[0].high - run[0].value], arrayminus: [run[0].value - run[0].low] };
      found.push({ x: there, y: [run[0].value], mode: "markers", marker: { color: line.color, size: 5 }, hoverinfo: "skip",
        error_y: { ...up, color: line.color, thickness: 2, width: 4 } });
      continue;
    }
    found.push({
      x: [...there, ...[...there].reverse()],
      y: [...run.map((each) => each.low), ...run.map((each) => each.high).reverse()],
      mode: "lines", line: { width: 0 }, fill: "toself", fillcolor: faint(line.color), hoverinfo: "skip",
    });
  }
  const few = points.length <= 40;
  found.push({
    x: points.map((each) => each.time), y: points.map((each) => each.value), customdata: points.map((each) => escaped(each.words)),
    mode: few ? "lines+markers" : "lines", line: { ...line, width: 2 }, marker: { size: 5 }, connectgaps: false,
    name: escaped(name), hovertemplate: "%{customdata}",
  });
  return found;
}

// Spans of time on a grey ground, with a word above. spans: [[from, to], ...] in dates.
export function grounds(spans, word) {
  return {
    shapes: spans.map(([x0, x1]) => ({
      type: "rect", xref: "x", yref: "paper", x0, x1, y0: 0, y1: 1, layer: "below", line: { width: 0 },
      fillcolor: colour("provisional"), opacity: 0.16,
    })),
    annotations: spans.slice(-1).map(([, x1]) => ({
      xref: "x", yref: "paper", x: x1, y: 1, xanchor: "right", yanchor: "top", text: word, showarrow: false,
      font: { color: colour("provisional"), size: 12 },
    })),
  };
}
