// What answers are worth beyond accuracy over time: calibration, classes, clients, drift.

const PERFECT = { name: "confidence is accuracy", colour: "var(--soft)", dash: "2 4" };

/** An array of a method's tracks, mean over the seeds that are chosen; null where it has none. */
async function answersOf(method, name) {
  const tracks = scene().tracks.filter(
    (one) =>
      one.method === method && one.answers?.[name] && (state.curveSeed === "all" || one.seed === state.curveSeed),
  );
  if (!tracks.length) return null;
  const values = meanOf(await Promise.all(tracks.map((one) => numbers(one.answers[name]))));
  return { values, times: tracks.map((one) => counted(one.timesteps)).reduce(longer) };
}

/** A series in percent for every method that is switched on and has the array. */
async function answerSeries(name, places) {
  const series = shownMethods().map(async (method) => {
    const found = await answersOf(method, name);
    if (!found) return null;
    const values = found.values.map((value) => 100 * value);
    return { name: nameOf(method), method, times: places(values.length), values, ...lookOf(method) };
  });
  return emphasised((await Promise.all(series)).filter(Boolean));
}

const count = (from) => (length) => Array.from({ length }, (_, i) => i + from);
const NOT_RECORDED = "Runs of earlier versions did not record this.";
const FOLLOWS_METHODS = ["scene", "curveSeed", "hidden", "focus"];

function calibrationView() {
  const host = document.getElementById("calibration");
  const chart = new LineChart(host);
  view(host, FOLLOWS_METHODS, async () => {
    const middles = (length) => Array.from({ length }, (_, i) => (100 * (i + 0.5)) / length);
    const series = await answerSeries("calibration", middles);
    const times = series[0]?.times ?? [];
    const perfect = { ...PERFECT, times, values: Float64Array.from(times) };
    return () =>
      chart.draw({
        title: "accuracy (%) of answers by their confidence",
        series: series.length ? [perfect, ...series] : [],
        ys: [0, 100],
        height: 280,
        text: percent,
        xTitle: "confidence (%)",
        xText: (middle) => `confidence ${middle - 5} to ${middle + 5} %`,
        empty: NOT_RECORDED,
      });
  });
}

function expectedView() {
  const host = document.getElementById("expected");
  const chart = new LineChart(host);
  const line = async (score, name, dash) => {
    const found = await curveOf(state.method, score);
    return found && { ...found, name, dash, low: undefined, high: undefined };
  };
  view(host, ["scene", "curveSeed", "smoothing", "method"], async () => {
    const known = [
      await line("accuracy_post", "true", ""),
      await line("confidence", "expected by the model", "7 3"),
    ].filter(Boolean);
    return () =>
      chart.draw({
        title: `accuracy (%), true and expected, ${nameOf(state.method)}`,
        series: known.length === 2 ? known : [],
        height: 280,
        text: percent,
        empty: NOT_RECORDED,
      });
  });
}

function classesView() {
  const host = document.getElementById("classes");
  const chart = new LineChart(host);
  view(host, FOLLOWS_METHODS, async () => {
    const series = (await answerSeries("classes", count(0))).map((one) => ({ ...one, dots: true }));
    return () =>
      chart.draw({
        title: "recognised (%), by true class",
        series,
        height: 280,
        text: percent,
        xTitle: "class",
        xText: (one) => `class ${one}`,
        empty: NOT_RECORDED,
      });
  });
}

function clientRanksView() {
  const host = document.getElementById("client-ranks");
  const chart = new LineChart(host);
  view(host, FOLLOWS_METHODS, async () => {
    const series = await answerSeries("clients", count(1));
    return () =>
      chart.draw({
        title: "accuracy (%) of clients, worst to best",
        series,
        height: 280,
        text: percent,
        xTitle: "place among the clients",
        xText: (place) => `place ${place}`,
      });
  });
}

function driftView() {
  const host = document.getElementById("drift-part");
  const [drift, signals] = ["true-drift", "drift-signals"].map((id) => new LineChart(document.getElementById(id)));
  const note = document.getElementById("drift-note");
  view(host, ["scene", "curveSeed", "method"], async () => {
    const line = async (name, i) => {
      const found = await answersOf(state.method, name);
      return found && { ...found, name: titleOf(name), colour: `var(--series-${i})`, dash: DASHES[i] };
    };
    const truth = await line("drift", 6);
    const seen = (await Promise.all(SIGNALS.map(line))).filter(Boolean);
    return () => {
      document.getElementById("drift").hidden = !truth;
      note.textContent = truth ? "" : `${nameOf(state.method)} has no signals.`;
      if (!truth) return;
      const fromZero = (series) => [0, 1.06 * rangeOf(series.map(({ values }) => values))[1] || 1];
      drift.draw({ title: "true drift", series: [{ ...truth, dash: "" }], ys: fromZero([truth]), height: 230 });
      signals.draw({ title: "signals", series: seen, ys: fromZero(seen), height: 230 });
      document.getElementById("drift-keys").innerHTML = seen
        .map(({ name, colour }) => `<span class="key" style="background:${colour}"></span> ${escaped(name)}`)
        .join(" &ensp;");
    };
  });
}
