// Numbers and times as people read them.

const counts = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const shares = new Intl.NumberFormat("en", { style: "percent", minimumFractionDigits: 1, maximumFractionDigits: 1 });
const days = new Intl.DateTimeFormat("en-CA", { timeZone: "UTC", dateStyle: "short" });
const DAY = 86400;

export const count = (figure) => counts.format(figure).replace("-", "−");
export const share = (figure) => shares.format(figure).replace("-", "−");

// A time, in seconds, as a date; with hours where periods are shorter than days.
export function moment(seconds, periodSeconds) {
  const date = new Date(seconds * 1000);
  const time = date.toISOString().slice(11, periodSeconds % 60 ? 19 : 16);
  return periodSeconds % DAY || seconds % DAY ? `${days.format(date)} ${time} UTC` : days.format(date);
}

export const plural = (figure, word) => `${count(figure)} ${word}${figure === 1 ? "" : "s"}`;

// Runs of numbers that follow each other: [1, 2, 3, 7] is [[1, 3], [7, 7]].
export function runs(numbers) {
  const found = [];
  for (const each of numbers) {
    const last = found[found.length - 1];
    if (last && last[1] === each - 1) last[1] = each;
    else found.push([each, each]);
  }
  return found;
}

export const spanOf = (from, to) => (from === to ? `period ${from}` : `periods ${from} to ${to}`);
export const periods = (numbers) => runs(numbers).map(([from, to]) => spanOf(from, to)).join(", ");
