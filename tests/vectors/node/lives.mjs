// A device: what it draws when it joins, what becomes of records, and what it answers and sends at a flush.

import { FIRST_MEMORY } from "./histories.mjs";
import { respond } from "./joint.mjs";
import { MOST_SPANNED, closeMs, closedAt, closingsOf, endingAt, nodeEnd, plaintext } from "./uploads.mjs";
import { unsigned } from "./msgpack.mjs";

/** Coins that a vector lists: what each draw is to be below, and what comes. */
export class ListedCoins {
  constructor(listed) {
    this.listed = listed.map(([below, drawn]) => [BigInt(below), BigInt(drawn)]);
  }

  below(n) {
    if (!this.listed.length) throw new Error(`a draw below ${n}, where the vector lists no more`);
    const [below, drawn] = this.listed.shift();
    if (below !== BigInt(n)) throw new Error(`a draw below ${n}, where the vector lists one below ${below}`);
    if (drawn < 0n || drawn >= below) throw new Error("the vector lists a draw that cannot be");
    return drawn;
  }

  allTaken() {
    if (this.listed.length) throw new Error(`${this.listed.length} draws of the vector were not asked for`);
  }
}

export function drawGroup(shares, coins) {
  let drawn = coins.below(shares.reduce((a, b) => a + b, 0n));
  for (const [group, share] of shares.entries()) {
    if (drawn < share) return group;
    drawn -= share;
  }
  throw new Error("unreachable");
}

/** Floyd's sample: rising numbers of nodes, from 1. */
export function drawNodes(count, reported, coins) {
  if (reported === null) return Array.from({ length: count }, (_, i) => i + 1);
  const chosen = new Set();
  for (let top = count - reported + 1; top <= count; top++) {
    const node = 1 + Number(coins.below(BigInt(top)));
    chosen.add(chosen.has(node) ? top : node);
  }
  return [...chosen].sort((a, b) => a - b);
}

export const drawId = (coins) => unsigned(coins.below(2n ** 128n), 16);
const drawDelay = (survey, coins) => Number(coins.below(BigInt(1000 * survey.spread)));

export function stratumOf(breakdowns, told) {
  const names = breakdowns.map(({ name }) => name);
  if (Object.keys(told).length !== names.length || !names.every((name) => Object.hasOwn(told, name))) {
    throw new Error("a value for each breakdown");
  }
  return breakdowns.reduce((number, { name, values }) => {
    const value = values.indexOf(told[name]);
    if (value < 0) throw new Error("no such value");
    return number * values.length + value;
  }, 0);
}

const allTracks = (survey) => survey.groups.flatMap((group) => group.tracks);
/** An entry as it joins: it draws its group, then its nodes, track by track, then its first delay. */
export function enrol(survey, timeMs, told, coins) {
  const group = drawGroup(survey.groups.map(({ share }) => share), coins);
  const nodes = new Map();
  for (const track of survey.groups[group].tracks) {
    if (track.reported !== null) nodes.set(track.number, drawNodes(track.count, track.reported, coins));
  }
  const delay = drawDelay(survey, coins);
  const { joint, history } = survey.groups[group];
  return {
    ...{ survey, group, delay, nodes, answered: closedAt(survey.calendar, timeMs), standing: "new" },
    ...{ stratum: stratumOf(survey.breakdowns, told ?? {}), changelog: [], frozen: [], mutations: 0, firstMs: null, pending: false, batches: [] },
    slots: joint ? { used: joint.slots.map(() => 0), score: 0 } : history ? FIRST_MEMORY : null,
  };
}

/** question: 0 for the one that is recorded; 1 for whether it is frozen, if the survey asks for that. */
const stateAt = (entry, timeMs, question = 0) =>
  (question ? entry.frozen : entry.changelog).filter((each) => each.atMs <= timeMs).at(-1)?.state ?? 0;

function admits({ classes }, mutations, elapsedMs) {
  return classes.some(({ k, seconds }) => (k ? mutations < k : mutations === 0 || elapsedMs <= seconds * 1000));
}

const reportsOn = (entry, track, node) => track.reported === null || entry.nodes.get(track.number).includes(node);

/** The ends of the nodes that the entry has still to report. */
const endsToReport = (entry) =>
  entry.survey.groups[entry.group].tracks.flatMap((track) =>
    Array.from({ length: track.count }, (_, i) => i + 1)
      .filter((node) => nodeEnd(track, node) > entry.answered && reportsOn(entry, track, node))
      .map((node) => nodeEnd(track, node)),
  );

