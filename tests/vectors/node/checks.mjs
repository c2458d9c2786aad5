// For every file of vectors, and every kind of case in it, what an implementation must do. Each check throws at a difference.

import { deepStrictEqual } from "node:assert";
import { ceiling, ln, micro } from "./arithmetic.mjs";
import * as bodies from "./bodies.mjs";
import { planCost, restoredCost } from "./cost.mjs";
import { publicOf, seal, unseal } from "./crypto.mjs";
import { respond } from "./joint.mjs";
import { ListedCoins, drawGroup, drawId, drawNodes, enrol, flush, record, stratumOf } from "./lives.mjs";
import { Malformed, decode, encode } from "./msgpack.mjs";
import { makeRandomizer, ownAt, ownBelow } from "./randomizers.mjs";
import * as surveys from "./surveys.mjs";
import { MOST_SPANNED, closedAt, closingsOf, lengthOf, plaintext } from "./uploads.mjs";

const same = deepStrictEqual;
const hex = (text) => Buffer.from(text, "hex");
const pinned = (vector) => vector.authority.map(hex);

/** The fields of a signed object, from JSON: every integer is a BigInt, also one that stands as digits. */
function fieldsOf(value) {
  if (Array.isArray(value)) return value.map(fieldsOf);
  if (value !== null && typeof value === "object") return new Map(Object.entries(value).map(([k, v]) => [k, fieldsOf(v)]));
  return typeof value === "number" || (typeof value === "string" && /^-?\d+$/.test(value)) ? BigInt(value) : value;
}

function fromTagged([type, value]) {
  const read = {
    nil: () => null,
    bool: () => value,
    int: () => BigInt(value),
    str: () => value,
    bin: () => hex(value),
    list: () => value.map(fromTagged),
    map: () => new Map(value.map(([key, each]) => [key, fromTagged(each)])),
  };
  return read[type]();
}

function tagged(value) {
  if (value === null) return ["nil"];
  if (Array.isArray(value)) return ["list", value.map(tagged)];
  if (value instanceof Map) return ["map", [...value].map(([key, each]) => [key, tagged(each)])];
  if (value instanceof Uint8Array) return ["bin", value.toString("hex")];
  return { boolean: ["bool", value], bigint: ["int", String(value)], string: ["str", value] }[typeof value];
}

/** That something throws one of these errors, and no other. */
function refused(doing, ...errors) {
  try {
    doing();
  } catch (error) {
    if (errors.some((each) => error instanceof each)) return;
    throw error;
  }
  throw new Error("taken, where it must be refused");
}

const survey = (vector) => surveys.readSurvey(hex(vector.survey), pinned(vector));

function checkLife(vector) {
  const asked = survey(vector);
  const coins = new ListedCoins(vector.coins);
  const entries = [];
  for (let number = 0; number < vector.entries; number++) {
    const entry = enrol(asked, vector.joined_ms, vector.stratum, coins);
    entries.push(entry);
    if (vector.answers) same(record(entry, asked.questions[0].answers.indexOf(vector.answers[number]) + 1, vector.joined_ms, true), "counted");
  }
  coins.allTaken();
  for (const event of vector.events) {
    const drawn = new ListedCoins(event.coins);
    const entry = entries[event.entry];
    if (event.does === "record" || event.does === "retract") {
      const state = event.does === "record" ? asked.questions[0].answers.indexOf(event.answer) + 1 : 0;
      const becomes = record(entry, state, event.at_ms);
      if (event.becomes !== null) same(becomes, event.becomes);
    } else if (event.does === "stratum") {
      entry.stratum = stratumOf(asked.breakdowns, event.stratum);
    } else if (event.does === "flush" || event.does === "flush, not kept") {
      const done = entries.map((each) => flush(each, event.at_ms, drawn));
      same(done.reduce((dropped, each) => dropped + each.dropped, 0), event.dropped);
      same(done.flatMap((each) => each.plaintexts.map((bytes) => bytes.toString("hex"))), event.plaintexts);
      if (event.does === "flush") for (const each of entries) each.batches = [];
    } else throw new Error(`no such event: ${event.does}`);
    drawn.allTaken();
  }
}

