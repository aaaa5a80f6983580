"use strict";
/* Sorting and filtering of tables. Nothing is loaded, no text becomes markup. */
function numberOf(cell) {
  const text = cell.textContent.replace(/\u2212/g, "-").replace(/[\u00a0\u202f]/g, "");
  const found = text.match(/^\s*[<>]?\s*([+-]?\d+(\.\d+)?(e-?\d+)?)/i);
  return found ? parseFloat(found[1]) : null;
}
function compare(a, b, column) {
  const x = numberOf(a.cells[column]), y = numberOf(b.cells[column]);
  if (x !== null && y !== null && column > 0) return x - y;
  if ((x === null) !== (y === null) && column > 0) return x === null ? 1 : -1;
  return a.cells[column].textContent.trim().localeCompare(
    b.cells[column].textContent.trim(), "en", {numeric: true});
}
function sortBy(table, header, column) {
  const down = header.getAttribute("aria-sort") === "ascending";
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", down ? "descending" : "ascending");
  const body = table.tBodies[0];
  const rows = Array.from(body.rows).sort((a, b) => (down ? -1 : 1) * compare(a, b, column));
  body.append(...rows);
}
function addFilter(before, items, label) {
  const line = document.createElement("label"), input = document.createElement("input");
  line.className = "filter";
  input.type = "search";
  line.append(label, input);
  input.addEventListener("input", () => {
    const wanted = input.value.toLowerCase();
    for (const item of items) item.hidden = !item.textContent.toLowerCase().includes(wanted);
  });
  before.before(line);
}
document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll("table.sortable")) {
    const rows = Array.from(table.tBodies[0].rows);
    if (rows.length < 2) continue;
    Array.from(table.tHead.rows[0].cells).forEach((header, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...header.childNodes);
      header.append(button);
      button.addEventListener("click", () => sortBy(table, header, column));
    });
    if (rows.length > 8) addFilter(table.parentElement, rows, "Rows with");
  }
  for (const list of document.querySelectorAll(".drill")) {
    if (list.children.length > 3) addFilter(list, Array.from(list.children), "Problems with");
  }
});
