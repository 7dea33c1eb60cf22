// The heat map, and one client: its accuracy, rates, signals and class frequencies.

/** What the plots of the chosen method, seed and client share; null where single clients are not kept. */
function chosenDetail() {
  const detail = chosenTrack()?.detail;
  return detail ? { detail, times: timesteps(), numbering: clients(), place: clients().indexOf(state.client) } : null;
}

function heatView() {
  const host = document.getElementById("heat");
  const map = new HeatMap(host, (place, timestep) => choose({ client: clients()[place], timestep }));
  view(host, ["scene", "method", "seed", "column", "scale", "order", "client", "timestep"], async () => {
    const found = chosenDetail();
    if (!found) return () => (host.innerHTML = '<p class="empty">Single clients are not kept on this page.</p>');
    const { detail, times, numbering, place } = found;
    const packed = detail.columns[state.column];
    const share = isAccuracy(state.column);
    const raw = await numbers(packed);
    const values = share ? raw.map((value) => 100 * value) : raw;
    const rows = [...numbering.keys()];
    const means = rows.map((row) => mean(ofClient(values, packed.shape, row)));
    if (state.order === "mean") rows.sort((a, b) => means[b] - means[a]);
    const range = share && state.scale === "full" ? [0, 100] : rangeOf([values]);
    return () =>
      map.draw({
        values,
        clients: numbering,
        times,
        rows,
        range,
        client: place,
        timestep: state.timestep,
        title: titleOf(state.column),
        text: share ? percent : short,
      });
  });
}

function clientAccuracyView() {
  const host = document.getElementById("client-accuracy");
  const chart = new LineChart(host, (timestep) => choose({ timestep }));
  const series = async (method) => {
    const track = detailed().find((one) => one.method === method && one.seed === state.seed);
    const packed = track?.detail.columns[state.score];
    if (!packed) return null;
    const place = counted(track.detail.clients).indexOf(state.client);
    if (place < 0) return null;
    const own = ofClient(await numbers(packed), packed.shape, place).map((value) => 100 * value);
    const times = counted(track.timesteps);
    return { name: nameOf(method), method, times, values: smoothed(own, state.smoothing), ...lookOf(method) };
  };
  view(host, ["scene", "score", "smoothing", "hidden", "focus", "client", "seed", "timestep"], async () => {
    const found = (await Promise.all(shownMethods().map(series))).filter(Boolean);
    return () =>
      chart.draw({
        title: `${titleOf(state.score)} (%), client ${state.client}`,
        series: emphasised(found),
        height: 260,
        text: percent,
        chosen: state.timestep ?? undefined,
      });
  });
}

const SIGNALS = ["s_unc", "s_rep", "s"];
const PRESENTED_ELSEWHERE = (name) => isAccuracy(name) || ["participated", "nll", "brier"].includes(name);

/** Which measures share a panel: the signals do, every other measure has its own unit. */
function panelsOf(columns) {
  const names = Object.keys(columns).filter((name) => !PRESENTED_ELSEWHERE(name) && !SIGNALS.includes(name));
  const signals = SIGNALS.filter((name) => columns[name]);
  return [...names.map((name) => [name]), ...(signals.length ? [signals] : [])];
}

/** Quartiles over clients at each timestep, as the background of one client's line. */
function quartiles(values, [clients, steps]) {
  const at = (time, share) => {
    const known = Array.from({ length: clients }, (_, row) => values[row * steps + time])
      .filter(Number.isFinite)
      .sort(byNumber);
    return known.length ? known[Math.round(share * (known.length - 1))] : NaN;
  };
  return [0.25, 0.75].map((share) => Float64Array.from({ length: steps }, (_, time) => at(time, share)));
}

