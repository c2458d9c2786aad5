// Checks the vectors of a folder, all of them or those of the files named: node run.mjs FOLDER [FILE…]
//
// Prints how many cases of each kind were checked. Exits with 1 at any difference, and where a file, a kind of case or a
// part of a case is missing, unknown, or not looked at.

import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { CHECKS } from "./checks.mjs";
import { VERSION } from "./surveys.mjs";

const REMARKS = ["kind", "name", "why"];
const [folder, ...named] = process.argv.slice(2);
const problems = [];

function checkFile(name) {
  const { vectors, version, cases } = JSON.parse(readFileSync(join(folder, `${name}.json`), "utf-8"));
  if (vectors !== name || BigInt(version) !== VERSION) problems.push(`${name}: of another name or version`);
  const counts = Object.fromEntries(Object.keys(CHECKS[name]).map((kind) => [kind, 0]));
  cases.forEach((vector, at) => {
    const label = `${name}[${at}] ${[vector.kind, vector.name, vector.why].filter(Boolean).join(", ")}`;
    if (!Object.hasOwn(counts, vector.kind)) return problems.push(`${label}: an unknown kind`);
    counts[vector.kind] += 1;
    try {
      checkCase(CHECKS[name][vector.kind], vector);
    } catch (error) {
      problems.push(`${label}: ${error.message}`);
    }
  });
  for (const [kind, count] of Object.entries(counts)) if (!count) problems.push(`${name}: no case of kind ${kind}`);
  const listed = Object.entries(counts).map(([kind, count]) => `${count} ${kind}`);
  console.log(`${name}: ${cases.length} cases (${listed.join(", ")})`);
}

/** Checks a case, and that every part of it was looked at. */
function checkCase(check, vector) {
  const seen = new Set(REMARKS);
  const watched = new Proxy(vector, {
    get(target, part) {
      if (!Object.hasOwn(target, part)) throw new Error(`has no ${String(part)}`);
      seen.add(part);
      return target[part];
    },
  });
  check(watched);
  const unseen = Object.keys(vector).filter((part) => !seen.has(part));
  if (unseen.length) throw new Error(`not looked at: ${unseen.join(", ")}`);
}

const present = readdirSync(folder).filter((file) => file.endsWith(".json")).map((file) => file.slice(0, -5));
for (const name of named.length ? named : Object.keys(CHECKS)) {
  if (!Object.hasOwn(CHECKS, name)) problems.push(`${name}: an unknown file`);
  else if (!present.includes(name)) problems.push(`${name}: no such file`);
  else checkFile(name);
}
for (const name of present) if (!Object.hasOwn(CHECKS, name)) problems.push(`${name}: an unknown file`);
for (const problem of problems) console.error(problem);
console.log(problems.length ? `${problems.length} problems` : "every case holds");
process.exitCode = problems.length ? 1 : 0;
