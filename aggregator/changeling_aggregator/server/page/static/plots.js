// Charts by plotly, in the page's own colours. All that show time share one span of it.

let loading = null;
let span = null; // the milliseconds that are shown, or null for everything
const drawn = new Map(); // from a chart's box to what draws it again
const moving = new Set(); // boxes that are being told the span
const coarse = matchMedia("(pointer: coarse)");

function plotly() {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = "/page/plotly.js";
    script.onload = () => resolve(window.Plotly);
    script.onerror = () => reject(new Error("the script that draws charts could not be loaded"));
    document.head.append(script);
  });
  return loading;
}

export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

export const lineOf = (number) => ({
  color: colour(`c${number % 8}`),
  dash: ["solid", "dash", "dot", "dashdot"][Math.floor(number / 8) % 4],
});

function axis(more = {}) {
  const line = { gridcolor: colour("grid"), zerolinecolor: colour("line"), linecolor: colour("line") };
  return { ...line, automargin: true, title: { standoff: 8 }, ...more };
}

// box: an element. figure: makes {traces, x, y, more}, in the colours of the moment.
export function draw(box, figure) {
  drawn.set(box, figure);
  return redraw(box);
}

async function redraw(box) {
  const Plotly = await plotly();
  const { traces, x = {}, more = {}, ...others } = drawn.get(box)();
  const axes = Object.fromEntries(Object.entries(others).map(([name, each]) => [name, axis({ fixedrange: true, ...each })]));
  const layout = {
    xaxis: axis({ type: "date", spikecolor: colour("quiet"), spikethickness: 1, ...x, ...(span ? { range: [...span] } : {}) }),
    ...axes,
    margin: { l: 8, r: 12, t: 8, b: 8 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif", size: 13, color: colour("ink") },
    hoverlabel: { bgcolor: colour("raised"), bordercolor: colour("line"), font: { color: colour("ink") }, namelength: -1 },
    hovermode: "x unified",
    dragmode: coarse.matches ? false : "zoom",
    showlegend: false,
    ...more,
  };
  await Plotly.react(box, traces, layout, { displayModeBar: false, responsive: true });
  if (box.dataset.heard) return;
  box.dataset.heard = "yes";
  box.on("plotly_relayout", (changed) => {
    if (moving.has(box)) return;
    if (changed["xaxis.autorange"]) show(null);
    else if ("xaxis.range[0]" in changed) {
      show([changed["xaxis.range[0]"], changed["xaxis.range[1]"]].map((each) => milliseconds(each)));
    }
  });
}

// Plotly writes times without a zone, and means UTC.
const milliseconds = (time) => (typeof time === "string" ? Date.parse(`${time.replace(" ", "T")}Z`) : +time);

// Show this span of time in all charts; null for everything.
export async function show(wanted) {
  span = wanted;
  const Plotly = await plotly();
  for (const box of drawn.keys()) {
    moving.add(box);
    await Plotly.relayout(box, span ? { "xaxis.range": [...span] } : { "xaxis.autorange": true });
    moving.delete(box);
  }
}

// How the buttons move the span. whole: from the first to the last time there is.
export function moved(how, whole) {
  const [from, to] = span ?? whole;
  const width = to - from;
  const wanted = {
    in: [from + width / 4, to - width / 4],
    out: [from - width / 2, to + width / 2],
    earlier: [from - width / 2, to - width / 2],
    later: [from + width / 2, to + width / 2],
    all: null,
  }[how];
  return wanted && wanted[1] - wanted[0] < whole[1] - whole[0] ? show(wanted) : show(null);
}

export function forget() {
  span = null;
  for (const box of drawn.keys()) {
    delete box.dataset.heard;
    window.Plotly?.purge(box);
  }
  drawn.clear();
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const box of drawn.keys()) redraw(box);
});