/** Takes the entry into a state; 0 is NULL. timeKnown: whether what a wrong clock could decide is decided. */
export function record(entry, state, timeMs, timeKnown = false) {
  const becomes = recorded(entry, state, timeMs, timeKnown);
  const atMs = Math.max(timeMs, closeMs(entry.survey.calendar, entry.answered) + 1);
  if (becomes === "counted" && entry.frozen.length === 0) entry.frozen.push({ atMs, state: 1 });
  if (becomes === "frozen" && !(entry.survey.closed && state === 0)) entry.frozen.push({ atMs, state: 2 });
  return becomes;
}

function recorded(entry, state, timeMs, timeKnown) {
  const { survey } = entry;
  const ends = endsToReport(entry);
  if (ends.length === 0) return "frozen";
  if (entry.pending) return "pending";
  if (state === stateAt(entry, Infinity)) return "unchanged";
  const atMs = Math.max(timeMs, closeMs(survey.calendar, entry.answered) + 1);
  if ((survey.closed && state === 0) || !admits(survey.constraints[0], entry.mutations, 0)) return "frozen";
  const isOver = atMs > closeMs(survey.calendar, Math.max(...ends));
  if (isOver || !admits(survey.constraints[0], entry.mutations, atMs - (entry.firstMs ?? atMs))) {
    if (timeKnown) return "frozen";
    entry.pending = true; // the clocks of vectors are true: what waits for the time is frozen once it is heard
    return "pending";
  }
  entry.firstMs ??= Math.floor(atMs / 1000) * 1000;
  entry.mutations += 1;
  entry.changelog.push({ atMs, state });
  return "counted";
}

/** Answers what is due, and packs all that waits. Returns { dropped, plaintexts }. */
export function flush(entry, timeMs, coins) {
  const { survey } = entry;
  const isLate = (period) => timeMs > closeMs(survey.calendar, period) + 1000 * survey.grace;
  let dropped = 0;
  const drop = (standing) => {
    dropped += 1;
    if (standing !== "known") entry.standing = "missed";
  };
  for (const each of entry.batches.flat().filter(({ period }) => isLate(period))) drop(each.standing);
  const kept = entry.batches.map((batch) => batch.filter(({ period }) => !isLate(period)));
  const answers = [];
  for (const period of closingsOf(allTracks(survey), entry.answered, closedAt(survey.calendar, timeMs))) {
    if (isLate(period)) {
      drawUnsent(entry, period, coins);
      drop(entry.standing);
    } else if (timeMs > closeMs(survey.calendar, period) + 1000 * survey.skew + entry.delay) {
      answers.push(answer(entry, period, coins));
    } else break;
    entry.answered = period;
    entry.delay = drawDelay(survey, coins);
  }
  entry.batches = [...kept, ...batchesOf(answers)].filter((batch) => batch.length > 0);
  entry.pending = false;
  const plaintexts = entry.batches.map((batch) => {
    const span = [batch[0].period - 1, batch.at(-1).period];
    return plaintext(survey, entry.group, span, batch, batch.flatMap(({ reports }) => reports));
  });
  return { dropped, plaintexts };
}

/** What is answered in one go is one upload, cut only where it would span too much. */
function batchesOf(answers) {
  const batches = [];
  for (const each of answers) {
    const last = batches.at(-1);
    if (last && each.period - last[0].period < MOST_SPANNED) last.push(each);
    else batches.push([each]);
  }
  return batches;
}

/** The reports of a history that nobody is sent, as their times are dropped or lie before enrolment, are drawn all the same. */
function drawUnsent(entry, until, coins) {
  const { history, tracks } = entry.survey.groups[entry.group];
  while (history && entry.slots && history.first + history.every * entry.slots.drawn <= until) {
    const period = history.first + history.every * entry.slots.drawn;
    const state = stateAt(entry, closeMs(entry.survey.calendar, period));
    [, entry.slots] = history.kernel.respond(tracks[0].randomizer.space.index(0, state), entry.slots, coins);
  }
}

function answer(entry, period, coins) {
  const { survey } = entry;
  const group = survey.groups[entry.group];
  const reports = [];
  drawUnsent(entry, period - 1, coins);
  group.tracks.forEach((track, place) => {
    const node = endingAt(track, period);
    if (node === null || !reportsOn(entry, track, node)) return;
    const [before, now] = [period - track.width, period].map((at) => stateAt(entry, closeMs(survey.calendar, at), track.question));
    const [symbol, slots] = respond(group, place, track.randomizer.space.index(before, now), entry.slots, coins);
    entry.slots = slots;
    reports.push({ track: track.number, node, symbol });
  });
  const { standing, stratum } = entry;
  entry.standing = "known";
  return { period, id: drawId(coins), standing, stratum, reports };
}
