// Lines over time, as SVG: sharp at any size, and its colours follow the colour scheme by themselves.

/** A frame with axes; `plot` is where the data goes. */
function frame(width, height, { xs, ys, xTitle, title, yTicks, yText }) {
  const labels = yTicks.map(yText);
  const left = 14 + 7 * Math.max(...labels.map((label) => label.length), 1);
  const plot = { left, right: width - 10, top: 26, bottom: height - 36 };
  const toX = (value) => plot.left + ((value - xs[0]) / (xs[1] - xs[0] || 1)) * (plot.right - plot.left);
  const toY = (value) => plot.bottom - ((value - ys[0]) / (ys[1] - ys[0] || 1)) * (plot.bottom - plot.top);
  const across = yTicks.map((value, i) => {
    const y = toY(value).toFixed(1);
    return (
      `<line class="grid" x1="${plot.left}" x2="${plot.right}" y1="${y}" y2="${y}"/>` +
      `<text x="${plot.left - 8}" y="${y}" dy=".32em" text-anchor="end">${labels[i]}</text>`
    );
  });
  const along = wholeTicks(Math.ceil(xs[0]), Math.floor(xs[1]), width / 80).map(
    (value) => `<text x="${toX(value).toFixed(1)}" y="${plot.bottom + 16}" text-anchor="middle">${value}</text>`,
  );
  const base = `<line class="axis" x1="${plot.left}" x2="${plot.right}" y1="${plot.bottom}" y2="${plot.bottom}"/>`;
  const markup =
    `<text class="title" x="0" y="12">${escaped(title)}</text>${across.join("")}${along.join("")}${base}` +
    `<text x="${(plot.left + plot.right) / 2}" y="${height - 3}" text-anchor="middle">${escaped(xTitle)}</text>`;
  return { plot, toX, toY, markup };
}

/** A path through the points that have a value; it breaks where they have none, and one alone is a short stroke. */
function pathThrough({ times, values }, toX, toY) {
  const known = (i) => Number.isFinite(values[i]);
  const at = (i, aside = 0) => `${(toX(times[i]) + aside).toFixed(1)} ${toY(values[i]).toFixed(1)}`;
  const step = (i) => {
    if (known(i - 1)) return `L${at(i)}`;
    return known(i + 1) ? `M${at(i)}` : `M${at(i, -2)}h4`;
  };
  return [...times.keys()].filter(known).map(step).join("");
}

/** The area between two lines. */
function bandBetween({ times, low, high }, toX, toY) {
  const known = [...times.keys()].filter((i) => Number.isFinite(low[i]) && Number.isFinite(high[i]));
  const point = (i, values) => `${toX(times[i]).toFixed(1)} ${toY(values[i]).toFixed(1)}`;
  const there = known.map((i) => point(i, high));
  const back = known.reverse().map((i) => point(i, low));
  return known.length ? `M${[...there, ...back].join("L")}Z` : "";
}

/** Axes that hold all series, or those that were asked for. */
function lineFrame(width, height, xs, series, { ys, title, text, xTitle = "timestep t" }) {
  const held = ys ?? padded(rangeOf(series.flatMap((one) => [one.values, one.low ?? [], one.high ?? []])));
  const unit = text ? { factor: 1, name: "" } : unitFor(Math.max(...held.map(Math.abs)));
  return frame(width, height, {
    xs,
    ys: held,
    xTitle,
    title: title + unit.name,
    yTicks: ticks(held[0], held[1], height / 40),
    yText: (value) => short(value * unit.factor),
  });
}

/** Values that have no order, such as those of classes: one dot each, with no line to suggest something between. */
function dotMarkup(one, toX, toY) {
  const dots = [...one.times.keys()]
    .filter((i) => Number.isFinite(one.values[i]))
    .map((i) => `<circle cx="${toX(one.times[i]).toFixed(1)}" cy="${toY(one.values[i]).toFixed(1)}" r="4"/>`);
  return `<g class="dots${one.dim ? " dim" : ""}" data-series="${escaped(one.name)}" fill="${one.colour}">${dots.join("")}</g>`;
}

/** Bands below, lines above. Bands are cut off where the axes end, which a nested drawing does by itself. */
function lineMarkup(series, { toX, toY, plot }) {
  const bands = series
    .filter((one) => one.low)
    .map(
      (one) =>
        `<path class="band" data-series="${escaped(one.name)}" fill="${one.colour}" d="${bandBetween(one, toX, toY)}"/>`,
    );
  const lines = series.map((one) =>
    one.dots
      ? dotMarkup(one, toX, toY)
      : `<path class="line${one.strong ? " strong" : ""}${one.dim ? " dim" : ""}" data-series="${escaped(one.name)}" ` +
        `stroke="${one.colour}" stroke-dasharray="${one.dash ?? ""}" d="${pathThrough(one, toX, toY)}"/>`,
  );
  const [width, height] = [plot.right - plot.left, plot.bottom - plot.top];
  return (
    `<svg x="${plot.left}" y="${plot.top}" width="${width}" height="${height}" ` +
    `viewBox="${plot.left} ${plot.top} ${width} ${height}">${bands.join("")}</svg>${lines.join("")}`
  );
}

