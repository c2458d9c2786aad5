// The calendar, the closings of a plan, and the plaintext of an upload.

import { encode, unsigned } from "./msgpack.mjs";

export const MOST_SPANNED = 64;
export const STANDINGS = ["known", "new", "missed"];

export const closeMs = (calendar, period) => (calendar.start + period * calendar.period) * 1000;

/** How many periods have closed at a time: a period closes just after its last instant. */
export function closedAt(calendar, timeMs) {
  const holding = Math.ceil((timeMs - calendar.start * 1000) / (calendar.period * 1000));
  return Math.min(Math.max(holding - 1, 0), calendar.periods);
}

export const nodeEnd = (track, node) => track.first + node * track.width;

/** The number of the track's node that ends with a period, or null. */
export function endingAt(track, period) {
  const node = (period - track.first) / track.width;
  return Number.isInteger(node) && node >= 1 && node <= track.count ? node : null;
}

/** The periods in (after, until] at which a node of any track ends. */
export function closingsOf(tracks, after, until) {
  const periods = [];
  for (let period = after + 1; period <= until; period++) {
    if (tracks.some((track) => endingAt(track, period) !== null)) periods.push(period);
  }
  return periods;
}

const allTracks = (survey) => survey.groups.flatMap((group) => group.tracks);

function nodesIn(track, [start, end]) {
  return Array.from({ length: track.count }, (_, i) => i + 1).filter((node) => {
    const at = nodeEnd(track, node);
    return at > start && at <= end;
  });
}

/** closings: { period, id, standing, stratum }; reports: { track, node, symbol }. */
export function plaintext(survey, group, span, closings, reports) {
  const packed = pack(survey, group, span, closings, reports);
  return Buffer.concat([packed, Buffer.alloc(lengthOf(survey, span) - packed.length)]);
}

/** The length of every plaintext over a span: that of the longest group's. */
export const lengthOf = (survey, span) =>
  Math.max(...survey.groups.map((_, group) => pack(survey, group, span, [], []).length));

function pack(survey, group, span, closings, reports) {
  const rows = closingsOf(allTracks(survey), ...span).map((period) => closings.find((each) => each.period === period));
  const column = Buffer.concat([
    ...rows.map((row) => row?.id ?? Buffer.alloc(16)),
    ...rows.map((row) => Buffer.of(row ? STANDINGS.indexOf(row.standing) + 1 : 0)),
    ...rows.map((row) => unsigned(BigInt(row?.stratum ?? 0), 2)),
  ]);
  const symbols = survey.groups[group].tracks.map((track) =>
    Buffer.concat(
      nodesIn(track, span).map((node) => {
        const report = reports.find((each) => each.track === track.number && each.node === node);
        return unsigned(report ? report.symbol + 1n : 0n, track.randomizer.bytes);
      }),
    ),
  );
  return encode([group, ...span, column, ...symbols]);
}
