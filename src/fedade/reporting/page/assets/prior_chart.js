// Class frequencies at one timestep: true ones as bars, estimated ones as dots on stems, readable for 2 or 200 classes.

/** spec: {truth, estimate, top}; either may be null. `top` is common to all timesteps, so that they can be compared. */
function drawPriors(host, { truth, estimate, top }) {
  const count = (truth ?? estimate).length;
  const width = host.clientWidth;
  const height = 240;
  const { toX, toY, plot, markup } = frame(width, height, {
    xs: [-0.5, count - 0.5],
    ys: [0, top],
    xTitle: "class",
    title: "frequency",
    yTicks: ticks(0, top, 5),
    yText: short,
  });
  const slot = (plot.right - plot.left) / count;
  const bar = Math.max(1, slot * 0.64);
  const bars = Array.from(truth ?? [], (value, i) =>
    Number.isFinite(value)
      ? `<rect class="true" x="${toX(i) - bar / 2}" width="${bar}" y="${toY(value)}" height="${plot.bottom - toY(value)}"/>`
      : "",
  );
  const radius = Math.max(1.5, Math.min(4.5, slot / 3));
  const dots = Array.from(estimate ?? [], (value, i) =>
    Number.isFinite(value)
      ? `<line class="stem" x1="${toX(i)}" x2="${toX(i)}" y1="${plot.bottom}" y2="${toY(value)}"/>` +
        `<circle class="estimated" cx="${toX(i)}" cy="${toY(value)}" r="${radius}"/>`
      : "",
  );
  host.innerHTML = `<svg height="${height}" viewBox="0 0 ${width} ${height}" aria-hidden="true">${markup}${bars.join("")}${dots.join("")}</svg>`;
  host.setAttribute("role", "img");
  host.setAttribute("aria-label", `Class frequencies of ${count} classes`);
  host.onpointerleave = hideTip;
  host.onpointermove = (event) => {
    const i = Math.floor((event.clientX - host.getBoundingClientRect().left - plot.left) / slot);
    if (i < 0 || i >= count) return hideTip();
    const said = [
      ["true", truth],
      ["estimated", estimate],
    ]
      .filter(([, values]) => values)
      .map(([name, values]) => `<tr><td>${name}</td><td>${short(values[i])}</td></tr>`);
    showTip(`class ${i}<table>${said.join("")}</table>`, event.clientX, event.clientY);
  };
}
