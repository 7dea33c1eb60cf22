// The controls: what each offers and what it sets.

const pairs = (values, text = String) => values.map((value) => [value, text(value)]);

const seedOffers = () =>
  sceneSeeds().length > 1
    ? [["all", `mean of ${sceneSeeds().length}`], ...pairs(sceneSeeds())]
    : [["all", sceneSeeds()[0]]];

/** Select elements: the part of the state that each sets, and what it offers. */
const SELECTS = {
  score: { key: "score", offers: () => pairs(scores(), (name) => titleOf(name).replace("accuracy ", "")) },
  "curve-seed": { key: "curveSeed", offers: () => seedOffers() },
  smoothing: { key: "smoothing" },
  "answers-method": { key: "method", offers: () => pairs(sceneMethods(), nameOf) },
  "heat-method": { key: "method", offers: () => pairs(detailedMethods(), nameOf) },
  "heat-column": { key: "column", offers: () => pairs(columns(), titleOf) },
  "heat-scale": { key: "scale" },
  "heat-order": { key: "order" },
  client: { key: "client", offers: () => pairs(clients()) },
  "client-method": { key: "method", offers: () => pairs(detailedMethods(), nameOf) },
  "client-seed": { key: "seed", offers: () => pairs(detailedSeeds()) },
};

/** Values of select elements are text; most of ours are numbers. */
const meant = (text) => (text !== "" && Number.isFinite(Number(text)) ? Number(text) : text);

const offered = new Map();

function fillControls() {
  for (const [id, { key, offers }] of Object.entries(SELECTS)) {
    const element = document.getElementById(id);
    if (offers) {
      const markup = offers()
        .map(([value, text]) => `<option value="${escaped(value)}">${escaped(text)}</option>`)
        .join("");
      // Written only when it differs: a list must not be rebuilt under the reader's finger.
      if (offered.get(id) !== markup) element.innerHTML = markup;
      offered.set(id, markup);
    }
    element.value = state[key] ?? "";
  }
  document.getElementById("heat-scale").disabled = !isAccuracy(state.column ?? "");
  const slider = document.getElementById("timestep");
  slider.max = Math.max(0, timesteps().length - 1);
  slider.value = timesteps().indexOf(state.timestep);
  slider.setAttribute("aria-valuetext", `timestep ${state.timestep}`);
  document.getElementById("timestep-shown").textContent = `t = ${state.timestep}`;
  fillLegend();
  sayWhatIsKept();
  showSceneTables();
}

/** What the page had to leave out, in words. */
function sayWhatIsKept() {
  const kept = distinct(detailed().map((one) => one.seed)).length;
  const all = sceneSeeds().length;
  const oneIn = chosenTrack()?.detail.one_in ?? 1;
  const parts = [kept < all && `${kept} of ${all} seeds`, oneIn > 1 && `one client in ${oneIn}`].filter(Boolean);
  const element = document.getElementById("kept");
  element.hidden = !parts.length;
  element.textContent = `To keep this page small, single clients are here for ${parts.join(" and ")}; the trace has all.`;
}

/** Of the tables that belong to single scenes, only the one of the chosen scene. */
function showSceneTables() {
  for (const element of document.querySelectorAll("[data-scene]"))
    element.hidden = Number(element.dataset.scene) !== state.scene;
}

function bindControls() {
  for (const [id, { key }] of Object.entries(SELECTS))
    document.getElementById(id).addEventListener("change", (event) => choose({ [key]: meant(event.target.value) }));
  document.getElementById("bands").addEventListener("change", (event) => choose({ bands: event.target.checked }));
  document
    .getElementById("timestep")
    .addEventListener("input", (event) => choose({ timestep: timesteps()[event.target.value] }));
}

function fillLegend() {
  const host = document.getElementById("legend");
  const methods = sceneMethods().join("\n");
  if (offered.get("legend") !== methods) {
    host.replaceChildren(...sceneMethods().map(legendButton));
    offered.set("legend", methods);
  }
  for (const button of host.children) button.setAttribute("aria-pressed", !state.hidden.has(button.dataset.method));
}

function legendButton(method) {
  const button = document.createElement("button");
  const { colour, dash } = lookOf(method);
  button.type = "button";
  button.dataset.method = method;
  button.innerHTML =
    `<svg viewBox="0 0 24 10" aria-hidden="true"><line x1="0" x2="24" y1="5" y2="5" stroke="${colour}" ` +
    `stroke-width="3" stroke-dasharray="${dash}"/></svg>${escaped(nameOf(method))}`;
  button.addEventListener("click", () => {
    const hidden = new Set(state.hidden);
    if (!hidden.delete(method)) hidden.add(method);
    choose({ hidden });
  });
  const focus = (one) => () => choose({ focus: one });
  for (const [event, one] of [
    ["pointerenter", method],
    ["focus", method],
    ["pointerleave", null],
    ["blur", null],
  ])
    button.addEventListener(event, focus(one));
  return button;
}