function checkJoint(vector) {
  const group = surveys.readGroup(fieldsOf(vector.group), [vector.answers]);
  same(group.tracks.map(({ randomizer }) => randomizer.odds.map(String)), vector.odds);
  same(vector.reports.length > 0, true);
  for (const report of vector.reports) {
    for (const [drawn, symbol, slots] of report.symbols) {
      const coins = new ListedCoins([[report.below, drawn]]);
      const [chosen, left] = respond(group, report.track, report.input, report.slots, coins);
      coins.allTaken();
      same([String(chosen), left], [symbol, slots]);
    }
  }
}

function checkHistories(vector) {
  const group = surveys.readGroup(fieldsOf(vector.group), [vector.answers]);
  same(String(group.history.kernel.count), vector.histories);
  same(vector.reports.length > 0, true);
  for (const report of vector.reports) {
    for (const [drawn, symbol, memory] of report.symbols) {
      const coins = new ListedCoins([[report.below, drawn]]);
      const [chosen, left] = respond(group, 0, report.input, report.memory, coins);
      coins.allTaken();
      same([String(chosen), left], [symbol, memory]);
    }
  }
}

function checkRandomizer(vector) {
  const randomizer = makeRandomizer(fieldsOf(vector.randomizer), vector.answers);
  same([String(randomizer.symbols), randomizer.bytes], [vector.symbols, vector.bytes]);
  same(vector.inputs.length > 0, true);
  for (const { input, states, below, symbols } of vector.inputs) {
    same(randomizer.space.pairs[input], states);
    same(randomizer.space.index(...states), states[0] === states[1] && randomizer.space.changes ? 0 : input);
    same(String(ownBelow(randomizer, input)), below);
    for (const [drawn, symbol] of symbols) same(String(ownAt(randomizer, BigInt(drawn), input)), symbol);
  }
}

function checkCost(vector) {
  const asked = {
    calendar: surveys.readCalendar(fieldsOf(vector.calendar)),
    constraints: vector.constraints.map((each) => surveys.readConstraint(fieldsOf(each))),
    closed: vector.closed,
    groups: surveys.readPlan(fieldsOf(vector.plan), vector.answers),
  };
  same(micro(planCost(asked)), vector.micro);
  same(micro(restoredCost(asked)), vector.micro_if_restored);
  same(vector.stated_micro >= vector.micro, true);
  const seconds = BigInt(asked.calendar.period * asked.calendar.periods);
  same(Number(ceiling(BigInt(vector.stated_micro) * 604800n, seconds)), vector.stated_micro_per_week);
}

const READ = { survey: surveys.readSurvey, "sealing-key": surveys.readKey, "early-end": surveys.readEnd };
const REASONS = {
  malformed: Malformed,
  "bad-signature": surveys.BadSignature,
  "understated-epsilon": surveys.Understated,
};
const BODIES = {
  acknowledgement: (vector) => bodies.acknowledgement(hex(vector.body), vector.envelopes),
  "key list": (vector) => [vector.envelopes, bodies.keyList(hex(vector.body))],
  error: (vector) => [vector.envelopes, bodies.errorAnswer(hex(vector.body))],
};
const INFO = (head) => Buffer.concat([Buffer.of(head.version), hex(head.survey), hex(head.key)]);

