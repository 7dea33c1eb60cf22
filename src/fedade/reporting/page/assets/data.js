// The page's numbers. An array is unpacked when a plot first asks for it, so that opening the page costs nothing.

const index = JSON.parse(document.getElementById("index").textContent);
const blobs = document.getElementById("blobs").textContent.trim().split("\n");
const unpacked = new Map();

/** The values of a packed array, NaN where there is none. */
function numbers(packed) {
  if (!unpacked.has(packed)) unpacked.set(packed, unpack(packed));
  return unpacked.get(packed);
}

async function unpack({ blob, bits, low, step }) {
  const bytes = Uint8Array.from(atob(blobs[blob]), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const buffer = await new Response(stream).arrayBuffer();
  const codes = new { 8: Uint8Array, 16: Uint16Array }[bits](buffer);
  const missing = 2 ** bits - 1;
  return Float64Array.from(codes, (code) => (code === missing ? NaN : low + step * code));
}

/** Client numbers or timesteps, which are written in short where they are evenly spaced. */
function counted(numbering) {
  if (Array.isArray(numbering)) return numbering;
  return Array.from({ length: numbering.count }, (_, i) => numbering.first + i * numbering.step);
}

/** The part of a `[client, ...]` array that belongs to one client. */
function ofClient(values, shape, place) {
  const size = values.length / shape[0];
  return values.subarray(place * size, (place + 1) * size);
}

const distinct = (values) => [...new Set(values)];
const byNumber = (a, b) => a - b;

/** Mean of the numbers that are there. */
function mean(values) {
  const known = values.filter(Number.isFinite);
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : NaN;
}

const longer = (a, b) => (b.length > a.length ? b : a);

/** Element-wise mean of arrays; seeds that still run are shorter. */
function meanOf(arrays) {
  return arrays.reduce(longer).map((_, i) => mean(arrays.map((values) => values[i])));
}

/** Moving mean of `width` timesteps around each; at the ends, of those that exist. */
function smoothed(values, width) {
  const reach = Math.floor(width / 2);
  if (reach === 0) return values;
  return values.map((value, i) =>
    Number.isFinite(value) ? mean(values.subarray(Math.max(0, i - reach), i + reach + 1)) : NaN,
  );
}

/** Smallest and largest number of several arrays; 0 and 1 where there is none. */
function rangeOf(arrays) {
  let [low, high] = [Infinity, -Infinity];
  for (const values of arrays) {
    for (const value of values) {
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  return low <= high ? [low, high] : [0, 1];
}
