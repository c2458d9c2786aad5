// One survey: what is asked of the server, and what of it is chosen to be shown.

import { Refused, ask, described, surveyPath } from "./api.js";
import { drawChanges } from "./changes.js";
import { comparison, drawDifferences, drawNumber, offerComparison } from "./compared.js";
import { at, drawing, element } from "./elements.js";
import { drawGraph } from "./graph.js";
import { drawMembers, drawRefused } from "./members.js";
import { forget, moved } from "./plots.js";
import { dayOf, drawLatest, drawSeries, timeOf } from "./series.js";
import { periods, plural } from "./words.js";

const MOST_AT_FIRST = 6;
const ASKS_FOR_TOKEN = "The results of this survey ask for a token: sign in to see them.";
const LOOK_AGAIN_SECONDS = [10, 60]; // as often as periods close, within these
let open = null; // {survey, turn, status, series, windows}; turn: how often it was asked for

export async function openSurvey(id, isSignedIn, say) {
  closeSurvey();
  const survey = about(await described(id), 0);
  const mine = { survey, say, turn: 0 };
  open = mine;
  at("question").textContent = survey.questions.map((each) => each.question).join(" · ");
  offerQuestions(survey);
  at("price").replaceChildren(`Whoever takes part loses at most ε = ${survey.epsilon}: `, element("a", { href: `#${id}/ledger` }, "what that means"), ".");
  offerAlong(survey);
  document.title = `${at("question").textContent} · changeling`;
  at("ledger").replaceChildren(...survey.ledger.map((each) => element("li", {}, each)));
  at("state").textContent = `${plural(survey.periods, "period")} of ${survey.period_words}, ${dayOf(survey, 0)} to ${dayOf(survey, survey.periods)}.`;
  at("results").hidden = at("warning").hidden = true;
  at("width").value = "";
  at("survey").hidden = false;
  at("question").focus();
  offerStrata(survey);
  offerComparison(survey);
  if (survey.public || isSignedIn) await load(mine);
  else say(ASKS_FOR_TOKEN);
  if (open === mine) offerSections(survey);
}

export const isOpen = (id) => open?.survey.id === id;

// Move to a section by its name, as an address has it.
export function goTo(section) {
  const title = at(`${section}-title`);
  if (!title) return;
  title.setAttribute("tabindex", "-1");
  title.scrollIntoView();
  title.focus({ preventScroll: true });
}

function offerSections(survey) {
  const titles = [...document.querySelectorAll("#survey section > h2")].filter((each) => each.checkVisibility());
  at("sections").replaceChildren(...titles.map((each) => element("a", { href: `#${survey.id}/${each.id.replace("-title", "")}` }, each.textContent)));
}

function offerAlong(survey) {
  at("along").hidden = !survey.public;
  for (const link of document.querySelectorAll("[data-file]")) link.href = surveyPath(survey.id, `/editions/latest/${survey.questions.length > 1 ? link.dataset.file.replace("series", "series-0") : link.dataset.file}`);
  at("snippet").value = `<script type="module" src="${location.origin}/page/chart.js"></script>\n<changeling-chart survey="${survey.id}"${survey.questions.length > 1 ? ' question="0"' : ""}></changeling-chart>`;
}

export function closeSurvey() {
  open = null;
  forget();
  at("survey").hidden = true;
}

function offerStrata(survey) {
  at("strata").replaceChildren(...survey.breakdowns.map(({ name, values }) =>
    element("fieldset", {}, element("legend", {}, `${name}, of these alone:`),
      ...values.map((value) => element("label", {}, element("input", { type: "checkbox", name: "stratum", value: `${name}:${value}` }), value))),
  ));
}

// A survey as it is about one of its questions: with its text and answers.
const about = (survey, place) => ({ ...survey, place, ...survey.questions[place] });

// A choice among several questions, and a small chart of each, of an open survey.
function offerQuestions(survey) {
  const several = survey.questions.length > 1;
  at("of-question").hidden = !several;
  at("which").replaceChildren(...survey.questions.map(({ question }, place) => element("option", { value: place }, question)));
  at("all").hidden = !(several && survey.public);
  at("multiples").replaceChildren(...(at("all").hidden ? [] : survey.questions.map((_, place) => element("changeling-chart", { survey: survey.id, question: place }))));
}

