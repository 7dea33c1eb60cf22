// Tables that sort by a press on a heading. Without JavaScript they are ordinary tables.

function sortable(table) {
  const body = table.tBodies[0];
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const descending =
        heading.getAttribute("aria-sort") === "descending" ? false : heading.hasAttribute("aria-sort") || column > 0;
      headings.forEach((other) => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
      body.append(...[...body.rows].sort((a, b) => compared(a.cells[column], b.cells[column], descending)));
    });
  });
}

/** Numbers by value, text by letters; empty cells come last, whichever way. */
function compared(a, b, descending) {
  const [one, other] = [a, b].map((cell) => cell.dataset.value ?? cell.textContent.trim());
  if (one === "" || other === "") return (one === "") - (other === "");
  const way = descending ? -1 : 1;
  const difference = Number(one) - Number(other);
  return way * (Number.isNaN(difference) ? one.localeCompare(other) : difference);
}

document.querySelectorAll("table.sortable").forEach(sortable);
