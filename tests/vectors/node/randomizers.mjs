// Spaces of inputs, and every randomizer: its symbols, what a drawn integer selects, and what a report costs.

import { choose, gcd, ln, sum } from "./arithmetic.mjs";
import { need } from "./msgpack.mjs";

const SPACES = {
  mutations: { changes: true, null: true },
  "mutation-pairs": { changes: true, null: true, repeats: true },
  moves: { changes: true, null: false },
  states: { changes: false, null: true },
  answers: { changes: false, null: false },
};

function makeSpace(name, answers) {
  const kind = Object.hasOwn(SPACES, name) && SPACES[name];
  need(kind, "no such space");
  const states = answers + (kind.null ? 1 : 0);
  const first = kind.null ? 0 : 1;
  const pairs = [];
  if (!kind.changes) for (let state = 0; state < states; state++) pairs.push([0, state + first]);
  else if (kind.repeats) for (let i = 0; i < states ** 2; i++) pairs.push([Math.floor(i / states), i % states]);
  else {
    pairs.push([0, 0]);
    for (let old = 0; old < states; old++)
      for (let now = 0; now < states; now++) if (old !== now) pairs.push([old + first, now + first]);
  }
  const index = (old, now) => {
    if (!kind.changes) return now - first;
    return old === now ? 0 : pairs.findIndex(([a, b]) => a === old && b === now);
  };
  return { ...kind, name, answers, states, pairs, size: pairs.length, index };
}

// Vectors of signs. A shape is [pluses, minuses]; vectors come by shape, then + before - before 0 at each position.

const arrangements = (length, pluses, minuses) =>
  pluses < 0 || minuses < 0 || pluses + minuses > length
    ? 0n
    : choose(BigInt(length), BigInt(pluses)) * choose(BigInt(length - pluses), BigInt(minuses));
const count = (length, shapes) => sum(shapes.map(([p, m]) => arrangements(length, p, m)));
const SIGNS = [1, -1, 0];
const after = (sign, [p, m]) => (sign === 1 ? [p - 1, m] : sign === -1 ? [p, m - 1] : [p, m]);

function unrank(length, shapes, rank) {
  let shape = null;
  for (const each of shapes) {
    const size = arrangements(length, ...each);
    if (rank < size) {
      shape = each;
      break;
    }
    rank -= size;
  }
  const signs = [];
  while (signs.length < length) {
    for (const sign of SIGNS) {
      const rest = after(sign, shape);
      const size = arrangements(length - signs.length - 1, ...rest);
      if (rank < size) {
        signs.push(sign);
        shape = rest;
        break;
      }
      rank -= size;
    }
  }
  return signs;
}

function rankOf(shapes, signs) {
  let shape = [signs.filter((s) => s === 1).length, signs.filter((s) => s === -1).length];
  const place = shapes.findIndex(([p, m]) => p === shape[0] && m === shape[1]);
  let rank = count(signs.length, shapes.slice(0, place));
  signs.forEach((sign, at) => {
    for (const other of SIGNS.slice(0, SIGNS.indexOf(sign))) {
      rank += arrangements(signs.length - at - 1, ...after(other, shape));
    }
    shape = after(sign, shape);
  });
  return rank;
}

/** The shapes of what is left when some positions are fixed, in the same order, without those that cannot be. */
function leftOver(length, shapes, fixed) {
  const signs = [...fixed.values()];
  const taken = [signs.filter((s) => s === 1).length, signs.filter((s) => s === -1).length];
  return shapes
    .map(([p, m]) => [p - taken[0], m - taken[1]])
    .filter(([p, m]) => arrangements(length - fixed.size, p, m) > 0n);
}

function completed(length, rest, fixed) {
  const others = [...rest];
  return Array.from({ length }, (_, at) => (fixed.has(at) ? fixed.get(at) : others.shift()));
}

// The kinds. `at` selects a symbol at given odds: [a, b].

const EVEN = [1n, 1n];
const truthOrOther = (drawn, input, [a, b]) => {
  if (drawn < a) return BigInt(input);
  const other = (drawn - a) / b;
  return other >= BigInt(input) ? other + 1n : other;
};
const flat = (loss) => ({ mutations: loss, appears: loss, vanishes: loss, insertions: loss });

function makeOdds(value) {
  need(Array.isArray(value) && value.length === 2 && value.every((n) => typeof n === "bigint"), "odds are two integers");
  need(value[0] >= value[1] && value[1] >= 1n, "odds the wrong way round");
  return value;
}