function signalsView() {
  const host = document.getElementById("signals");
  const note = document.getElementById("signals-note");
  view(host.parentElement, ["scene", "method", "seed", "client"], async () => {
    const found = chosenDetail();
    const columns = found?.detail.columns ?? {};
    const panels = panelsOf(columns);
    const read = Object.fromEntries(
      await Promise.all(Object.keys(columns).map(async (name) => [name, await numbers(columns[name])])),
    );
    return () => {
      const marks =
        "participated" in columns
          ? found.times.filter((_, i) => ofClient(read.participated, columns.participated.shape, found.place)[i] > 0)
          : [];
      host.innerHTML = panels.map(() => '<figure><div class="chart"></div><figcaption></figcaption></figure>').join("");
      panels.forEach((names, i) => drawPanel(host.children[i], names, found, columns, read, marks));
      offerSaving(host);
      note.textContent = panels.length
        ? marks.length
          ? "Small ticks above the time axis: timesteps in which the client took part in a round."
          : ""
        : `${nameOf(state.method)} has neither a rate nor signals.`;
    };
  });
}

function drawPanel(figure, names, { times, place }, columns, read, marks) {
  const alone = names.length === 1;
  const [low, high] = alone ? quartiles(read[names[0]], columns[names[0]].shape) : [];
  const series = names.map((name, i) => ({
    name: titleOf(name),
    times,
    values: ofClient(read[name], columns[name].shape, place),
    colour: `var(--series-${i})`,
    dash: DASHES[i],
    low,
    high,
  }));
  new LineChart(figure.firstChild, (timestep) => choose({ timestep })).draw({
    title: alone ? titleOf(names[0]) : "signals, 0 to 1",
    series,
    marks,
    height: 230,
  });
  const keys = series.map(
    ({ name, colour }) => `<span class="key" style="background:${colour}"></span> ${escaped(name)}`,
  );
  figure.lastChild.innerHTML = alone ? "The band is the middle half of the clients." : keys.join(" &ensp;");
}

/** Sum over classes of the absolute difference, by timestep. */
function distances(truth, estimate, steps) {
  return Float64Array.from({ length: steps }, (_, time) => {
    let sum = 0;
    for (let at = time; at < truth.length; at += steps) sum += Math.abs(truth[at] - estimate[at]);
    return sum;
  });
}

function priorsView() {
  const host = document.getElementById("priors");
  const note = document.getElementById("priors-note");
  const [bars, distance] = ["prior-classes", "prior-distance"].map((id) => document.getElementById(id));
  const chart = new LineChart(distance, (timestep) => choose({ timestep }));
  // Watched is what surrounds the plots: they are hidden where there is nothing to show, and must come back.
  view(host.parentElement, ["scene", "method", "seed", "client", "timestep"], async () => {
    const kept = chosenTrack()?.priors;
    const place = counted(kept?.clients ?? []).indexOf(state.client);
    const [truth, estimate] = await Promise.all(
      ["true_prior", "prior"].map(async (name) =>
        place < 0 || !kept.columns[name]
          ? null
          : ofClient(await numbers(kept.columns[name]), kept.columns[name].shape, place),
      ),
    );
    return () => {
      host.hidden = !truth && !estimate;
      note.textContent = estimate ? "" : whyNoEstimate(kept, place);
      if (host.hidden) return;
      const times = timesteps();
      const steps = times.length;
      const time = times.indexOf(state.timestep);
      const now = (values) => values && values.filter((_, at) => at % steps === time);
      drawPriors(bars, {
        truth: now(truth),
        estimate: now(estimate),
        top: 1.06 * rangeOf([truth ?? [], estimate ?? []])[1],
      });
      const values = truth && estimate ? distances(truth, estimate, steps) : new Float64Array(0);
      chart.draw({
        title: "L1 distance",
        height: 240,
        ys: [0, Math.max(0.2, 1.06 * rangeOf([values])[1])],
        chosen: state.timestep,
        series: [{ name: "L1 distance", times, values, colour: "var(--series-1)" }],
        empty: "Nothing to compare.",
      });
    };
  });
}

function whyNoEstimate(kept, place) {
  if (!kept)
    return `To keep this page small, class frequencies are not here for seed ${state.seed}; the trace has them.`;
  if (place < 0)
    return (
      `To keep this page small, class frequencies are here for one client in ${kept.one_in}: ` +
      `${counted(kept.clients).slice(0, 3).join(", ")} and so on. The trace has all.`
    );
  return `${nameOf(state.method)} estimates no class frequencies.`;
}
