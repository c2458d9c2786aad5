// Signed objects, and what is in them; every rule that a survey has to keep.

import { micro } from "./arithmetic.mjs";
import { planCost } from "./cost.mjs";
import { exchange, sha256, verified } from "./crypto.mjs";
import { historyKernel, historyTracks, makeHistory } from "./histories.mjs";
import { makeJoint, makeKernel } from "./joint.mjs";
import { Malformed, decode, need } from "./msgpack.mjs";
import { makeRandomizer } from "./randomizers.mjs";

export class BadSignature extends Error {}
export class Understated extends Error {}

export const VERSION = 3n;
const LAST_INSTANT = 253402300799n;

/** The fields of a signed object, without kind and version, and its payload. */
export function open(kind, signed, authority) {
  const { payload, signature } = exactly(decode(signed), "payload", "signature");
  need(payload instanceof Uint8Array && signature instanceof Uint8Array, "a payload and a signature");
  if (!authority.some((key) => verified(key, payload, signature))) throw new BadSignature("signed by nobody we know");
  const fields = decode(payload);
  need(fields instanceof Map && fields.get("kind") === kind, "something else");
  need(fields.get("version") === VERSION, "another version");
  fields.delete("kind");
  fields.delete("version");
  return { fields, payload };
}

function exactly(map, ...names) {
  need(map instanceof Map && map.size === names.length && names.every((name) => map.has(name)), `not just ${names}`);
  return Object.fromEntries(map);
}

const integer = (value, least, most, what) => {
  need(typeof value === "bigint" && value >= least && value <= most, what);
  return value;
};
const text = (value, what) => need(typeof value === "string", what);
const list = (value, what) => {
  need(Array.isArray(value), what);
  return value;
};
const distinct = (values) => new Set(values).size === values.length;

export function readKey(signed, authority) {
  const { fields } = open("sealing-key", signed, authority);
  const { public: key, begins, expires } = exactly(fields, "public", "begins", "expires");
  need(key instanceof Uint8Array && key.length === 32, "32 bytes");
  integer(begins, 0n, 2n ** 63n - 1n, "begins");
  integer(expires, begins + 1n, 2n ** 63n - 1n, "expires");
  try {
    exchange(Buffer.alloc(32, 1), key);
  } catch {
    throw new Malformed("a key of low order");
  }
  return { public: key, begins, expires, id: keyId(key) };
}

export const keyId = (key) => sha256(key).subarray(0, 16);

export function readEnd(signed, authority) {
  const { survey, last } = exactly(open("early-end", signed, authority).fields, "survey", "last");
  need(survey instanceof Uint8Array && survey.length === 16, "16 bytes");
  return { survey, last: integer(last, 1n, 2n ** 20n, "a period") };
}

const NAMES = [
  ...["questions", "calendar", "plan", "epsilon_micro", "closed", "skew", "spread", "grace"],
  ...["minimum", "breakdowns", "stratum_changes", "relay", "follows"],
];

export function readSurvey(signed, authority) {
  const { fields, payload } = open("survey", signed, authority);
  const survey = exactly(fields, ...NAMES);
  const questions = list(survey.questions, "questions").map(readQuestion);
  need(questions.length >= 1 && questions.length <= 256, "1 to 256 questions");
  need(distinct(questions.map(({ name }) => name)), "two questions of one name");
  const about = questions.flatMap(({ freezingOf }) => freezingOf ?? []);
  const recorded = questions.filter(({ freezingOf }) => freezingOf === null).map(({ name }) => name);
  need(distinct(about) && about.every((name) => recorded.includes(name)), "each about another question that apps answer");
  need(typeof survey.closed === "boolean", "closed");
  const calendar = readCalendar(survey.calendar);
  const { skew, spread, grace } = survey;
  integer(skew, 0n, LAST_INSTANT, "skew");
  integer(spread, 1n, LAST_INSTANT, "spread");
  integer(grace, skew + spread + 1n, LAST_INSTANT - calendar.end, "grace");
  integer(survey.minimum, 1n, 2n ** 64n, "minimum");
  integer(survey.epsilon_micro, 0n, 10n ** 15n, "epsilon");
  const breakdowns = list(survey.breakdowns, "breakdowns").map(readBreakdown);
  need(distinct(breakdowns.map(({ name }) => name)), "two breakdowns of one name");
  need(breakdowns.every(({ name }) => name !== "offset"), "the offset's name");
  const offsets = questions.some(({ levels }) => levels) ? OFFSETS : 1;
  need(breakdowns.reduce((strata, { values }) => strata * values.length, offsets) <= 1024, "too many strata");
  integer(survey.stratum_changes, 0n, breakdowns.length ? 100n : 0n, "changes of the stratum");
  text(survey.relay, "a relay");
  need(survey.follows instanceof Uint8Array && [0, 16].includes(survey.follows.length), "follows");
  const groups = readPlan(survey.plan, questions.map(({ answers }) => answers.length));
  for (const { last, first: from, randomizer } of groups.flatMap(({ tracks }) => tracks)) {
    need(last <= calendar.periods, "beyond the calendar");
    need(randomizer.space.null || survey.closed, "without NULL in an open cohort");
    need(randomizer.space.null || !randomizer.space.changes || from > 0, "moves in the first period");
  }
  const stated = Number(survey.epsilon_micro);
  const made = {
    ...{ questions, closed: survey.closed, calendar, groups, breakdowns, stated },
    constraints: questions.map(({ constraint }) => constraint),
    ...{ skew: Number(skew), spread: Number(spread), grace: Number(grace) },
    ...{ id: sha256(payload).subarray(0, 16), payload },
  };
  if (micro(planCost(made)) > stated) throw new Understated("the plan costs more than is stated");
  return made;
}

