// Ed25519, X25519 and HPKE's base mode (RFC 9180) from what Node brings.

import crypto from "node:crypto";

const PREFIX = {
  ed25519: Buffer.from("302a300506032b6570032100", "hex"),
  x25519: Buffer.from("302a300506032b656e032100", "hex"),
  private: Buffer.from("302e020100300506032b656e04220420", "hex"),
};

export const sha256 = (bytes) => crypto.createHash("sha256").update(bytes).digest();

const PRIME = 2n ** 255n - 19n;
const inverse = (n, power = PRIME - 2n) => {
  let [result, base] = [1n, ((n % PRIME) + PRIME) % PRIME];
  for (; power; power >>= 1n, base = (base * base) % PRIME) if (power & 1n) result = (result * base) % PRIME;
  return result;
};
const number = (bytes) => BigInt("0x" + Buffer.from(bytes).reverse().toString("hex"));

/** The X25519 key of the same order as an Ed25519 key (RFC 7748, 4.1); 0 for infinity. */
function onX25519(key) {
  const y = (number(key) & (2n ** 255n - 1n)) % PRIME;
  return Buffer.from((((1n + y) * inverse(1n - y)) % PRIME).toString(16).padStart(64, "0"), "hex").reverse();
}

/** Whether the signature holds, and not just anybody could have made it: under a key of low order anybody can. */
export function verified(key, message, signature) {
  try {
    exchange(Buffer.alloc(32), onX25519(key));
  } catch {
    return false;
  }
  const imported = crypto.createPublicKey({ key: Buffer.concat([PREFIX.ed25519, key]), format: "der", type: "spki" });
  return crypto.verify(null, message, imported, signature);
}

const publicKey = (raw) => crypto.createPublicKey({ key: Buffer.concat([PREFIX.x25519, raw]), format: "der", type: "spki" });
const privateKey = (raw) =>
  crypto.createPrivateKey({ key: Buffer.concat([PREFIX.private, raw]), format: "der", type: "pkcs8" });

export const publicOf = (raw) => crypto.createPublicKey(privateKey(raw)).export({ format: "der", type: "spki" }).subarray(-32);

/** Throws for a public key of low order. */
export const exchange = (mine, theirs) =>
  crypto.diffieHellman({ privateKey: privateKey(mine), publicKey: publicKey(theirs) });

const KEM = Buffer.from("4b454d0020", "hex");
const HPKE = Buffer.from("48504b45002000010001", "hex");
const LABEL = Buffer.from("HPKE-v1");
const hmac = (key, ...parts) => crypto.createHmac("sha256", key).update(Buffer.concat(parts)).digest();
const extract = (suite, salt, label, ikm) => hmac(salt, LABEL, suite, Buffer.from(label), ikm);
const expand = (suite, prk, label, info, length) =>
  hmac(prk, Buffer.of(0, length), LABEL, suite, Buffer.from(label), info, Buffer.of(1)).subarray(0, length);

function schedule(exchanged, enc, recipient, info) {
  const none = Buffer.alloc(0);
  const prk = extract(KEM, none, "eae_prk", exchanged);
  const shared = expand(KEM, prk, "shared_secret", Buffer.concat([enc, recipient]), 32);
  const context = Buffer.concat([Buffer.of(0), extract(HPKE, none, "psk_id_hash", none), extract(HPKE, none, "info_hash", info)]);
  const secret = extract(HPKE, shared, "secret", none);
  return [expand(HPKE, secret, "key", context, 16), expand(HPKE, secret, "base_nonce", context, 12)];
}

export function seal(plaintext, recipient, info, ephemeral) {
  const enc = publicOf(ephemeral);
  const [key, nonce] = schedule(exchange(ephemeral, recipient), enc, recipient, info);
  const cipher = crypto.createCipheriv("aes-128-gcm", key, nonce);
  return Buffer.concat([enc, cipher.update(plaintext), cipher.final(), cipher.getAuthTag()]);
}

/** Throws for what does not open. */
export function unseal(sealed, recipient, info) {
  if (sealed.length < 48) throw new Error("too short for a seal");
  const enc = sealed.subarray(0, 32);
  const [key, nonce] = schedule(exchange(recipient, enc), enc, publicOf(recipient), info);
  const cipher = crypto.createDecipheriv("aes-128-gcm", key, nonce);
  cipher.setAuthTag(sealed.subarray(-16));
  return Buffer.concat([cipher.update(sealed.subarray(32, -16)), cipher.final()]);
}
