// A run that still goes on: the page asks its server whether anything is new, and shows it without losing the choice.

const SECONDS_BETWEEN_QUESTIONS = 2;
const sign = document.createElement("p");
sign.id = "live";
sign.className = "notice";
sign.setAttribute("role", "status");
document.getElementById("results").before(sign);
let updated = new Date();

// Single clients are left to the report page: they would have to be sent again whenever a row arrives.
for (const id of ["heat-title", "client-title"]) document.getElementById(id).closest("section").hidden = true;

/** Which heading each table is sorted by. */
const sortedHeadings = () =>
  [...document.querySelectorAll("table.sortable")].map((table) => {
    const place = [...table.tHead.rows[0].cells].findIndex((one) => one.hasAttribute("aria-sort"));
    return [place, table.tHead.rows[0].cells[place]?.getAttribute("aria-sort")];
  });

function sortAgain(sorted) {
  [...document.querySelectorAll("table.sortable")].forEach((table, i) => {
    sortable(table);
    const [place, way] = sorted[i] ?? [-1];
    const heading = table.tHead.rows[0].cells[place];
    while (heading && heading.getAttribute("aria-sort") !== way) heading.firstChild.click();
  });
}

/** Put the server's present page in place of what is shown. */
function show(fresh) {
  const [labels, sorted] = [JSON.stringify(index.scenes[state.scene]?.labels), sortedHeadings()];
  for (const part of ["header", "#results", "#scene"])
    document.querySelector(part).replaceWith(fresh.querySelector(part));
  document.querySelectorAll("#plots [data-scene]").forEach((one) => one.remove());
  document.getElementById("scene").after(...fresh.querySelectorAll("#plots [data-scene]"));
  sortAgain(sorted);
  Object.assign(index, JSON.parse(fresh.getElementById("index").textContent));
  blobs.splice(0, blobs.length, ...fresh.getElementById("blobs").textContent.trim().split("\n"));
  unpacked.clear();
  state.scene = Math.max(
    0,
    index.scenes.findIndex((one) => JSON.stringify(one.labels) === labels),
  );
  if (!index.scenes.length) return;
  if (document.getElementById("plots").hidden) begin();
  else {
    settle();
    sceneChooser();
    fillControls();
    redraw(() => true);
  }
}

async function follow() {
  const answer = await asked("state");
  const page = answer && JSON.parse(answer).version !== index.version ? await asked(".") : null;
  if (page) {
    show(new DOMParser().parseFromString(page, "text/html"));
    updated = new Date();
  }
  const news = answer ? "This page follows the run" : "The server does not answer";
  sign.textContent = `${index.over ? "The run is over" : news}; updated ${updated.toLocaleTimeString("en-GB")}.`;
  if (!index.over) setTimeout(follow, 1000 * SECONDS_BETWEEN_QUESTIONS);
}

/** What the server says; nothing where it does not answer. */
const asked = (path) =>
  fetch(path)
    .then((response) => (response.ok ? response.text() : null))
    .catch(() => null);

follow();
