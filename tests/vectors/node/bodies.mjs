// What client and server say over HTTP.

import { decode, encode, need } from "./msgpack.mjs";

export const MOST_BODY_BYTES = 2 ** 20;
export const MOST_ENVELOPES = 64;
export const MSGPACK = "application/msgpack";
export const PROBLEM = "application/problem+json";
export const ASKS = {
  survey: (survey) => ["GET", `/v1/surveys/${survey}`],
  keys: () => ["GET", "/v1/keys"],
  upload: () => ["POST", "/v1/uploads"],
};
export const STATUS = {
  ...{ malformed: 400, unauthorized: 401, forbidden: 403, bad_signature: 403, not_found: 404, method_not_allowed: 405 },
  ...{ too_slow: 408, conflict: 409, not_estimable: 409, too_large: 413, invalid: 422, understated_epsilon: 422 },
  ...{ too_many_requests: 429 },
  ...{ failed: 500, overloaded: 503 },
};

export const uploadRequest = (envelopes) => encode(new Map([["envelopes", envelopes]]));

/** The reasons of refusal, by place. A reason is text; a later server may have others than we know. */
export function acknowledgement(body, envelopes) {
  const content = decode(body);
  const refused = content instanceof Map && content.get("refused");
  need(Array.isArray(refused) && refused.length <= envelopes, "a list of what was refused");
  return Object.fromEntries(
    refused.map((pair) => {
      need(Array.isArray(pair) && pair.length === 2, "a pair");
      const [place, reason] = pair;
      need(typeof place === "bigint" && place >= 0n && place < BigInt(envelopes), "a place");
      need(typeof reason === "string", "a reason");
      return [String(place), reason];
    }),
  );
}

export function keyList(body) {
  const content = decode(body);
  const keys = content instanceof Map && content.get("keys");
  need(Array.isArray(keys) && keys.every((key) => key instanceof Uint8Array), "a list of keys");
  return keys;
}

export function errorAnswer(body) {
  let content = null;
  try {
    content = JSON.parse(body.toString("utf-8"));
  } catch {
    need(false, "no JSON");
  }
  need(content !== null && typeof content === "object" && Object.hasOwn(STATUS, content.code), "no code of ours");
  need(typeof content.detail === "string", "no detail");
  return { code: content.code, detail: content.detail };
}
