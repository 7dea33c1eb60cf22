// Which scene the plots show.

/** One select for every label that tells scenes apart; a combination that was not run is not offered. */
function sceneChooser() {
  const form = document.getElementById("scene");
  form.addEventListener("submit", (event) => event.preventDefault());
  const keys = index.keys.filter((key) => distinct(index.scenes.map((one) => one.labels[key])).length > 1);
  const selects = keys.map((key) => {
    const label = document.createElement("label");
    const select = document.createElement("select");
    select.dataset.label = key;
    label.append(`${key[0].toUpperCase()}${key.slice(1)} `, select);
    form.append(label);
    return select;
  });
  const fill = () =>
    selects.forEach((select, place) => {
      // Offered are the values that go with what is chosen to the left.
      const fits = index.scenes.filter((one) =>
        keys.slice(0, place).every((key) => one.labels[key] === scene().labels[key]),
      );
      select.innerHTML = distinct(fits.map((one) => one.labels[keys[place]] ?? ""))
        .map((value) => `<option value="${escaped(value)}">${escaped(value || "–")}</option>`)
        .join("");
      select.value = scene().labels[keys[place]] ?? "";
    });
  form.addEventListener("change", (event) => {
    const place = selects.indexOf(event.target);
    const wanted = keys.map((key, i) => (i === place ? event.target.value : (scene().labels[key] ?? "")));
    const fit = (one) => keys.findIndex((key, i) => (one.labels[key] ?? "") !== wanted[i]);
    // The scene that agrees with the most choices from the left, the changed one included.
    const ranked = index.scenes
      .map((one, i) => ({ i, agrees: fit(one) < 0 ? keys.length : fit(one) }))
      .filter(({ i }) => (index.scenes[i].labels[keys[place]] ?? "") === wanted[place]);
    choose({ scene: ranked.reduce((best, one) => (one.agrees > best.agrees ? one : best)).i });
    fill();
  });
  fill();
}
