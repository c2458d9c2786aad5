// What a plan costs an entry. docs/mathematics.md, "What a plan costs an entry".

import { largest, ln, smallest, sum } from "./arithmetic.mjs";
import { limitsOf } from "./histories.mjs";
import { need } from "./msgpack.mjs";

/** survey: { calendar, constraints, closed, groups }; a constraint for each question. */
export const planCost = (survey) => largest(survey.groups.map((group) => groupCost(group, survey)));

/** With a backup put back once: each further life costs as much again, of a joint group twice that. */
export const restoredCost = (survey) =>
  largest(survey.groups.map((group) => groupCost(group, survey) * (group.joint ? 3n : 2n)));

function groupCost(group, survey) {
  if (group.history) {
    const { history } = group;
    const limits = limitsOf(history, survey, survey.constraints[group.tracks[0].question]);
    need(history.open === !survey.closed, "NULL is a state where the cohort is open");
    need(Object.keys(limits).every((name) => limits[name] === history[name]), "other histories than the constraint's");
    return ln(...history.odds);
  }
  if (!group.joint) return sum(group.tracks.map((track) => trackCost(track, survey)));
  group.tracks.forEach((track, place) =>
    need(group.joint.slots[place] >= mostTelling(track, survey), "fewer slots than reports that tell"),
  );
  return ln(...group.joint.odds);
}

const reportsOf = (track) => track.reported ?? track.count;

/** The most nodes of the track that mutations reach. */
function mostNodes(track, { calendar, constraints }) {
  const constraint = constraints[track.question];
  const width = track.width * calendar.period;
  return Math.max(
    ...constraint.classes.map(({ k, seconds }) => Math.min(track.count, k ?? Math.ceil((width + seconds) / width))),
  );
}

/** The same after an insertion; a constraint of several classes, or in time, may keep all. */
function mostLater(most, constraint) {
  const [only, ...others] = constraint.classes;
  return others.length === 0 && only.k ? Math.min(only.k - 1, most) : most;
}

function mostTelling(track, survey) {
  if (!track.randomizer.space.changes) return reportsOf(track);
  const most = mostNodes(track, survey);
  return Math.min(survey.closed && track.first > 0 ? mostLater(most, survey.constraints[track.question]) : most, reportsOf(track));
}

function trackCost(track, survey) {
  const [losses, reports] = [track.randomizer.losses(), reportsOf(track)];
  if (!track.randomizer.space.changes) return nodeCost(losses, reports, reports);
  const most = mostNodes(track, survey);
  if (!survey.closed) return nodeCost(losses, most, reports);
  const later = mostLater(most, survey.constraints[track.question]);
  const without = nodeCost(losses, later, reports);
  if (track.first > 0) return without;
  const together = losses.insertions + nodeCost(losses, later, reports - 1);
  return track.reported === null ? together : largest([together, without]);
}

/** The largest s·L_mm + a·L_m0 + b·L_0m with s + a <= κ, s + b <= κ, s + a + b <= N: by trying every s and a. */
function nodeCost(losses, most, reports) {
  let worst = 0n;
  const [more, less] = [largest([losses.appears, losses.vanishes]), smallest([losses.appears, losses.vanishes])];
  for (let s = 0; s <= Math.min(most, reports); s++) {
    const a = Math.min(most, reports) - s;
    const b = Math.min(a, reports - s - a);
    const cost = BigInt(s) * losses.mutations + BigInt(a) * more + BigInt(b) * less;
    if (cost > worst) worst = cost;
  }
  return worst;
}
