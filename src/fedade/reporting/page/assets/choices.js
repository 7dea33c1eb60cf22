// What can be chosen in a scene.

const TITLES = {
  accuracy_post: "accuracy after adaptation",
  accuracy_pre: "accuracy before adaptation",
  accuracy_fresh: "accuracy on a fresh draw",
  confidence: "accuracy that the model expects",
  nll: "NLL",
  brier: "Brier score",
  learning_rate: "learning rate η",
  s_unc: "S_unc (uncertainty)",
  s_rep: "S_rep (representation)",
  s: "S (combined)",
  severity: "corruption severity",
  estimated_accuracy: "estimated accuracy",
  waiting: "batches that wait",
  participated: "rounds taken part in",
};
const DASHES = ["", "7 3", "2.5 2.5", "9 3 2 3", "14 4"];
const COLOURS = 8;

const titleOf = (column) => TITLES[column] ?? column.replaceAll("_", " ");
const isAccuracy = (column) => column.startsWith("accuracy") || column === "confidence";
const isOurs = (method) => /^fed-?ade(?![\w-])/i.test(method);

// Plain lines in the clearest colours go to the method that this project is about, then to those it is compared with.
const colourOrder = () =>
  [...index.methods]
    .sort((a, b) => isOurs(b.name) - isOurs(a.name) || a.oracle - b.oracle)
    .map(({ name }) => name);

/** Colour and dash of a method: the same in every scene. */
function lookOf(method) {
  const place = colourOrder().indexOf(method);
  return { colour: `var(--series-${place % COLOURS})`, dash: DASHES[Math.floor(place / COLOURS) % DASHES.length] };
}

const nameOf = (method) => (index.methods.find(({ name }) => name === method)?.oracle ? `${method} (oracle)` : method);
const scene = () => index.scenes[state.scene];
const sceneMethods = () =>
  index.methods.map(({ name }) => name).filter((name) => scene().tracks.some((one) => one.method === name));
const sceneSeeds = () => distinct(scene().tracks.map((one) => one.seed)).sort(byNumber);
const detailed = () => scene().tracks.filter((one) => one.detail);
const detailedMethods = () => sceneMethods().filter((name) => detailed().some((one) => one.method === name));
const detailedSeeds = () =>
  distinct(
    detailed()
      .filter((one) => one.method === state.method)
      .map((one) => one.seed),
  ).sort(byNumber);
const chosenTrack = () => detailed().find((one) => one.method === state.method && one.seed === state.seed);
const columns = () => Object.keys(chosenTrack()?.detail.columns ?? {});
const clients = () => counted(chosenTrack()?.detail.clients ?? []);
const timesteps = () => counted(chosenTrack()?.timesteps ?? []);
const scores = () => Object.keys(TITLES).filter((name) => scene().tracks.some((one) => one.curves[name]));

/** Of some methods, the one with the highest accuracy over all seeds that is no oracle. */
function bestOf(methods) {
  const reached = (name) =>
    mean(
      scene()
        .tracks.filter((one) => one.method === name)
        .map((one) => one.mean ?? NaN),
    );
  const oracles = index.methods.filter(({ oracle }) => oracle).map(({ name }) => name);
  const known = methods.filter((name) => !oracles.includes(name) && Number.isFinite(reached(name)));
  const better = (a, b) => reached(b) - reached(a) || isOurs(b) - isOurs(a);
  return known.length ? known.sort(better)[0] : methods[0];
}

/** Keep the choice possible: another scene may lack a method, a seed or a measure. */
function settle() {
  const orFirst = (value, allowed) => (allowed.includes(value) ? value : (allowed[0] ?? null));
  state.score = orFirst(state.score, scores());
  state.curveSeed = orFirst(state.curveSeed, ["all", ...sceneSeeds()]);
  const methods = detailed().length ? detailedMethods() : sceneMethods();
  state.method = methods.includes(state.method) ? state.method : (bestOf(methods) ?? null);
  state.seed = orFirst(state.seed, detailedSeeds());
  state.column = orFirst(state.column, columns());
  state.client = orFirst(state.client, clients());
  state.timestep = timesteps().includes(state.timestep) ? state.timestep : (timesteps().at(-1) ?? null);
}
