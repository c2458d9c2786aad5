// Canonical MessagePack: integers are BigInt, maps are Map, bytes are Buffer. No floats, no extensions.

export class Malformed extends Error {}

export function need(condition, message) {
  if (!condition) throw new Malformed(message);
}

const MOST = 2n ** 64n - 1n;
const LEAST = -(2n ** 63n);
const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

export function encode(value) {
  const parts = [];
  write(value, parts);
  return Buffer.concat(parts);
}

export function decode(bytes) {
  const reader = { bytes: Buffer.from(bytes), at: 0 };
  const value = read(reader);
  need(reader.at === reader.bytes.length, "something follows");
  need(encode(value).equals(reader.bytes), "not the canonical form");
  return value;
}

function write(value, parts) {
  if (value === null) return void parts.push(Buffer.of(0xc0));
  if (typeof value === "boolean") return void parts.push(Buffer.of(value ? 0xc3 : 0xc2));
  if (typeof value === "number") return write(BigInt(value), parts);
  if (typeof value === "bigint") return void parts.push(integer(value));
  if (typeof value === "string") {
    const text = Buffer.from(value, "utf-8");
    const head = text.length < 32 ? Buffer.of(0xa0 | text.length) : sized([0xd9, 0xda, 0xdb], text.length);
    return void parts.push(head, text);
  }
  if (value instanceof Uint8Array) return void parts.push(sized([0xc4, 0xc5, 0xc6], value.length), value);
  if (Array.isArray(value)) {
    parts.push(value.length < 16 ? Buffer.of(0x90 | value.length) : sized([null, 0xdc, 0xdd], value.length));
    for (const item of value) write(item, parts);
    return undefined;
  }
  if (value instanceof Map) {
    parts.push(value.size < 16 ? Buffer.of(0x80 | value.size) : sized([null, 0xde, 0xdf], value.size));
    const keys = [...value.keys()].sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
    for (const key of keys) {
      write(key, parts);
      write(value.get(key), parts);
    }
    return undefined;
  }
  throw new Malformed("no such value");
}

function sized([one, two, four], length) {
  if (one !== null && length < 2 ** 8) return Buffer.of(one, length);
  return length < 2 ** 16
    ? Buffer.concat([Buffer.of(two), unsigned(BigInt(length), 2)])
    : Buffer.concat([Buffer.of(four), unsigned(BigInt(length), 4)]);
}

function integer(value) {
  need(LEAST <= value && value <= MOST, "an integer of more than 64 bits");
  if (value >= 0n) {
    if (value < 128n) return Buffer.of(Number(value));
    const power = [0, 1, 2, 3].find((each) => value < 2n ** (8n << BigInt(each)));
    return Buffer.concat([Buffer.of(0xcc + power), unsigned(value, 1 << power)]);
  }
  if (value >= -32n) return Buffer.of(256 + Number(value));
  const power = [0, 1, 2, 3].find((each) => value >= -(2n ** ((8n << BigInt(each)) - 1n)));
  const bits = 8n << BigInt(power);
  return Buffer.concat([Buffer.of(0xd0 + power), unsigned(2n ** bits + value, 1 << power)]);
}

/** A non-negative integer, big-endian, in so many bytes. */
export function unsigned(value, width) {
  const bytes = Buffer.alloc(width);
  for (let at = width - 1; at >= 0; at--) {
    bytes[at] = Number(value & 255n);
    value >>= 8n;
  }
  if (value) throw new Error("does not fit");
  return bytes;
}

function take(reader, count) {
  need(reader.at + count <= reader.bytes.length, "cut short");
  reader.at += count;
  return reader.bytes.subarray(reader.at - count, reader.at);
}

function number(reader, width) {
  return take(reader, width).reduce((sum, byte) => sum * 256n + BigInt(byte), 0n);
}

function read(reader, depth = 0) {
  need(depth < 100, "too deep");
  const [type] = take(reader, 1);
  if (type < 0x80) return BigInt(type);
  if (type < 0x90) return readMap(reader, type & 15, depth);
  if (type < 0xa0) return readList(reader, type & 15, depth);
  if (type < 0xc0) return readText(reader, type & 31);
  if (type >= 0xe0) return BigInt(type) - 256n;
  if (type === 0xc0) return null;
  if (type === 0xc2 || type === 0xc3) return type === 0xc3;
  if (type >= 0xc4 && type <= 0xc6) return take(reader, Number(number(reader, 1 << (type - 0xc4))));
  if (type >= 0xcc && type <= 0xcf) return number(reader, 1 << (type - 0xcc));
  if (type >= 0xd0 && type <= 0xd3) {
    const width = 1 << (type - 0xd0);
    return BigInt.asIntN(8 * width, number(reader, width));
  }
  if (type >= 0xd9 && type <= 0xdb) return readText(reader, Number(number(reader, 1 << (type - 0xd9))));
  if (type === 0xdc || type === 0xdd) return readList(reader, Number(number(reader, type === 0xdc ? 2 : 4)), depth);
  if (type === 0xde || type === 0xdf) return readMap(reader, Number(number(reader, type === 0xde ? 2 : 4)), depth);
  throw new Malformed("a float, an extension, or no type at all");
}

function readText(reader, length) {
  try {
    return utf8.decode(take(reader, length));
  } catch {
    throw new Malformed("no UTF-8");
  }
}

function readList(reader, length, depth) {
  const list = [];
  for (let i = 0; i < length; i++) list.push(read(reader, depth + 1));
  return list;
}

function readMap(reader, length, depth) {
  const map = new Map();
  for (let i = 0; i < length; i++) {
    const key = read(reader, depth + 1);
    need(typeof key === "string", "a key that is no string");
    map.set(key, read(reader, depth + 1));
  }
  return map; // a key that came twice makes it shorter, and so not canonical
}
