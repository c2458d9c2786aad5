// A chart to embed in any page, without a library: <changeling-chart survey="ID"></changeling-chart>.
//
// It draws one question of one survey: lines with their bands, from the files of its newest edition, which no estimate is
// made for. Attributes: survey, its id; server, the server's address, by default where this script is from; answers, the
// numbers of those to draw, by commas; question, its place where the survey asks several, from 0 on; theme, light or dark, by default the reader's own.

const MOST_POINTS = 400;
const HEIGHT = 260;
const MARGIN = { left: 46, right: 10, top: 10, bottom: 24 };
const DASHES = ["", "7 4", "2 3", "7 3 2 3"];
const share = new Intl.NumberFormat("en", { style: "percent", minimumFractionDigits: 1, maximumFractionDigits: 1 });
const coarse = new Intl.NumberFormat("en", { style: "percent", maximumFractionDigits: 0 });

const STYLE = `
:host { --ground: #fff; --ink: #1d2126; --quiet: #565e68; --grid: #e6e8ea; --accent: #0b5c9e;
  --c0: #0b62a4; --c1: #c2410c; --c2: #0f7b5f; --c3: #a3357f; --c4: #7a5b00; --c5: #4b4ba8; --c6: #00788c; --c7: #6b4a2b;
  display: block; color: var(--ink); background: var(--ground); font: 14px/1.45 system-ui, sans-serif; }
:host([hidden]) { display: none; }
DARK
figure { margin: 0; padding: 12px; }
figcaption { font-weight: 600; font-size: 16px; margin-bottom: 4px; overflow-wrap: anywhere; }
ul { list-style: none; margin: 0 0 4px; padding: 0; display: flex; flex-wrap: wrap; gap: 2px 14px; }
li { display: inline-flex; align-items: center; gap: 6px; overflow-wrap: anywhere; }
svg { display: block; width: 100%; overflow: hidden; }
li svg { width: 24px; }
svg text { fill: var(--quiet); font-size: 12px; }
.plot { touch-action: pan-y; cursor: crosshair; }
.plot:focus-visible, .rows:focus-visible, summary:focus-visible, a:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
p { margin: 4px 0; color: var(--quiet); font-size: 13px; }
.readout { min-height: 3em; color: var(--ink); }
a, summary { color: var(--accent); }
summary { cursor: pointer; }
.rows { overflow: auto; max-height: 300px; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { padding: 2px 10px 2px 0; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--grid); }
th:first-child { text-align: left; }`;
const DARK_COLOURS = `{ --ground: #1c2026; --ink: #e8eaed; --quiet: #a5adb7; --grid: #343a42; --accent: #6db8f2;
  --c0: #5ab0f0; --c1: #f5935a; --c2: #46c9a0; --c3: #e488c6; --c4: #dcb84a; --c5: #a9a6f5; --c6: #4cc7dc; --c7: #d3a983; }`;