export const CHECKS = {
  bodies: {
    path: (vector) => {
      const asked = vector.asks === "survey" ? bodies.ASKS.survey(vector.survey) : bodies.ASKS[vector.asks]();
      same(asked, [vector.method, vector.path]);
      same(vector["media type"], bodies.MSGPACK);
    },
    limits: (vector) => {
      same(vector["most bytes of a body"], bodies.MOST_BODY_BYTES);
      same(vector["most envelopes of a request"], bodies.MOST_ENVELOPES);
      same(vector["most periods of an upload"], MOST_SPANNED);
    },
    "upload request": (vector) => same(bodies.uploadRequest(vector.envelopes.map(hex)).toString("hex"), vector.body),
    acknowledgement: (vector) => same(bodies.acknowledgement(hex(vector.body), vector.envelopes), vector.refused),
    "key list": (vector) => same(bodies.keyList(hex(vector.body)).map((key) => key.toString("hex")), vector.signed),
    error: (vector) => {
      same(bodies.errorAnswer(hex(vector.body)), { code: vector.code, detail: vector.detail });
      same([bodies.STATUS[vector.code], bodies.PROBLEM], [vector.status, vector["media type"]]);
    },
    refused: (vector) => refused(() => BODIES[vector.what](vector), Malformed),
  },
  calendars: {
    closed: (vector) => same(closedAt(surveys.readCalendar(fieldsOf(vector.calendar)), vector.time_ms), vector.closed),
    closings: (vector) => {
      const tracks = vector.tracks.map(([width, first, last]) => ({ width, first, count: Math.floor((last - first) / width) }));
      same(closingsOf(tracks, vector.after, vector.until), vector.periods);
    },
  },
  canonical: {
    value: (vector) => {
      same(encode(fromTagged(vector.value)).toString("hex"), vector.encoded);
      same(tagged(decode(hex(vector.encoded))), vector.value);
    },
    refused: (vector) => refused(() => decode(hex(vector.encoded)), Malformed),
  },
  costs: {
    odds: (vector) => same(micro(ln(...vector.odds.map(BigInt))), vector.micro),
    losses: (vector) => {
      const losses = makeRandomizer(fieldsOf(vector.randomizer), vector.answers).losses();
      for (const name of ["mutations", "appears", "vanishes", "insertions"]) same(micro(losses[name]), vector[name]);
    },
    survey: checkCost,
  },
  draws: {
    group: (vector) => drawn(vector, (coins) => same(drawGroup(vector.shares.map(BigInt), coins), vector.group)),
    nodes: (vector) => drawn(vector, (coins) => same(drawNodes(vector.count, vector.reported, coins), vector.nodes)),
    "closing id": (vector) => drawn(vector, (coins) => same(drawId(coins).toString("hex"), vector.id)),
  },
  histories: { group: checkHistories },
  joint: { group: checkJoint },
  lives: { life: checkLife },
  seals: {
    seal: (vector) => {
      const [key, info] = [hex(vector.public), INFO(vector.head)];
      same([publicOf(hex(vector.private)), surveys.keyId(key)], [key, hex(vector.head.key)]);
      same(BigInt(vector.head.version), surveys.VERSION);
      const sealed = seal(hex(vector.plaintext), key, info, hex(vector.ephemeral));
      same(Buffer.concat([info, sealed]).toString("hex"), vector.envelope);
      same(unseal(sealed, hex(vector.private), info).toString("hex"), vector.plaintext);
    },
    refused: (vector) => {
      const envelope = hex(vector.envelope);
      refused(() => unseal(envelope.subarray(33), hex(vector.private), envelope.subarray(0, 33)), Error);
    },
  },
  signed: {
    survey: (vector) => {
      const read = surveys.readSurvey(hex(vector.signed), pinned(vector));
      same(read.id.toString("hex"), vector.id);
      same(tagged(decode(read.payload)), vector.payload);
    },
    "sealing-key": (vector) => {
      const key = surveys.readKey(hex(vector.signed), pinned(vector));
      same([key.id.toString("hex"), key.public.toString("hex")], [vector.id, vector.public]);
      same([Number(key.begins), Number(key.expires)], [vector.begins, vector.expires]);
    },
    "early-end": (vector) => {
      const end = surveys.readEnd(hex(vector.signed), pinned(vector));
      same([end.survey.toString("hex"), Number(end.last)], [vector.survey, vector.last]);
    },
    refused: (vector) => refused(() => READ[vector.object](hex(vector.signed), pinned(vector)), REASONS[vector.reason]),
  },
  strata: {
    stratum: (vector) => same(stratumOf(breakdowns(vector), vector.told), vector.stratum),
    refused: (vector) => refused(() => stratumOf(breakdowns(vector), vector.told), Error),
  },
  symbols: { randomizer: checkRandomizer },
  uploads: {
    upload: (vector) => {
      const closings = vector.closings.map((each) => ({ ...each, id: hex(each.id) }));
      const reports = vector.reports.map(([track, node, symbol]) => ({ track, node, symbol: BigInt(symbol) }));
      same(plaintext(survey(vector), vector.group, vector.span, closings, reports).toString("hex"), vector.plaintext);
    },
    lengths: (vector) => {
      const asked = survey(vector);
      same(vector.lengths.length > 0, true);
      for (const [start, end, length] of vector.lengths) same(lengthOf(asked, [start, end]), length);
    },
  },
};

function drawn(vector, check) {
  const coins = new ListedCoins(vector.coins);
  check(coins);
  coins.allTaken();
}

const breakdowns = (vector) => vector.breakdowns.map(([name, ...values]) => ({ name, values }));
