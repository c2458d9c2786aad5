// Exact integers, and logarithms to 60 digits.

export const gcd = (a, b) => (b ? gcd(b, a % b) : a);
export const lowest = (a, b) => [a / gcd(a, b), b / gcd(a, b)];
export const ceiling = (a, b) => (a + b - 1n) / b; // of positive integers
export const sum = (values) => values.reduce((total, each) => total + each, 0n);
export const largest = (values) => values.reduce((most, each) => (each > most ? each : most));
export const smallest = (values) => values.reduce((least, each) => (each < least ? each : least));

export function choose(n, k) {
  if (k < 0n || k > n) return 0n;
  let ways = 1n;
  for (let i = 0n; i < k; i++) ways = (ways * (n - i)) / (i + 1n);
  return ways;
}

const ONE = 10n ** 60n;
const bits = (n) => BigInt(n.toString(2).length);

function atanh(numerator, denominator) {
  const x = (numerator * ONE) / denominator;
  const squared = (x * x) / ONE;
  let [total, power] = [0n, x];
  for (let i = 1n; power; i += 2n) {
    total += power / i;
    power = (power * squared) / ONE;
  }
  return total;
}

const LN2 = 2n * atanh(1n, 3n);

/** ln(n/d) in units of 10^-60, off by far less than 10^-50; exactly 0 for n = d. */
export function ln(n, d) {
  if (n === d) return 0n;
  const k = bits(n) - bits(d);
  if (k > 0n) d <<= k;
  else n <<= -k;
  return k * LN2 + 2n * atanh(n - d, n + d);
}

/** A loss in millionths, rounded up. No logarithm is so near a millionth that its error could matter. */
export const micro = (loss) => Number(ceiling(loss, ONE / 10n ** 6n));