function html(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function svg(name, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// The estimates of one answer, {time, value, low, high, provisional}, as shares; value is null where nothing is known.
export function pointsOf(series, answer) {
  return series.series.map((each) => {
    const base = { time: Date.parse(each.time), period: each.period, provisional: Boolean(each.provisional) };
    if (each.values === null) return { ...base, value: null, low: null, high: null };
    const of = (figure) => figure / (each.entries || 1);
    return { ...base, value: of(each.values[answer]), low: of(each.intervals[answer][0]), high: of(each.intervals[answer][1]) };
  });
}

// The newest period that is complete: final, or with at least nine tenths of the most that were heard at any closing.
export function newestComplete(series) {
  const known = series.series.filter((each) => each.values !== null);
  const most = Math.max(0, ...known.map((each) => each.heard));
  return known.filter((each) => !each.provisional || each.heard >= 0.9 * most).at(-1) ?? known.at(-1) ?? null;
}

function thinned(points) {
  const step = Math.max(1, Math.ceil(points.length / MOST_POINTS));
  return points.filter((_, at) => (points.length - 1 - at) % step === 0);
}

function runs(points) {
  const found = [[]];
  for (const point of points) {
    if (point.value === null) found.push([]);
    else found.at(-1).push(point);
  }
  return found.filter((each) => each.length);
}

const path = (places) => places.map(([x, y], at) => `${at ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

// Lines and bands of one answer. x, y: places of a time, and of a share.
function drawn(points, x, y, colour, dashes, width = 2) {
  const found = [];
  for (const run of runs(thinned(points))) {
    if (run.length === 1) {
      const [{ time, low, high, value }] = run;
      found.push(svg("path", { d: path([[x(time), y(low)], [x(time), y(high)]]), stroke: colour, "stroke-width": 2, class: "band" }));
      found.push(svg("circle", { cx: x(time), cy: y(value), r: 3, fill: colour }));
      continue;
    }
    const around = [...run.map((each) => [x(each.time), y(each.low)]), ...[...run].reverse().map((each) => [x(each.time), y(each.high)])];
    found.push(svg("path", { d: `${path(around)}Z`, fill: colour, "fill-opacity": 0.18, class: "band" }));
    const line = { d: path(run.map((each) => [x(each.time), y(each.value)])), fill: "none", stroke: colour, "stroke-width": width, "stroke-dasharray": dashes };
    found.push(svg("path", { ...line, class: "line" }));
  }
  return found;
}

// The most frequent answer over time, small and without words: for lists, which say in words what it shows.
export function sparkline(series, answer, colour, width = 140, height = 32) {
  const points = pointsOf(series, answer).slice(-60);
  const known = points.filter((each) => each.value !== null);
  const box = svg("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true", class: "sparkline" });
  if (!known.length) return box;
  const [low, high] = [Math.min(...known.map((each) => each.low)), Math.max(...known.map((each) => each.high))];
  const [from, to] = [points[0].time, points.at(-1).time];
  const x = (time) => 3 + ((width - 6) * (time - from)) / (to - from || 1);
  const y = (value) => height - 2 - ((height - 4) * (value - low)) / (high - low || 1);
  box.append(...drawn(points, x, y, colour, "", 1.5));
  return box;
}

function ticks(low, high, most) {
  const rough = (high - low) / most || 1;
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * size).find((each) => each >= rough);
  const first = Math.ceil(low / step - 1e-9);
  return Array.from({ length: Math.max(0, Math.floor(high / step + 1e-9) - first + 1) }, (_, at) => (first + at) * step);
}

const dayOf = (row) => row.time.replace(/T00:00(:00)?Z$/, "").replace("T", " ").replace(/(:00)?Z$/, " UTC");

function interval(point) {
  return point.value === null ? "unknown" : `${share.format(point.value)} (${share.format(point.low)} to ${share.format(point.high)})`;
}

class ChangelingChart extends HTMLElement {
  static observedAttributes = ["survey", "server", "question", "answers", "theme"];
  #series = null;
  #at = null; // which row is pointed at
  #width = 0;
  #turn = 0;
  #watch = new ResizeObserver(([{ contentRect }]) => {
    if (Math.abs(contentRect.width - this.#width) >= 1 && this.#series) this.#draw();
  });

  constructor() {
    super();
    const root = this.attachShadow({ mode: "open" });
    const sheet = new CSSStyleSheet();
    const dark = `@media (prefers-color-scheme: dark) { :host(:not([theme="light"])) ${DARK_COLOURS} } :host([theme="dark"]) ${DARK_COLOURS}`;
    sheet.replaceSync(STYLE.replace("DARK", dark));
    root.adoptedStyleSheets = [sheet];
  }

  connectedCallback() {
    this.#watch.observe(this);
    this.#load();
  }

  disconnectedCallback() {
    this.#watch.disconnect();
  }

  attributeChangedCallback(name, before, after) {
    if (!this.isConnected || before === after) return;
    if (["survey", "server", "question"].includes(name)) this.#load();
    else if (this.#series) this.#draw();
  }

  // What is shown: the answer of /series, as it stands in an edition; for whoever has it already.
  set series(series) {
    this.#turn += 1;
    this.#series = series;
    if (this.isConnected) this.#draw();
  }

  get #server() {
    return (this.getAttribute("server") || new URL(import.meta.url).origin).replace(/[/]+$/, "");
  }

  get #file() {
    return /^[0-9]+$/.test(this.getAttribute("question") ?? "") ? `series-${this.getAttribute("question")}` : "series";
  }

  async #load() {
    const id = this.getAttribute("survey");
    const turn = ++this.#turn;
    if (!id) return;
    try {
      if (!/^[0-9a-f]{32}$/.test(id)) throw new Error("a survey's id is 32 hexadecimal digits");
      const response = await fetch(`${this.#server}/v1/surveys/${id}/editions/latest/${this.#file}.json`, { credentials: "omit" });
      if (!response.ok) throw new Error(response.status === 404 ? "nothing is published of this survey yet" : `the server answered ${response.status}`);
      const series = await response.json();
      if (turn === this.#turn) this.series = series;
    } catch (error) {
      if (turn === this.#turn && !this.#series) this.shadowRoot.replaceChildren(html("figure", {}, html("p", { role: "status" }, `No chart: ${error.message}.`)));
    }
  }

  #answers() {
    const all = this.#series.answers.map((_, number) => number);
    const asked = (this.getAttribute("answers") ?? "").split(",").filter(Boolean).map(Number).filter((each) => all.includes(each));
    if (asked.length) return asked;
    const last = newestComplete(this.#series)?.values ?? [];
    return all.sort((one, other) => (last[other] ?? 0) - (last[one] ?? 0)).slice(0, 6).sort((one, other) => one - other);
  }

  #draw() {
    const series = this.#series;
    this.#width = this.clientWidth;
    const lines = this.#answers().map((number) => ({ number, name: series.answers[number], points: pointsOf(series, number) }));
    const open = this.shadowRoot.querySelector("details")?.open ?? false;
    const focused = this.shadowRoot.activeElement?.classList.contains("plot");
    const legend = lines.map(({ number, name }) => html("li", {}, svg("svg", { width: 24, height: 10, "aria-hidden": "true" },
      svg("line", { x1: 0, x2: 24, y1: 5, y2: 5, ...this.#stroke(number), "stroke-width": 3 })), name));
    const readout = html("p", { class: "readout", "aria-hidden": "true" });
    const plot = this.#plot(lines, readout);
    const table = html("details", {}, html("summary", {}, "The numbers"), html("div", { class: "rows", tabindex: 0, role: "region", "aria-label": "The numbers" }, this.#table(lines)));
    table.open = open;
    this.shadowRoot.replaceChildren(html("figure", {}, html("figcaption", {}, series.question), html("ul", { "aria-label": "Answers" }, ...legend), plot, readout, this.#note(), table));
    if (focused) plot.focus();
  }

  #stroke(number) {
    return { stroke: `var(--c${number % 8})`, "stroke-dasharray": DASHES[Math.floor(number / 8) % 4] };
  }

  #plot(lines, readout) {
    const rows = this.#series.series;
    const width = Math.max(200, this.#width - 24);
    const known = lines.flatMap(({ points }) => points.filter((each) => each.value !== null));
    const low = Math.min(0, ...known.map((each) => each.low));
    const high = Math.max(0.01, ...known.map((each) => each.high));
    const times = rows.map((each) => Date.parse(each.time));
    const [from, to] = [times[0] ?? 0, times.at(-1) ?? 1];
    const x = (time) => MARGIN.left + ((width - MARGIN.left - MARGIN.right) * (time - from)) / (to - from || 1);
    const y = (value) => HEIGHT - MARGIN.bottom - ((HEIGHT - MARGIN.top - MARGIN.bottom) * (value - low)) / (high - low);
    const box = svg("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, height: HEIGHT, "aria-hidden": "true" });
    for (const tick of ticks(low, high, 5)) {
      box.append(svg("line", { x1: MARGIN.left, x2: width - MARGIN.right, y1: y(tick), y2: y(tick), stroke: "var(--grid)" }));
      box.append(svg("text", { x: MARGIN.left - 6, y: y(tick) + 4, "text-anchor": "end" }, (high - low < 0.05 ? share : coarse).format(tick)));
    }
    const many = Math.max(1, Math.min(rows.length - 1, Math.floor(width / 130)));
    for (const at of new Set(Array.from({ length: many + 1 }, (_, each) => Math.round((each * (rows.length - 1)) / many)))) {
      if (!rows[at]) continue;
      const anchor = at === 0 ? "start" : at === rows.length - 1 ? "end" : "middle";
      box.append(svg("text", { x: x(times[at]), y: HEIGHT - 6, "text-anchor": rows.length === 1 ? "start" : anchor }, dayOf(rows[at]).slice(0, 10)));
    }
    const late = rows.findIndex((each) => each.provisional);
    if (late > 0) {
      const begins = x(times[late - 1]);
      box.append(svg("rect", { x: begins, y: MARGIN.top, width: width - MARGIN.right - begins, height: HEIGHT - MARGIN.top - MARGIN.bottom, fill: "var(--quiet)", "fill-opacity": 0.1, class: "provisional" }));
    }
    for (const { number, points } of lines) {
      const { stroke, "stroke-dasharray": dashes } = this.#stroke(number);
      box.append(...drawn(points, x, y, stroke, dashes));
    }
    const cursor = svg("line", { y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom, stroke: "var(--ink)", "stroke-opacity": 0.5 });
    box.append(cursor);
    const plot = html("div", { class: "plot", tabindex: 0, role: "slider", "aria-label": `${this.#series.question}: period`, "aria-valuemin": 1, "aria-valuemax": Math.max(1, rows.length) }, box);
    const move = (at) => {
      this.#at = Math.min(Math.max(at, 0), rows.length - 1);
      const words = this.#words(lines, this.#at);
      cursor.setAttribute("x1", x(times[this.#at]));
      cursor.setAttribute("x2", x(times[this.#at]));
      readout.textContent = words;
      plot.setAttribute("aria-valuenow", this.#at + 1);
      plot.setAttribute("aria-valuetext", words);
    };
    if (rows.length) {
      const newest = rows.indexOf(newestComplete(this.#series));
      move(this.#at ?? (newest < 0 ? rows.length - 1 : newest));
      plot.addEventListener("pointermove", (event) => {
        const scale = width / (box.getBoundingClientRect().width || width);
        const place = (event.clientX - box.getBoundingClientRect().left) * scale;
        move(times.reduce((best, time, at) => (Math.abs(x(time) - place) < Math.abs(x(times[best]) - place) ? at : best), 0));
      });
      plot.addEventListener("keydown", (event) => {
        const steps = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -10, PageUp: 10, Home: -Infinity, End: Infinity };
        if (!(event.key in steps)) return;
        event.preventDefault();
        move(this.#at + steps[event.key]);
      });
    }
    return plot;
  }

  #words(lines, at) {
    const row = this.#series.series[at];
    const state = row.provisional ? ", provisional" : "";
    return `${dayOf(row)}${state}: ${lines.map(({ name, points }) => `${name} ${interval(points[at])}`).join("; ")}`;
  }

  #note() {
    const { epsilon, confidence, survey } = this.#series;
    const gaps = this.#series.series.some((each) => each.values === null) ? " Where lines break nothing is known." : "";
    const late = this.#series.series.some((each) => each.provisional) ? " Late reports may still change what is on a grey ground." : "";
    const last = this.#series.series.filter((each) => each.freezing && each.entries).at(-1);
    const frozen = last ? ` Beyond its band a share may be off by ${coarse.format(last.freezing.bound / last.entries)} in the end, for changes that are not counted.` : "";
    return html("p", {}, `Shares with ${coarse.format(confidence)} bands; whoever takes part loses at most ε = ${epsilon}.${gaps}${late}${frozen} `,
      html("a", { href: `${this.#server}/#${survey}` }, "All of it"), " · ", html("a", { href: `${this.#server}/v1/surveys/${survey}/editions/latest/${this.#file}.csv` }, "CSV"));
  }

  #table(lines) {
    const head = html("tr", {}, ...["end of the period", ...lines.map(({ name }) => name)].map((each) => html("th", { scope: "col" }, each)));
    const rows = this.#series.series.map((row, at) => html("tr", {}, html("th", { scope: "row" }, dayOf(row) + (row.provisional ? " *" : "")),
      ...lines.map(({ points }) => html("td", {}, interval(points[at])))));
    return html("table", { "aria-label": this.#series.question }, html("thead", {}, head), html("tbody", {}, ...rows.slice(-1000).reverse()));
  }
}

if (!customElements.get("changeling-chart")) customElements.define("changeling-chart", ChangelingChart);
