// Joint groups: how the reports of all tracks hang together. docs/joint.md.

import { choose, lowest } from "./arithmetic.mjs";
import { need } from "./msgpack.mjs";
import { EVEN } from "./randomizers.mjs";

export function makeJoint(fields, tracks) {
  need(fields.size === 4, "a joint response has four parts");
  const [odds, threshold, weights, slots] = ["odds", "threshold", "weights", "slots"].map((name) => fields.get(name));
  const integers = (list) => Array.isArray(list) && list.every((n) => typeof n === "bigint");
  need(integers(odds) && odds.length === 2 && typeof threshold === "bigint", "odds and a threshold");
  need(integers(weights) && integers(slots) && weights.length === slots.length, "weights and slots");
  need(weights.length === tracks, "a weight for each track");
  need(odds[0] > odds[1] && odds[1] >= 1n, "joint odds that say nothing");
  need([...weights, ...slots].every((n) => n >= 1n), "weights and slots are positive");
  const heaviest = weights.reduce((total, weight, i) => total + weight * slots[i], 0n);
  need(heaviest <= 1024n, "too heavy");
  need(threshold >= 1n && threshold <= heaviest, "a threshold that cannot be reached");
  return { odds, threshold: Number(threshold), weights: weights.map(Number), slots: slots.map(Number) };
}

/** The kernel of a joint group. agreements: p of each track, [numerator, denominator]. */
export function makeKernel(joint, agreements) {
  const chances = agreements.map(([n, d]) => lowest(n, d));
  const bits = chances.reduce((total, [, d], i) => total + d.toString(2).length * joint.slots[i], 0);
  need(bits <= 2048, "chances of too many bits");

  /** b, or a from the threshold on, times the weight of every pattern of the slots that are left; added up. */
  function density(left, score) {
    const needed = Math.max(joint.threshold - score, 0);
    let below = Array(needed).fill(0n);
    if (needed) below[0] = 1n;
    let every = 1n;
    left.forEach((slots, track) => {
      const [agree, either] = chances[track];
      every *= either ** BigInt(slots);
      const next = Array(needed).fill(0n);
      for (let agreed = 0; agreed <= slots; agreed++) {
        const ways =
          choose(BigInt(slots), BigInt(agreed)) * agree ** BigInt(agreed) * (either - agree) ** BigInt(slots - agreed);
        const step = agreed * joint.weights[track];
        for (let at = step; at < needed; at++) next[at] += ways * below[at - step];
      }
      below = next;
    });
    const under = below.reduce((a, b) => a + b, 0n);
    return joint.odds[0] * (every - under) + joint.odds[1] * under;
  }

  function conditional(track, used, score) {
    const left = joint.slots.map((slots, i) => slots - used[i] - (i === track ? 1 : 0));
    return lowest(density(left, score + joint.weights[track]), density(left, score));
  }

  const kinds = new Set(chances.map(([n, d], i) => `${n}/${d} ${joint.weights[i]}`));
  const steps = kinds.size * joint.slots.reduce((a, b) => a + b) * joint.threshold;
  const name = [chances, joint.weights, joint.slots, joint.threshold, joint.odds].join(" ");
  return { conditional, steps, name };
}

/** Draws the symbol of one report: [symbol, slots]. slots: { used, score }, or null if none is left; of a history its memory. */
export function respond(group, place, input, slots, coins) {
  if (group.history) return group.history.kernel.respond(input, slots, coins);
  const { randomizer } = group.tracks[place];
  if (!group.joint) return [randomizer.at(coins.below(randomizer.below(input, randomizer.odds)), input, randomizer.odds), null];
  if (!slots || slots.used[place] === group.joint.slots[place] || !randomizer.tells(input)) {
    return [randomizer.at(coins.below(randomizer.below(input, EVEN)), input, EVEN), slots];
  }
  const odds = group.kernel.conditional(place, slots.used, slots.score);
  const symbol = randomizer.at(coins.below(randomizer.below(input, odds)), input, odds);
  const used = slots.used.map((n, i) => n + (i === place ? 1 : 0));
  if (used.every((n, i) => n === group.joint.slots[i])) return [symbol, null];
  const gained = randomizer.agrees(symbol, input) ? group.joint.weights[place] : 0;
  return [symbol, { used, score: Math.min(group.joint.threshold, slots.score + gained) }];
}