/** How many offsets there are to round numbers with: an entry has one of them, as the last part of its stratum. */
const OFFSETS = 8;

function readQuestion(value) {
  need(value instanceof Map, "a question");
  const kind = value.has("levels") ? ["levels", "unit"] : value.has("freezing_of") ? ["answers", "freezing_of"] : ["answers"];
  const question = exactly(value, "name", "text", "constraint", "expected", ...kind);
  for (const part of [question.name, question.text]) need(text(part, "a text") === undefined && part !== "", "no text");
  const { first, later } = exactly(question.expected, "first", "later");
  for (const share of [first, later]) integer(share, 0n, 10n ** 6n, "expected changes");
  const constraint = readConstraint(question.constraint);
  if (question.levels) readLevels(question.levels, question.unit);
  const answers = question.levels
    ? question.levels.map((level) => `${level} ${question.unit}`.trimEnd())
    : list(question.answers, "answers");
  answers.forEach((answer) => text(answer, "an answer"));
  need(answers.length >= 1 && answers.length <= 1000, "1 to 1000 answers");
  need(distinct(answers) && !answers.includes(""), "answers are distinct, and not empty");
  const about = question.freezing_of ?? null;
  if (about !== null) {
    need(text(about, "a name") === undefined && about !== "", "a question that it is about");
    const { classes } = constraint;
    need(answers.length === 2 && classes.length === 1 && classes[0].k === 2 && !classes[0].seconds, "no and yes, at most twice");
  }
  return { name: question.name, answers, constraint, levels: question.levels ?? null, freezingOf: about };
}

/** Levels are decimals without an exponent, and without zeros that mean nothing; they rise. */
function readLevels(levels, unit) {
  text(unit, "a unit");
  need(list(levels, "levels").length >= 2, "two levels");
  for (const level of levels) {
    need(typeof level === "string" && level.length <= 30 && /^(0|-?([1-9]\d*|0(?=\.))(\.\d*[1-9])?)$/.test(level), "a level");
  }
  const places = Math.max(...levels.map((level) => (level.split(".")[1] ?? "").length));
  const whole = levels.map((level) => {
    const [before, after = ""] = level.split(".");
    return BigInt(before + after.padEnd(places, "0"));
  });
  need(whole.every((level, at) => at === 0 || level > whole[at - 1]), "levels rise");
}

function readBreakdown(row) {
  list(row, "a breakdown").forEach((each) => text(each, "a breakdown"));
  const [name, ...values] = row;
  need(name && values.length > 0 && distinct(values) && !values.includes(""), "a name and distinct values");
  return { name, values };
}

export function readCalendar(value) {
  need(list(value, "a calendar").length === 3, "a calendar is three numbers");
  const start = integer(value[0], 0n, LAST_INSTANT, "start");
  const period = integer(value[1], 1n, LAST_INSTANT, "period");
  const periods = integer(value[2], 1n, 2n ** 20n, "periods");
  const end = start + period * periods;
  need(end <= LAST_INSTANT, "beyond the year 9999");
  return { start: Number(start), period: Number(period), periods: Number(periods), end };
}

export function readConstraint(value) {
  if (value instanceof Map && value.get("kind") === "hybrid") {
    const { classes } = exactly(value, "kind", "classes");
    need(list(classes, "classes").length >= 2 && classes.length <= 16, "2 to 16 classes");
    return { classes: classes.map(readClass) };
  }
  return { classes: [readClass(value)] };
}

