// The page: which survey is open, and who is signed in.

import { listed, published, signIn, signOut, signedIn } from "./api.js";
import { newestComplete, pointsOf, sparkline } from "./chart.js";
import { at, element } from "./elements.js";
import { closeSurvey, goTo, isOpen, listen, openSurvey } from "./survey.js";
import { plural, share } from "./words.js";

function say(words) {
  at("message").textContent = words;
  at("message").hidden = !words;
}

const fail = (error) => say(`That did not work: ${error.message}.`);

async function showSession() {
  const token = await signedIn();
  at("open-sign-in").hidden = Boolean(token);
  at("signed-in").hidden = !token;
  at("who").textContent = token ? `Signed in: ${token.name}` : "";
  if (token) at("sign-in").hidden = true;
  return Boolean(token);
}

async function showSurveys(isSignedIn) {
  const surveys = await listed();
  closeSurvey();
  document.title = "Surveys · changeling";
  at("surveys").querySelector("ul").replaceChildren(...surveys.map((survey) =>
    element("li", {}, element("a", { href: `#${survey.id}` },
      element("strong", {}, survey.question),
      element("span", {}, `${plural(survey.last_period, "period")} · ${survey.public ? "open to all" : isSignedIn ? "open to you" : "asks for a token"}`),
      element("span", { class: "fresh" }))),
  ));
  for (const survey of surveys) {
    if (survey.edition) showFreshness(survey).catch(() => {}); // the list is there without it
  }
  say(surveys.length ? "" : "No survey is published on this server yet.");
  at("surveys").hidden = false;
}

// How new a survey's newest complete period is, what most held by then, and how that went. The files of its edition tell.
async function showFreshness(survey) {
  const series = await published(survey.id, survey.edition, survey.questions.length > 1 ? "series-0" : "series");
  const last = newestComplete(series);
  const place = document.querySelector(`a[href="#${survey.id}"] .fresh`);
  if (!last || !place) return;
  const most = last.values.indexOf(Math.max(...last.values));
  const { value } = pointsOf(series, most).find((each) => each.period === last.period);
  place.replaceChildren(`Complete up to ${last.time.slice(0, 10)}, period ${last.period}: ${series.answers[most]} ${share(value)} `, sparkline(series, most, `var(--c${most % 8})`));
}

async function route() {
  try {
    const [id, section] = location.hash.slice(1).split("/");
    if (section && isOpen(id)) {
      goTo(section);
      return;
    }
    const isSignedIn = await showSession();
    if (/^[0-9a-f]{32}$/.test(id)) {
      at("surveys").hidden = true;
      await openSurvey(id, isSignedIn, say);
      if (section) goTo(section);
    } else await showSurveys(isSignedIn);
  } catch (error) {
    fail(error);
  }
}

at("open-sign-in").addEventListener("click", () => {
  at("sign-in").hidden = false;
  at("token").focus();
});
at("sign-in").addEventListener("submit", async (event) => {
  event.preventDefault();
  at("refusal").textContent = "";
  try {
    await signIn(at("token").value);
    at("token").value = "";
    await route();
  } catch (error) {
    at("refusal").textContent = `Not signed in: ${error.message}.`;
    at("token").focus();
  }
});
at("sign-out").addEventListener("click", () => signOut().then(route).catch(fail));
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  at("content").focus();
});
addEventListener("hashchange", route);
listen(fail);
route();