function kary(space, { odds }) {
  const m = BigInt(space.size);
  const loss = m > 1n ? ln(...odds) : 0n;
  const alike = space.changes && (space.answers === 1 || !space.null);
  return {
    symbols: m,
    losses: () => ({ ...flat(loss), insertions: alike ? 0n : loss }),
    agreement: [1n, m],
    tells: () => true,
    agrees: (symbol, input) => symbol === BigInt(input),
    below: (input, [a, b]) => a + (m - 1n) * b,
    at: (drawn, input, each) => truthOrOther(drawn, input, each),
  };
}

function karyChange(space, { odds }) {
  need(space.changes && !space.repeats && space.size >= 2, "not over these inputs");
  need(odds[0] > odds[1], "odds that say nothing");
  const m = BigInt(space.size);
  const [a, b] = odds;
  const total = a + (m - 1n) * b;
  return {
    symbols: m,
    losses: () => ({
      mutations: ln(a, b),
      appears: ln(a * m, total),
      vanishes: ln(total, b * m),
      insertions: space.null && space.answers > 1 ? ln(a, b) : 0n,
    }),
    agreement: [1n, m],
    tells: (input) => input !== 0,
    agrees: (symbol, input) => symbol === BigInt(input),
    below: (input, each) => (input ? each[0] + (m - 1n) * each[1] : m),
    at: (drawn, input, each) => (input ? truthOrOther(drawn, input, each) : drawn),
  };
}

function signedSubset(space, { odds, pluses, spoken }) {
  need(space.changes && !space.repeats && space.states >= 2, "not over these inputs");
  need(odds[0] > odds[1], "odds that say nothing");
  const d = space.states;
  const j = Number(pluses);
  need(j === 0 || (j > 0 && 2 * j < d), "too many pluses");
  const half = Math.floor(d / 2);
  const balanced = d % 2 ? [[half, half + 1], [half + 1, half]] : [[half, half]];
  const shapes = j ? [[j, j]] : balanced;
  const [u, whole] = spoken;
  need(u >= 1n && u <= whole && gcd(u, whole) === 1n && whole < 2n ** 64n, "no such chance");
  const all = count(d, shapes);
  const favoured = count(d - 2, leftOver(d, shapes, new Map([[0, 1], [1, -1]])));
  const quiet = u === whole ? 0n : 1n;
  need(quiet + all < 2n ** 63n, "too many symbols");
  const below = (input, [a, b] = EVEN) => (input ? whole * all * b + u * favoured * (a - b) : whole * all);
  const places = (input) => space.pairs[input].map((state) => state - (space.null ? 0 : 1));
  return {
    symbols: quiet + all,
    losses: () => ({
      mutations: ln(...odds),
      appears: ln(odds[0] * below(0), below(1, odds)),
      vanishes: ln(below(1, odds), odds[1] * below(0)),
      insertions: space.null && space.answers > 1 ? ln(...odds) : 0n,
    }),
    agreement: [u * favoured, whole * all],
    tells: (input) => input !== 0,
    agrees: (symbol, input) => {
      if (symbol < quiet) return false;
      const signs = unrank(d, shapes, symbol - quiet);
      const [old, now] = places(input);
      return signs[now] === 1 && signs[old] === -1;
    },
    below,
    at: (drawn, input, each) => {
      const [a, b] = input ? each : EVEN;
      const [old, now] = input ? places(input) : [0, 0];
      const classes = input
        ? [1, -1, 0].flatMap((atNow) => [1, -1, 0].map((atOld) => new Map([[now, atNow], [old, atOld]])))
        : [new Map()];
      for (const fixed of classes) {
        const agrees = input && fixed.get(now) === 1 && fixed.get(old) === -1;
        const weight = u * (agrees ? a : b);
        const rest = leftOver(d, shapes, fixed);
        const size = weight * count(d - fixed.size, rest);
        if (drawn < size) {
          const signs = completed(d, unrank(d - fixed.size, rest, drawn / weight), fixed);
          return quiet + rankOf(shapes, signs);
        }
        drawn -= size;
      }
      return 0n;
    },
  };
}

function subset(space, { odds, chosen }) {
  need(!space.changes, "not over these inputs");
  need(odds[0] > odds[1], "odds that say nothing");
  const [m, size] = [space.size, Number(chosen)];
  need(size >= 1 && size < m, "no such sets");
  const shapes = [[size, 0]];
  const symbols = count(m, shapes);
  need(symbols < 2n ** 63n, "too many symbols");
  const holding = choose(BigInt(m - 1), BigInt(size - 1));
  return {
    symbols,
    losses: () => flat(ln(...odds)),
    agreement: [BigInt(size), BigInt(m)],
    tells: () => true,
    agrees: (symbol, input) => unrank(m, shapes, symbol)[input] === 1,
    below: (input, [a, b]) => a * holding + b * (symbols - holding),
    at: (drawn, input, [a, b]) => {
      const holds = drawn < a * holding;
      const fixed = new Map([[input, holds ? 1 : 0]]);
      const rank = holds ? drawn / a : (drawn - a * holding) / b;
      return rankOf(shapes, completed(m, unrank(m - 1, leftOver(m, shapes, fixed), rank), fixed));
    },
  };
}

