// Tables get a frame to scroll in; those of registries also a box that shows only the rows with what is typed.
document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll("article table")) {
    const frame = document.createElement("div");
    frame.className = "table-frame";
    frame.tabIndex = 0;
    table.replaceWith(frame);
    frame.append(table);
    const rows = [...table.querySelectorAll("tbody tr")];
    if (!table.classList.contains("filtered") || rows.length < 12) continue;
    const box = document.createElement("input");
    Object.assign(box, { type: "search", className: "table-filter", placeholder: `Filter ${rows.length} rows` });
    box.setAttribute("aria-label", box.placeholder);
    box.addEventListener("input", () => {
      const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
      for (const row of rows) row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
    });
    frame.before(box);
  }
});
