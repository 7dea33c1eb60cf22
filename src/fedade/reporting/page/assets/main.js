// The page comes alive: the tables are there already.

// With fewer, a moving mean would hide most of what happened.
const FEW_TIMESTEPS = 30;

function begin() {
  document.getElementById("plots").hidden = false;
  const longest = Math.max(...index.scenes.flatMap((one) => one.tracks.map((track) => counted(track.timesteps).length)));
  state.smoothing = longest < FEW_TIMESTEPS ? 1 : 5;
  settle();
  sceneChooser();
  bindControls();
  fillControls();
  accuracyView();
  calibrationView();
  expectedView();
  classesView();
  clientRanksView();
  driftView();
  heatView();
  clientAccuracyView();
  signalsView();
  priorsView();
  offerSaving(document);
}

if (index.scenes.some((one) => one.tracks.length)) {
  if ("DecompressionStream" in window) begin();
  else
    document
      .getElementById("results")
      .insertAdjacentHTML("beforeend", '<p class="notice">The plots need a browser of 2023 or later.</p>');
}