const ticked = () => [...document.querySelectorAll("#strata input:checked")].map((each) => each.value);

const asked = () => [
  ...(open.survey.questions.length > 1 ? [["question", open.survey.name]] : []),
  ["method", at("method").value],
  ["population", at("population").value],
  ["confidence", at("confidence").value],
  ...ticked().map((each) => ["stratum", each]),
];

// The same without what only counts have; nothing but counts is smoothed.
const askedOfFigures = () => asked()
  .filter(([name]) => name !== "population")
  .map(([name, value]) => [name, value === "smoothed" ? "retrospective" : value]);

async function load(mine) {
  const { survey } = mine;
  const turn = ++mine.turn;
  const overtaken = () => open !== mine || mine.turn !== turn;
  at("survey").setAttribute("aria-busy", "true");
  try {
    const [status, series] = await Promise.all([ask(surveyPath(survey.id, "/status")), ask(surveyPath(survey.id, "/series"), asked())]);
    if (overtaken()) return;
    Object.assign(mine, { status, series, windows: null, differences: null });
  } catch (error) {
    if (overtaken()) return;
    at("survey").removeAttribute("aria-busy");
    if (!(error instanceof Refused)) throw error;
    if (!mine.series || error.status === 401 || error.status === 403) at("results").hidden = true; // else what is there stays
    mine.say(error.status === 401 ? ASKS_FOR_TOKEN : `${error.message}.`);
    return;
  }
  mine.say("");
  offerAnswers(mine);
  sayState(mine);
  at("results").hidden = false;
  if (!at("width").value) at("width").value = Math.max(1, Math.round(mine.status.shown_periods / 8));
  at("width").max = mine.status.shown_periods;
  at("csv").href = `${surveyPath(survey.id, "/series")}?${new URLSearchParams([...asked(), ["format", "csv"]])}`;
  drawRefused(mine.status);
  redraw(mine);
  await Promise.all([loadWindows(mine), loadNumber(mine), loadDifferences(mine)]);
  if (!overtaken()) at("survey").removeAttribute("aria-busy");
}

async function loadWindows(mine) {
  const { survey, turn } = mine;
  const width = Math.min(Math.max(1, Number(at("width").value) || 1), mine.status.shown_periods);
  const smoothed = at("method").value === "smoothed";
  const method = asked().map(([name, value]) => [name, value === "smoothed" ? "retrospective" : value]);
  const windows = await ask(surveyPath(survey.id, "/windows"), [["width", width], ...method]);
  if (open !== mine || mine.turn !== turn) return;
  mine.windows = windows;
  at("change-note").textContent = `Each window is ${plural(width, "period")} of ${survey.period_words} wide, and shown at its end. The first, in which everybody first answers, is among the numbers alone.` +
    (smoothed ? " Changes are not smoothed: these are the estimates with all that is known now." : "");
  drawChanges(survey, mine.windows, view(mine));
}

async function loadNumber(mine) {
  const { survey, turn } = mine;
  const answer = survey.is_number ? await ask(surveyPath(survey.id, "/numbers"), [["quantile", 0.5], ...askedOfFigures()]) : null;
  if (open === mine && mine.turn === turn) drawNumber(survey, answer);
}

async function loadDifferences(mine) {
  const { survey, turn, say } = mine;
  const chosen = comparison(survey, ticked());
  let answer = null;
  try {
    if (chosen) answer = await ask(surveyPath(survey.id, "/comparison"), [...askedOfFigures().filter(([name]) => name !== "stratum"), ...chosen]);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    say(`${error.message}.`);
  }
  if (open !== mine || mine.turn !== turn) return;
  mine.differences = answer;
  drawDifferences(survey, answer, view(mine));
}

function view({ survey }) {
  const chosen = [...document.querySelectorAll("#answers input:checked")].map((each) => Number(each.value));
  return { unit: at("unit").value, population: at("population").value, bands: at("bands").value, answers: chosen.length ? chosen : survey.answers.map((_, number) => number).slice(0, 1) };
}

