// Axes and text.

const ESCAPES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };

/** Text that may stand inside markup. */
function escaped(text) {
  return String(text).replace(/[&<>"']/g, (letter) => ESCAPES[letter]);
}

/** Round numbers from `low` to `high`, about `count` of them. */
function ticks(low, high, count) {
  const rough = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 2.5, 5, 10].find((factor) => factor * power >= rough * 0.999);
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}

/** Whole numbers only, the first one among them: time begins at 1, and there is no timestep 2.5. */
function wholeTicks(low, high, count) {
  if (low === high) return [low];
  const round = ticks(low, high, Math.min(count, Math.max(1, high - low))).filter(Number.isInteger);
  const gap = round[1] - round[0];
  return round[0] > low && round[0] - low > 0.6 * gap ? [low, ...round] : round;
}

/** A range with a little air, never empty. */
function padded([low, high]) {
  const air = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
  return [low - air, high + air];
}

const SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹";

/** Small numbers are drawn in units of a power of ten, so that labels stay short. */
function unitFor(high) {
  const power = Math.floor(Math.log10(Math.abs(high) || 1));
  if (power > -3) return { factor: 1, name: "" };
  return { factor: 10 ** -power, name: ` (× 10⁻${[...String(-power)].map((digit) => SUPERSCRIPTS[digit]).join("")})` };
}

/** A number with three digits that say something. */
function short(value) {
  if (!Number.isFinite(value)) return "–";
  if (value !== 0 && Math.abs(value) < 1e-3) return value.toExponential(2).replace("-", "−");
  return String(Number(value.toPrecision(3))).replace("-", "−");
}

/** A share as percent. */
function percent(value) {
  return Number.isFinite(value) ? `${value.toFixed(1)} %` : "–";
}

const tip = document.getElementById("tip");

/** Show markup beside a point of the window, inside the window. */
function showTip(markup, x, y) {
  tip.innerHTML = markup;
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const left = x + 16 + width > innerWidth ? x - 16 - width : x + 16;
  tip.style.left = `${Math.max(4, Math.min(left, innerWidth - width - 4))}px`;
  tip.style.top = `${Math.max(4, Math.min(y - height / 2, innerHeight - height - 4))}px`;
}

function hideTip() {
  tip.hidden = true;
}
