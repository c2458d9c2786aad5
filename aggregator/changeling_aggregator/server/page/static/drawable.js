// What is handed to plotly: no more points than a screen can show apart, and no text that it would read as HTML.

export const MOST_POINTS = 500; // of a series

// Every how manieth of so many points is drawn.
export const stepOf = (many) => Math.max(1, Math.ceil(many / MOST_POINTS));

// Every k-th point, the last one included.
export function thinned(points) {
  const step = stepOf(points.length);
  return points.filter((_, at) => (points.length - 1 - at) % step === 0);
}

// Plotly reads what it writes into charts as HTML of a few tags: <b>, <a href>, <br>.
export const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
