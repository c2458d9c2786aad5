// What this server answers. Nothing else is ever asked.

export class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail || `the server answered ${status}`);
    this.status = status;
    this.code = problem.code;
  }
}

async function answered(response) {
  if (response.ok) return response;
  throw new Refused(response.status, await response.json().catch(() => ({})));
}

export async function ask(path, parameters = []) {
  const query = new URLSearchParams(parameters).toString();
  // Whoever opens the page wants what is shown now: a browser's cache asks whether what it has still holds.
  const response = await fetch(query ? `${path}?${query}` : path, { headers: { accept: "application/json" }, cache: "no-cache" });
  return (await answered(response)).json();
}

export const surveyPath = (id, what = "") => `/v1/surveys/${id}${what}`;
export const published = async (id, edition, file) => (await answered(await fetch(surveyPath(id, `/editions/${edition}/${file}.json`)))).json();

export const listed = async () => (await ask("/v1/surveys")).surveys;
export const described = (id) => ask(`/page/surveys/${id}`);
export const signedIn = async () => (await ask("/page/session")).signed_in;

export async function signIn(token) {
  await answered(await fetch("/page/session", { method: "POST", body: new URLSearchParams({ token }) }));
}

export async function signOut() {
  await answered(await fetch("/page/session", { method: "DELETE" }));
}
