// Charts as files: SVG for papers, PNG for everything else.

const STYLES =
  "fill stroke stroke-width stroke-dasharray stroke-linejoin opacity visibility font-family font-size font-weight".split(" ");
const LEGEND_LINE = 18;

/** Put the buttons under every chart that has none yet. */
function offerSaving(root) {
  for (const figure of root.querySelectorAll("figure:has(> .chart)")) {
    if (figure.querySelector(".saving")) continue;
    const bar = document.createElement("div");
    bar.className = "saving";
    bar.append(...["SVG", "PNG"].map((kind) => savingButton(figure, kind)));
    figure.append(bar);
  }
}

function savingButton(figure, kind) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = kind;
  button.setAttribute("aria-label", `Save this chart as ${kind}`);
  button.addEventListener("click", async () => {
    const drawing = standalone(figure.querySelector(".chart"));
    if (!drawing) return;
    const text = new XMLSerializer().serializeToString(drawing);
    const blob =
      kind === "SVG" ? new Blob([text], { type: "image/svg+xml" }) : await pictureOf(text, drawing.viewBox.baseVal);
    download(blob, `${fileName(figure)}.${kind.toLowerCase()}`);
  });
  return button;
}

/** The name of the chart's place, or its title where it has none. */
function fileName(figure) {
  const chart = figure.querySelector(".chart");
  return (chart.id || chart.querySelector(".title").textContent)
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, "-")
    .replace(/^-|-$/g, "");
}

const element = (name, attributes, text = "") => {
  const one = document.createElementNS(document.querySelector("#plots svg").namespaceURI, name);
  for (const [key, value] of Object.entries(attributes)) one.setAttribute(key, value);
  one.textContent = text;
  return one;
};

/** A drawing that needs no style sheet: colours and fonts written out, pixels and names of the lines included. */
function standalone(chart) {
  const shown = chart.querySelector(":scope > svg");
  if (!shown) return null;
  const [width, height] = [shown.viewBox.baseVal.width, shown.viewBox.baseVal.height];
  const drawing = shown.cloneNode(true);
  const copies = drawing.querySelectorAll("*");
  shown.querySelectorAll("*").forEach((one, i) => {
    const style = getComputedStyle(one);
    for (const name of STYLES) copies[i].style.setProperty(name, style.getPropertyValue(name));
  });
  drawing.querySelector(".read")?.remove();
  drawing.removeAttribute("style");
  const page = getComputedStyle(document.body);
  const below = keysOf(chart, shown, width, page);
  const whole = height + 8 + below.height;
  for (const [key, value] of Object.entries({ width, height: whole, viewBox: `0 0 ${width} ${whole}` }))
    drawing.setAttribute(key, value);
  below.parts.setAttribute("transform", `translate(0 ${height + 8})`);
  drawing.prepend(element("rect", { width, height: whole, fill: page.backgroundColor }), ...pixelsOf(chart));
  drawing.append(below.parts);
  return drawing;
}

/** The heat map's canvas as an image. */
function pixelsOf(chart) {
  const canvas = chart.querySelector("canvas");
  if (!canvas) return [];
  const [x, y, width, height] = ["left", "top", "width", "height"].map((name) => parseFloat(canvas.style[name]));
  const image = element("image", { x, y, width, height, preserveAspectRatio: "none", href: canvas.toDataURL() });
  image.style.imageRendering = "pixelated";
  return [image];
}

/** What stands beside the chart on the page and must go with it: names of the lines, or the ends of the colour scale. */
function keysOf(chart, shown, width, page) {
  const parts = element("g", { "font-family": page.fontFamily, "font-size": 12, fill: page.color });
  const series = [...shown.querySelectorAll(".line, .dots")].map((one) => [one.dataset.series, getComputedStyle(one)]);
  const said = series.length > 1 ? series : [];
  let [x, y] = [0, 0];
  for (const [name, style] of said) {
    const room = 34 + 7 * name.length;
    if (x > 0 && x + room > width) [x, y] = [0, y + LEGEND_LINE];
    const colour = style.stroke === "none" ? style.fill : style.stroke;
    parts.append(
      element("path", { d: `M${x} ${y + 8}h22`, stroke: colour, "stroke-width": 3, "stroke-dasharray": style.strokeDasharray }),
      element("text", { x: x + 27, y: y + 12 }, name),
    );
    x += room;
  }
  const ends = [...chart.querySelectorAll(".scale span")].map((one) => one.textContent);
  if (ends.length) parts.append(element("text", { x: 0, y: 12 }, `dark ${ends[0]}, bright ${ends[1]}`));
  return { parts, height: said.length ? y + LEGEND_LINE : ends.length ? LEGEND_LINE : 0 };
}

/** An SVG drawn at twice its size. */
async function pictureOf(text, { width, height }) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [2 * width, 2 * height];
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

function download(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
