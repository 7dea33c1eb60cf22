// The page comes alive: the tables are there already.

function begin() {
  document.getElementById("plots").hidden = false;
  settle();
  sceneChooser();
  bindControls();
  fillControls();
  accuracyView();
  heatView();
  clientAccuracyView();
  signalsView();
  priorsView();
}

if (index.scenes.some((one) => one.tracks.length)) {
  if ("DecompressionStream" in window) begin();
  else
    document
      .getElementById("results")
      .insertAdjacentHTML("beforeend", '<p class="notice">The plots need a browser of 2023 or later.</p>');
}