function unary(space, { odds }) {
  need(!space.changes, "not over these inputs");
  need(odds[0] > odds[1], "odds that say nothing");
  need(space.size >= 2 && space.size <= 62, "too few or too many states");
  const whole = odds[0] + odds[1];
  return {
    symbols: 2n ** BigInt(space.size),
    losses: () => flat(ln(...odds)),
    below: () => 2n * whole ** BigInt(space.size - 1),
    at: (drawn, input, [, b]) => {
      let symbol = 0n;
      for (let bit = 0; bit < space.size; bit++) {
        const [base, set] = bit === input ? [2n, 1n] : [whole, b];
        if (drawn % base < set) symbol |= 1n << BigInt(bit);
        drawn /= base;
      }
      return symbol;
    },
  };
}

function custom(space, { weights }) {
  need(Array.isArray(weights) && weights.length > 0 && weights.every(Array.isArray), "weights are rows");
  for (const row of weights) {
    need(row.length === space.size, "a weight for each input");
    need(row.every((w) => typeof w === "bigint" && w >= 0n && w < 2n ** 64n), "weights are from 0 to 2^64 - 1");
    need(row.some((w) => w > 0n), "nobody sends a symbol");
  }
  const totals = space.pairs.map((_, input) => sum(weights.map((row) => row[input])));
  need(totals.every((total) => total > 0n), "an input has nothing to send");
  const worst = (above, under) => {
    const ratios = weights.flatMap((row) =>
      above.flatMap((u) => under.map((v) => [row[u] * totals[v], row[v] * totals[u]])),
    );
    need(ratios.every(([n, d]) => d > 0n || n === 0n), "an infinite loss");
    const most = ratios.filter(([, d]) => d > 0n).reduce((best, each) => (each[0] * best[1] > best[0] * each[1] ? each : best), [0n, 1n]);
    return most[0] ? ln(...most) : 0n;
  };
  const every = space.pairs.map((_, input) => input);
  const mutations = every.filter((input) => space.pairs[input][0] !== space.pairs[input][1]);
  const insertions = mutations.filter((input) => space.pairs[input][0] === 0);
  return {
    symbols: BigInt(weights.length),
    losses: () =>
      space.changes
        ? {
            mutations: worst(mutations, mutations),
            appears: worst(mutations, [0]),
            vanishes: worst([0], mutations),
            insertions: worst(insertions, insertions),
          }
        : flat(worst(every, every)),
    below: (input) => totals[input],
    at: (drawn, input) => {
      for (const [symbol, row] of weights.entries()) {
        if (drawn < row[input]) return BigInt(symbol);
        drawn -= row[input];
      }
      throw new Error("not below the total");
    },
  };
}

const KINDS = {
  "k-rr": [kary, ["odds"]],
  "k-rr-change": [karyChange, ["odds"]],
  "signed-subset": [signedSubset, ["odds", "pluses", "spoken"]],
  subset: [subset, ["odds", "chosen"]],
  unary: [unary, ["odds"]],
  custom: [custom, ["weights"]],
};

/** A randomizer from its fields, a Map. odds: those of a joint group's track, whose fields have none. */
export function makeRandomizer(fields, answers, odds = null) {
  const kind = fields.get("kind");
  need(typeof kind === "string" && Object.hasOwn(KINDS, kind), "no such randomizer");
  const [make, names] = KINDS[kind];
  const own = new Map(fields);
  own.delete("kind");
  own.delete("space");
  if (odds) {
    need(!own.has("odds"), "odds of its own");
    own.set("odds", odds);
  }
  need(own.size === names.length && names.every((name) => own.has(name)), "other parameters than it has");
  const parameters = Object.fromEntries(own);
  if ("odds" in parameters) makeOdds(parameters.odds);
  for (const name of ["pluses", "chosen"]) need(!(name in parameters) || typeof parameters[name] === "bigint", name);
  const { spoken } = parameters;
  need(!spoken || (Array.isArray(spoken) && spoken.length === 2 && spoken.every((n) => typeof n === "bigint")), "spoken");
  const space = makeSpace(fields.get("space"), answers);
  const made = make(space, parameters);
  const bytes = Math.ceil(made.symbols.toString(2).length / 8);
  return { ...made, kind, space, bytes, odds: parameters.odds ?? null };
}

export const ownBelow = (randomizer, input) => randomizer.below(input, randomizer.odds);
export const ownAt = (randomizer, drawn, input) => randomizer.at(drawn, input, randomizer.odds);
export { EVEN };
