// History groups: one response over all that an entry will say, drawn report by report. docs/histories.md.

import { need } from "./msgpack.mjs";

const NAMES = ["odds", "changes", "span", "either", "first", "every", "times", "null"];
export const FIRST_MEMORY = { drawn: 0, last: 0, first: 0, changed: 0, true: true };

export function makeHistory(fields, answers) {
  need(fields.size === NAMES.length && NAMES.every((name) => fields.has(name)), "a history has eight parts");
  const { odds, ...rest } = Object.fromEntries(fields);
  need(Array.isArray(odds) && odds.length === 2 && odds.every((n) => typeof n === "bigint"), "odds");
  need(odds[0] > odds[1] && odds[1] >= 1n, "odds that say nothing");
  need(Object.values(rest).every((n) => typeof n === "bigint" && n >= 0n && n < 2n ** 53n), "whole numbers");
  const [changes, span, either, first, every, times, open] = NAMES.slice(1).map((name) => Number(rest[name]));
  need(either <= 1 && open <= 1, "yes or no");
  need(first >= 1 && every >= 1 && times >= 1 && times <= 1024, "times");
  need(changes < times && span < times, "more changes than reports show");
  const states = answers + open;
  need(states >= 2, "a single state");
  return { odds, changes, span, either: either === 1, first, every, times, open: open === 1, states };
}

/** Counts the possible histories that go on, one report after the other; and draws. */
export function historyKernel(history) {
  const { odds, changes, span, either, times, open, states } = history;
  const others = BigInt(states - 1);
  const known = new Map();

  const mayChange = (changed, place) =>
    either ? changed < changes || place <= span : changed < changes && place <= span;

  /** The ways to go on for `left` more reports, of which the next is `place` reports after the first answer. */
  function answered(left, changed, place) {
    if (left === 0) return 1n;
    const key = `${left} ${changed} ${place}`;
    if (!known.has(key)) {
      const changing = mayChange(changed, place) ? others * answered(left - 1, changed + 1, place + 1) : 0n;
      known.set(key, answered(left - 1, changed, place + 1) + changing);
    }
    return known.get(key);
  }

  function unanswered(left) {
    let ways = 1n;
    for (let after = 0; after < left; after++) ways += others * answered(after, 0, 1);
    return ways;
  }

  /** How many go on with the last state, and how many with each other one. */
  function goingOn({ drawn, first, changed }) {
    const left = times - drawn - 1;
    if (first === 0) return open ? [unanswered(left), answered(left, 0, 1)] : [answered(left, 0, 1), answered(left, 0, 1)];
    const place = drawn + 1 - first;
    return [
      answered(left, changed, place + 1),
      mayChange(changed, place) ? answered(left, changed + 1, place + 1) : 0n,
    ];
  }

  /** [symbol, memory]; the memory is null after the last report. */
  function respond(input, memory, coins) {
    const [stays, each] = goingOn(memory);
    const ways = Array.from({ length: states }, (_, state) => (state === memory.last ? stays : each));
    const favour = memory.true && ways[input] > 0n ? odds[0] - odds[1] : 0n;
    let drawn = coins.below(favour + odds[1] * ways.reduce((a, b) => a + b));
    let symbol = input;
    if (drawn >= favour) {
      drawn -= favour;
      for (symbol = 0; drawn >= odds[1] * ways[symbol]; symbol++) drawn -= odds[1] * ways[symbol];
    }
    const next = { drawn: memory.drawn + 1, last: symbol, first: memory.first, changed: memory.changed };
    if (memory.first !== 0) next.changed += symbol === memory.last ? 0 : 1;
    else if (symbol !== 0 || !open) next.first = next.drawn;
    next.true = favour > 0n && symbol === input;
    return [BigInt(symbol), next.drawn < times ? next : null];
  }

  const count = open ? unanswered(times) : BigInt(states) * answered(times - 1, 0, 1);
  return { respond, count };
}

/** The tracks of a history group: each time is one in an open cohort; in a closed one they are a row, the first maybe apart. */
export function historyTracks({ open, first, every, times }, randomizer) {
  const track = (width, from, last) => ({ width, first: from, last, count: Math.floor((last - from) / width), reported: null, randomizer });
  const last = first + every * (times - 1);
  if (open) return Array.from({ length: times }, (_, at) => track(1, first + every * at - 1, first + every * at));
  if (first >= every) return [track(every, first - every, last)];
  return [track(1, first - 1, first), ...(times > 1 ? [track(every, first, last)] : [])];
}

/** The limits that a survey's constraint sets to what the reports can show. */
export function limitsOf({ first, every, times }, { calendar, closed }, constraint) {
  const counts = constraint.classes.flatMap(({ k }) => (k ? [k] : []));
  const spans = constraint.classes.flatMap(({ seconds }) => (seconds ? [seconds] : []));
  const most = times - 1;
  const changes = counts.length ? Math.min(Math.max(...counts) - 1, most) : most;
  if (!spans.length) return { changes, span: most, either: false };
  const latest = closed ? 1 : first;
  const within = (at) => (first + every * at - latest) * calendar.period < Math.max(...spans);
  const span = Array.from({ length: most }, (_, at) => at).filter(within).length;
  return { changes, span, either: counts.length > 0 && most > 0 };
}
