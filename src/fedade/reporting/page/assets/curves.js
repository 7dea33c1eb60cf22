// Accuracy over time, all methods.

const MANY = 4; // more bands than this hide one another

/** The series of one method: mean over seeds of its mean and quartiles, in percent. */
async function curveOf(method, score = state.score) {
  const tracks = scene().tracks.filter(
    (one) => one.method === method && one.curves[score] && (state.curveSeed === "all" || one.seed === state.curveSeed),
  );
  if (!tracks.length) return null;
  const times = tracks.map((one) => counted(one.timesteps)).reduce(longer);
  const found = await Promise.all(tracks.map((one) => numbers(one.curves[score])));
  const line = (place) => {
    const parts = found.map((values) => values.slice((place * values.length) / 3, ((place + 1) * values.length) / 3));
    return smoothed(meanOf(parts), state.smoothing).map((value) => 100 * value);
  };
  const [values, low, high] = [0, 1, 2].map(line);
  return { name: nameOf(method), method, times, values, low, high, ...lookOf(method) };
}

/** Lines as they are drawn: one may be pointed at, and bands are left out where they would hide one another. */
function emphasised(series) {
  const crowded = series.length > MANY;
  return series.map((one) => {
    const pointedAt = one.method === state.focus;
    const band = state.bands && one.low && (crowded ? pointedAt : state.focus === null || pointedAt);
    const dim = state.focus !== null && !pointedAt && series.some(({ method }) => method === state.focus);
    return { ...one, low: band ? one.low : undefined, high: band ? one.high : undefined, strong: pointedAt, dim };
  });
}

const shownMethods = () => sceneMethods().filter((name) => !state.hidden.has(name));

function accuracyView() {
  const host = document.getElementById("accuracy");
  const chart = new LineChart(host);
  view(host, ["scene", "score", "curveSeed", "smoothing", "bands", "hidden", "focus"], async () => {
    const all = (await Promise.all(sceneMethods().map((method) => curveOf(method)))).filter(Boolean);
    const shown = all.filter((one) => !state.hidden.has(one.method));
    // Bands count for the scale although not all are drawn: pointing at a name must not move the lines.
    const ys = padded(
      rangeOf(shown.flatMap((one) => (state.bands && shown.length <= MANY ? [one.low, one.high] : [one.values]))),
    );
    return () => chart.draw({ title: `${titleOf(state.score)} (%)`, series: emphasised(shown), ys, text: percent });
  });
}
