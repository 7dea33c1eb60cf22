// What is chosen, and the plots that follow it. A plot is drawn when it is near the window, not before.

const state = {
  scene: 0,
  score: "accuracy_post",
  curveSeed: "all",
  smoothing: 1,
  bands: true,
  hidden: new Set(),
  focus: null,
  method: null,
  seed: null,
  client: null,
  timestep: null,
  column: "accuracy_post",
  scale: "fit",
  order: "number",
};
const views = [];

/** Register a plot: `collect` awaits its numbers and returns the function that paints them. */
function view(element, keys, collect) {
  const one = { element, keys, collect, stale: true, near: false, ticket: 0 };
  views.push(one);
  new IntersectionObserver(
    ([entry]) => {
      one.near = entry.isIntersecting;
      refresh(one);
    },
    { rootMargin: "300px" },
  ).observe(element);
}

async function refresh(one) {
  if (!one.stale || !one.near) return;
  one.stale = false;
  const ticket = ++one.ticket;
  const paint = await one.collect();
  // The choice may have changed while numbers were unpacked; then a later call paints.
  if (ticket === one.ticket) paint();
}

/** Change the choice and redraw what depends on it. */
function choose(changes) {
  const before = { ...state };
  Object.assign(state, changes);
  settle();
  fillControls();
  const changed = Object.keys(state).filter((key) => state[key] !== before[key]);
  redraw((one) => one.keys.some((key) => changed.includes(key)));
}

function redraw(wanted) {
  for (const one of views.filter(wanted)) {
    one.stale = true;
    refresh(one);
  }
}

let drawnWidth = document.body.clientWidth;
new ResizeObserver(() => {
  if (document.body.clientWidth === drawnWidth) return;
  drawnWidth = document.body.clientWidth;
  redraw(() => true);
}).observe(document.body);