function redraw(mine) {
  const { survey, series, status } = mine;
  drawLatest(survey, series, status, view(mine));
  drawSeries(survey, series, view(mine));
  drawMembers(survey, series, status);
  drawGraph(survey, status);
  if (mine.windows) drawChanges(survey, mine.windows, view(mine));
  if (mine.differences) drawDifferences(survey, mine.differences, view(mine));
}

// A box to tick for each answer, with its line; the largest are ticked at first.
function offerAnswers({ survey, series }) {
  const of = `${survey.id} ${survey.place}`;
  if (at("answers").dataset.of === of) return;
  at("answers").dataset.of = of;
  const last = series.series.filter((each) => each.values !== null).at(-1)?.values ?? [];
  const largest = survey.answers.map((_, number) => number).sort((one, other) => (last[other] ?? 0) - (last[one] ?? 0)).slice(0, MOST_AT_FIRST);
  at("answers").replaceChildren(element("legend", {}, "Answers"), ...survey.answers.map((answer, number) => {
    const dashes = ["", "6 4", "2 3", "6 3 2 3"][Math.floor(number / 8) % 4];
    const line = drawing("line", { x1: 0, x2: 24, y1: 6, y2: 6, stroke: `var(--c${number % 8})`, "stroke-width": 3, "stroke-dasharray": dashes });
    const box = element("input", { type: "checkbox", value: number });
    box.checked = largest.includes(number);
    return element("label", {}, box, drawing("svg", { width: 24, height: 12, "aria-hidden": "true" }, line), answer);
  }));
}

function sayState({ survey, status, series }) {
  const hidden = status.closed_periods > status.shown_periods
    ? ` ${periods([...Array(status.closed_periods - status.shown_periods)].map((_, each) => status.shown_periods + each + 1))} closed since, and will be shown once enough have answered, or when the grace is over.`.replace(/ p/, " P")
    : "";
  const early = status.last_period < survey.periods ? ` It was ended early, after period ${status.last_period}.` : "";
  at("state").textContent =
    `${plural(survey.periods, "period")} of ${survey.period_words}, ${dayOf(survey, 0)} to ${dayOf(survey, survey.periods)}. ` +
    `Shown up to ${dayOf(survey, status.shown_periods)} (period ${status.shown_periods}), final up to period ${Math.min(status.final_periods, status.shown_periods)}.${hidden}${early}`;
  at("width-words").textContent = `of ${survey.period_words}`;
  const impossible = series.diagnostics.impossible;
  at("warning").hidden = !impossible;
  at("warning").textContent = impossible ? "These tallies are not possible from honest devices alone: somebody sends made-up reports. Do not trust the estimates." : "";
}

export function listen(fail) {
  const caught = (work) => (event) => {
    event.preventDefault();
    if (open) Promise.resolve(work(open)).catch(fail);
  };
  at("which").addEventListener("change", caught((mine) => {
    mine.survey = about(mine.survey, Number(at("which").value));
    return load(mine);
  }));
  for (const id of ["method", "population", "confidence", "strata"]) at(id).addEventListener("change", caught(load));
  for (const id of ["unit", "bands", "answers"]) at(id).addEventListener("change", caught(redraw));
  at("controls").addEventListener("submit", (event) => event.preventDefault());
  at("windows").addEventListener("submit", caught(loadWindows));
  at("compare").addEventListener("submit", caught(loadDifferences));
  for (const button of document.querySelectorAll("[data-zoom]")) {
    button.addEventListener("click", caught(({ survey, status }) =>
      moved(button.dataset.zoom, [+timeOf(survey, 0), +timeOf(survey, Math.max(1, status.shown_periods))])));
  }
  setInterval(async () => {
    const mine = open;
    const [least, most] = LOOK_AGAIN_SECONDS;
    if (!mine?.status || document.hidden) return;
    mine.waited = (mine.waited ?? 0) + least;
    if (mine.waited < Math.min(most, mine.survey.period_seconds)) return;
    mine.waited = 0;
    const status = await ask(surveyPath(mine.survey.id, "/status")).catch(() => null);
    if (status && status.revision !== mine.status.revision && open === mine) load(mine).catch(fail);
  }, LOOK_AGAIN_SECONDS[0] * 1000);
}
