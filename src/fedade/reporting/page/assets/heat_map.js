// Clients by timesteps, as pixels of a canvas: ten thousand SVG cells would be slow.

// Viridis, which reads the same to colour-blind eyes and in grey, at nine evenly spaced points.
const VIRIDIS = ["#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725"].map(
  (colour) => [1, 3, 5].map((place) => parseInt(colour.slice(place, place + 2), 16)),
);

/** Red, green and blue for a share from 0 to 1. */
function viridis(share) {
  const place = Math.max(0, Math.min(1, share)) * (VIRIDIS.length - 1);
  const from = Math.min(Math.floor(place), VIRIDIS.length - 2);
  return VIRIDIS[from].map((value, i) => value + (place - from) * (VIRIDIS[from + 1][i] - value));
}

/** One pixel per client and timestep; `rows` says which client is drawn where. Missing values stay clear. */
function heatImage(values, rows, width, [low, high]) {
  const image = new ImageData(width, rows.length);
  rows.forEach((row, y) => {
    for (let x = 0; x < width; x++) {
      const value = values[row * width + x];
      if (Number.isFinite(value))
        image.data.set([...viridis((value - low) / (high - low || 1)), 255], 4 * (y * width + x));
    }
  });
  return image;
}

/** The map. The pointer reads a value; a press, or the arrow keys, choose a client and timestep. */
class HeatMap {
  constructor(host, onPick) {
    this.host = host;
    this.onPick = onPick;
    host.tabIndex = 0;
    host.setAttribute("role", "img");
    host.addEventListener("pointermove", (event) => this.#show(event));
    host.addEventListener("pointerleave", hideTip);
    host.addEventListener("click", (event) => this.#pick(this.#place(event)));
    host.addEventListener("keydown", (event) => this.#key(event));
  }

  /** spec: {values, clients, times, rows, range, title, text, client, timestep} */
  draw(spec) {
    this.spec = spec;
    const { times, rows, range, text } = spec;
    const width = this.host.clientWidth;
    const height = Math.max(180, Math.min(520, rows.length * Math.max(4, Math.min(16, 360 / rows.length)))) + 62;
    const yTicks = wholeTicks(0, rows.length - 1, (height - 62) / 24);
    this.frame = frame(width, height, {
      xs: [times[0] - 0.5, times.at(-1) + 0.5],
      ys: [rows.length - 0.5, -0.5],
      xTitle: "timestep t",
      title: `client ↓   ${spec.title}`,
      yTicks,
      yText: (y) => String(spec.clients[rows[y]]),
    });
    const { plot } = this.frame;
    const stops = VIRIDIS.map(([r, g, b]) => `rgb(${r},${g},${b})`).join(",");
    this.host.innerHTML =
      `<canvas width="${times.length}" height="${rows.length}" style="left:${plot.left}px;top:${plot.top}px;` +
      `width:${plot.right - plot.left}px;height:${plot.bottom - plot.top}px"></canvas>` +
      `<svg height="${height}" viewBox="0 0 ${width} ${height}" aria-hidden="true" style="position:relative">` +
      `${this.frame.markup}${this.#mark()}</svg>` +
      `<div class="scale" style="padding-left:${plot.left}px"><span>${text(range[0])}</span>` +
      `<i style="background:linear-gradient(to right,${stops})"></i><span>${text(range[1])}</span></div>`;
    this.host.setAttribute(
      "aria-label",
      `${spec.title} of ${rows.length} clients at ${times.length} timesteps; arrow keys choose one`,
    );
    this.host
      .querySelector("canvas")
      .getContext("2d")
      .putImageData(heatImage(spec.values, rows, times.length, range), 0, 0);
  }

  /** A box around the chosen cell. */
  #mark() {
    const { rows, times, client, timestep } = this.spec;
    const { toX, toY } = this.frame;
    const y = rows.indexOf(client);
    const x = times.indexOf(timestep);
    if (y < 0 || x < 0) return "";
    const [left, right, top, bottom] = [toX(timestep - 0.5), toX(timestep + 0.5), toY(y - 0.5), toY(y + 0.5)];
    // Two frames, one light and one dark, so that it stands out from every colour.
    return ["halo", "chosen"]
      .map(
        (name) =>
          `<rect class="${name}" x="${left - 2}" y="${top - 2}" width="${right - left + 4}" height="${bottom - top + 4}"/>`,
      )
      .join("");
  }

  #place(event) {
    const { plot } = this.frame;
    const bounds = this.host.getBoundingClientRect();
    const { rows, times } = this.spec;
    const x = Math.floor(((event.clientX - bounds.left - plot.left) / (plot.right - plot.left)) * times.length);
    const y = Math.floor(((event.clientY - bounds.top - plot.top) / (plot.bottom - plot.top)) * rows.length);
    return x >= 0 && x < times.length && y >= 0 && y < rows.length ? { x, y } : null;
  }

  #show(event) {
    const place = this.#place(event);
    if (!place) return hideTip();
    const { values, rows, times, clients, text } = this.spec;
    const row = rows[place.y];
    const value = values[row * times.length + place.x];
    showTip(`client ${clients[row]}, t = ${times[place.x]}: ${text(value)}`, event.clientX, event.clientY);
  }

  #pick(place) {
    if (place) this.onPick(this.spec.rows[place.y], this.spec.times[place.x]);
  }

  #key(event) {
    const move = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!move) return;
    event.preventDefault();
    const { rows, times, client, timestep } = this.spec;
    const within = (value, size) => Math.max(0, Math.min(size - 1, value));
    this.#pick({
      x: within(times.indexOf(timestep) + move[0], times.length),
      y: within(rows.indexOf(client) + move[1], rows.length),
    });
  }
}