function readClass(value) {
  need(value instanceof Map, "a constraint");
  if (value.get("kind") === "at-most") return { k: Number(integer(exactly(value, "kind", "k").k, 1n, 2n ** 20n, "k")) };
  need(value.get("kind") === "time-bounded", "no such constraint");
  return { seconds: Number(integer(exactly(value, "kind", "seconds").seconds, 1n, LAST_INSTANT, "seconds")) };
}

export function readPlan(value, answers) {
  need(list(value, "groups").length > 0, "no groups");
  const groups = value.map((group) => readGroup(group, answers));
  const tracks = groups.flatMap((group) => group.tracks);
  need(tracks.length <= 1024, "too many tracks");
  need(tracks.reduce((nodes, track) => nodes + track.count, 0) <= 2 ** 18, "too many nodes");
  const kernels = new Map(groups.flatMap(({ kernel }) => (kernel ? [[kernel.name, kernel.steps]] : [])));
  need([...kernels.values()].reduce((steps, each) => steps + each, 0) <= 2 ** 18, "too many steps");
  let number = 0;
  for (const group of groups) for (const track of group.tracks) track.number = number++;
  return groups;
}

export function readGroup(value, answers) {
  if (value instanceof Map && value.has("history")) return readHistory(value, answers);
  const isJoint = value instanceof Map && value.has("joint");
  const group = exactly(value, "share", "tracks", ...(isJoint ? ["joint"] : []));
  const share = integer(group.share, 1n, 2n ** 64n, "a share");
  need(list(group.tracks, "tracks").length > 0, "no tracks");
  const made = { share, joint: null, kernel: null };
  if (isJoint) {
    need(group.joint instanceof Map, "a joint response");
    made.joint = makeJoint(group.joint, group.tracks.length);
    const blank = group.tracks.map((track) => readTrack(track, answers, [2n, 1n]));
    need(blank.every(({ randomizer }) => randomizer.agreement), "no joint form");
    need(blank.every(({ randomizer }) => !(randomizer.space.changes && randomizer.tells(0))), "tells no change");
    made.kernel = makeKernel(made.joint, blank.map(({ randomizer }) => randomizer.agreement));
    made.tracks = group.tracks.map((track, place) => {
      const odds = made.kernel.conditional(place, made.joint.slots.map(() => 0), 0);
      need(odds[0] > odds[1], "a track that says nothing");
      return readTrack(track, answers, odds);
    });
  } else made.tracks = group.tracks.map((track) => readTrack(track, answers));
  need(made.tracks.reduce((drawn, { reported }) => drawn + (reported ?? 0), 0) <= 2 ** 14, "too many drawn nodes");
  return made;
}

/** The place of the question that a track is about; that of the first is left out. Takes it off the fields. */
function questionOf(fields, answers) {
  need(fields instanceof Map, "a track or a history");
  if (!fields.has("question")) return [0, fields];
  const question = Number(integer(fields.get("question"), 1n, BigInt(answers.length - 1), "a question"));
  return [question, new Map([...fields].filter(([name]) => name !== "question"))];
}

function readHistory(value, counts) {
  const group = exactly(value, "share", "history");
  const share = integer(group.share, 1n, 2n ** 64n, "a share");
  const [question, parts] = questionOf(group.history, counts);
  const answers = counts[question];
  const history = makeHistory(parts, answers);
  // Each report by itself has a law that only the server needs: the device needs its inputs and the width of its symbols.
  const reported = new Map([["kind", "k-rr"], ["space", history.open ? "states" : "answers"], ["odds", [2n, 1n]]]);
  const tracks = historyTracks(history, makeRandomizer(reported, answers)).map((track) => ({ ...track, question }));
  return { share, joint: null, kernel: null, history: { ...history, kernel: historyKernel(history) }, tracks };
}

function readTrack(value, answers, odds = null) {
  const [question, fields] = questionOf(value, answers);
  const track = exactly(fields, "width", "first", "last", "reported", "randomizer");
  const width = Number(integer(track.width, 1n, 2n ** 53n, "width"));
  const first = Number(integer(track.first, 0n, 2n ** 53n, "first"));
  const last = Number(integer(track.last, BigInt(first) + 1n, 2n ** 53n, "last"));
  const count = Math.floor((last - first) / width);
  need(count >= 1, "no node fits");
  if (track.reported !== null) integer(track.reported, 1n, BigInt(count), "reported");
  need(track.randomizer instanceof Map, "a randomizer");
  const randomizer = makeRandomizer(track.randomizer, answers[question], odds);
  const reported = track.reported === null ? null : Number(track.reported);
  return { width, first, last, count, reported, randomizer, question };
}
