// The release graph: the plan's nodes, and what is shown of each. Tracks of one kind and width share a row.

import { at, onceOpened, table } from "./elements.js";
import { colour, draw } from "./plots.js";
import { timeOf } from "./series.js";
import { count, plural, spanOf } from "./words.js";

const MOST_BARS = 150; // of a row; more could not be told apart
const NARROW = 600; // pixels
const STATES = ["final", "provisional", "not shown", "to come"]; // the later in this row, the less is there
const SHADES = ["c2", "provisional", "c1", "line"];

function nodesOf(survey, status) {
  const shown = new Map(status.nodes.map((each) => [`${each.track} ${each.end}`, each]));
  const rows = new Map();
  survey.tracks.forEach((track, number) => {
    const name = `${track.reports === "changes" ? "Δ" : "="} ${track.width}`;
    if (!rows.has(name)) rows.set(name, { name, long: longName(track), reports: track.reports, width: track.width, nodes: new Map() });
    const { nodes } = rows.get(name);
    for (let end = track.first + track.width; end <= Math.min(track.last, status.last_period); end += track.width) {
      const there = shown.get(`${number} ${end}`);
      const state = there ? (there.sealed ? 0 : 1) : end <= status.closed_periods ? 2 : 3;
      const before = nodes.get(end) ?? { start: end - track.width, end, state: 0, reports: 0 };
      nodes.set(end, { ...before, state: Math.max(before.state, state), reports: before.reports + (there?.reports ?? 0) });
    }
  });
  return [...rows.values()]
    .sort((one, other) => (one.reports === other.reports ? one.width - other.width : one.reports < other.reports ? -1 : 1))
    .map((row) => ({ ...row, nodes: [...row.nodes.values()].sort((one, other) => one.end - other.end) }));
}

const longName = (track) => (track.reports === "changes" ? `Δ over ${plural(track.width, "period")}` : `= every ${plural(track.width, "period")}`);

export function drawGraph(survey, status) {
  const rows = nodesOf(survey, status);
  draw(at("graph"), () => {
    const label = (row) => (innerWidth < NARROW ? row.name : row.long);
    const traces = STATES.flatMap((_, state) => barsOf(survey, rows, label, state));
    return {
      traces,
      x: { title: { text: "time, UTC" } },
      yaxis: { type: "category", categoryorder: "array", categoryarray: rows.map(label), range: [-0.6, rows.length - 0.4] },
      more: { height: 130 + 34 * rows.length, hovermode: "closest", showlegend: true,
        legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", itemclick: false, itemdoubleclick: false } },
    };
  });
  onceOpened(at("graph-numbers"), () =>
    table("Releases", ["release", "in all", ...STATES, "reports each, on average"], rows.map(({ long, nodes }) => {
      const there = nodes.filter((each) => each.reports);
      const mean = there.length ? there.reduce((sum, each) => sum + each.reports, 0) / there.length : 0;
      return [long, count(nodes.length), ...STATES.map((_, state) => count(nodes.filter((each) => each.state === state).length)), count(mean)];
    })),
  );
}

function barsOf(survey, rows, label, state) {
  const bars = { x: [], y: [] };
  const middles = { x: [], y: [], text: [] };
  for (const row of rows) {
    const kept = row.nodes.filter((each) => each.state === state);
    const many = row.nodes.length > MOST_BARS;
    for (const node of many ? joined(kept) : kept) {
      const [from, to] = [+timeOf(survey, node.start), +timeOf(survey, node.end)];
      const gap = many ? 0 : (to - from) * 0.08;
      const left = row.reports === "states" && !many ? to - (to - from) * 0.35 : from + gap;
      bars.x.push(new Date(left), new Date(to - gap), null);
      bars.y.push(label(row), label(row), null);
      middles.x.push(new Date((left + to - gap) / 2));
      middles.y.push(label(row));
      middles.text.push(`${row.long}<br>${spanOf(node.start + 1, node.end)}: ${STATES[state]}, ${plural(node.reports, "report")}`);
    }
  }
  const shade = colour(SHADES[state]);
  return [
    { ...bars, mode: "lines", line: { color: shade, width: 9 }, name: STATES[state], hoverinfo: "skip", showlegend: bars.x.length > 0 },
    { ...middles, mode: "markers", marker: { color: shade, size: 8, opacity: 0 }, showlegend: false, hovertemplate: "%{text}<extra></extra>" },
  ];
}

// Bars that touch, as one.
function joined(nodes) {
  const found = [];
  for (const node of nodes) {
    const last = found.at(-1);
    if (last && last.end === node.start) Object.assign(last, { end: node.end, reports: last.reports + node.reports });
    else found.push({ ...node });
  }
  return found;
}