/** Ticks at marked timesteps, and a line at the chosen one. */
function markMarkup({ marks = [], chosen }, { toX, plot }) {
  const upright = (kind, time, top) =>
    `<line class="${kind}" x1="${toX(time)}" x2="${toX(time)}" y1="${plot.bottom}" y2="${top}"/>`;
  const ticked = marks.map((time) => upright("took-part", time, plot.bottom - 6));
  return ticked.join("") + (chosen === undefined ? "" : upright("chosen", chosen, plot.top));
}

/**
 * Lines with a legend elsewhere. The pointer, or the arrow keys, read the values of one timestep.
 *
 * A series is {name, colour, dash, times, values, low, high, strong, dim}; low and high make a band.
 */
class LineChart {
  constructor(host, onPick = null) {
    this.host = host;
    this.onPick = onPick;
    this.at = null;
    host.tabIndex = 0;
    // Coming from the legend, the first move is lost: leaving a name redraws the lines under the pointer.
    for (const kind of ["pointerenter", "pointermove"]) host.addEventListener(kind, (event) => this.#point(event));
    host.addEventListener("pointerleave", () => this.#leave());
    host.addEventListener("blur", () => this.#leave());
    host.addEventListener("click", (event) => {
      this.#point(event);
      this.onPick?.(this.at);
    });
    host.addEventListener("keydown", (event) => this.#key(event));
  }

  draw(spec) {
    const { at } = this;
    const height = spec.height ?? 320;
    const width = this.host.clientWidth;
    this.spec = spec;
    this.at = null;
    this.drawn = spec.series.filter((one) => one.values.some(Number.isFinite));
    if (!this.drawn.length) {
      this.host.innerHTML = `<p class="empty">${escaped(spec.empty ?? "Nothing to draw: switch a method on.")}</p>`;
      this.frame = null;
      return;
    }
    this.times = distinct(this.drawn.flatMap((one) => [...one.times])).sort(byNumber);
    const span = [this.times[0], this.times.at(-1)];
    this.frame = lineFrame(width, height, span, this.drawn, spec);
    this.host.setAttribute("role", "img");
    this.host.setAttribute("aria-label", `${spec.title}, ${spec.xTitle ?? "timesteps"} ${span.join(" to ")}; arrow keys read values`);
    this.host.innerHTML =
      `<svg height="${height}" viewBox="0 0 ${width} ${height}" aria-hidden="true">` +
      `${this.frame.markup}${lineMarkup(this.drawn, this.frame)}${markMarkup(spec, this.frame)}<g class="read"></g></svg>`;
    if (this.times.includes(at)) this.#read(at);
  }

  #point(event) {
    if (!this.frame) return;
    const { plot } = this.frame;
    const bounds = this.host.getBoundingClientRect();
    const share = (event.clientX - bounds.left - plot.left) / (plot.right - plot.left);
    const wanted = this.times[0] + share * (this.times.at(-1) - this.times[0]);
    this.#read(this.times.reduce((best, time) => (Math.abs(time - wanted) < Math.abs(best - wanted) ? time : best)));
  }

  #key(event) {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Enter" && this.at !== null) this.onPick?.(this.at);
    if (!this.frame || !move) return;
    event.preventDefault();
    const place = this.at === null ? (move > 0 ? -1 : this.times.length) : this.times.indexOf(this.at);
    this.#read(this.times[Math.max(0, Math.min(this.times.length - 1, place + move))]);
  }

  #read(time) {
    this.at = time;
    const { plot, toX, toY } = this.frame;
    const text = this.spec.text ?? short;
    const values = this.drawn
      .map((one) => ({ ...one, value: one.values[one.times.indexOf(time)] }))
      .filter((one) => Number.isFinite(one.value))
      .sort((a, b) => b.value - a.value);
    const dots = values.map(
      (one) => `<circle class="dot" cx="${toX(time)}" cy="${toY(one.value)}" r="4" fill="${one.colour}"/>`,
    );
    this.host.querySelector(".read").innerHTML =
      `<line class="cursor" x1="${toX(time)}" x2="${toX(time)}" y1="${plot.top}" y2="${plot.bottom}"/>${dots.join("")}`;
    const rows = values.map(
      (one) =>
        `<tr><td><i style="background:${one.colour}"></i></td><td>${escaped(one.name)}</td><td>${text(one.value)}</td></tr>`,
    );
    const bounds = this.host.getBoundingClientRect();
    showTip(
      `${this.spec.xText?.(time) ?? `t = ${time}`}<table>${rows.join("")}</table>`,
      bounds.left + toX(time),
      bounds.top + (plot.top + plot.bottom) / 2,
    );
  }

  #leave() {
    this.at = null;
    const read = this.host.querySelector(".read");
    if (read) read.innerHTML = "";
    hideTip();
  }
}
