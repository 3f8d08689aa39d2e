"use strict";
const embedded = JSON.parse(document.getElementById("figures").textContent);
// A figure without a place on the page is left out: the others and all buttons work without it.
const figures = Object.fromEntries(Object.entries(embedded).filter(([id]) => document.getElementById("figure-" + id)));
const swaps = JSON.parse(document.getElementById("swaps").textContent);
const PRINTED = 680; // pixels of a page of paper between its margins
const NARROW = 600;

function recoloured(value, dark) {
  if (typeof value === "string") return dark && value in swaps ? swaps[value] : value;
  if (Array.isArray(value)) return value.map((each) => recoloured(each, dark));
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, recoloured(each, dark)]));
}
function fitted(layout, width, entries) {
  if (width >= NARROW) return layout;
  const more = Math.max(0, entries - 2) * 17; // the legend is a column there
  return {
    ...layout,
    height: layout.height + more,
    font: {...layout.font, size: 11},
    margin: {...layout.margin, l: 46, r: 12, b: layout.margin.b + more},
  };
}
const drawn = new Set();
let folded = null; // what printing opened, while it prints
function draw(id, dark, width) {
  const element = document.getElementById("figure-" + id);
  const {data, layout} = recoloured(figures[id], dark);
  const entries = data.filter((each) => each.showlegend !== false).length;
  const fit = fitted(layout, width || element.clientWidth, data.length > 1 ? entries : 0);
  Plotly.react(element, data, width ? {...fit, width} : fit, {displaylogo: false, responsive: true, displayModeBar: element.clientWidth < NARROW ? false : "hover"});
  drawn.add(id);
}
const isSeen = (id) => !document.getElementById("figure-" + id).closest("details:not([open])");
function drawSeen(dark, again) {
  document.documentElement.classList.toggle("dark", dark);
  if (again) drawn.clear(); // those in folded parts are drawn again when they are opened
  for (const id of Object.keys(figures)) if (isSeen(id) && !drawn.has(id)) draw(id, dark);
}
const preferred = matchMedia("(prefers-color-scheme: dark)");
let dark = preferred.matches;
drawSeen(dark, true);
preferred.addEventListener("change", () => {
  dark = preferred.matches;
  if (!folded) drawSeen(dark, true); // paper has a width of its own; the screen is drawn again after printing
});
document.getElementById("theme").addEventListener("click", () => drawSeen(dark = !dark, true));
for (const details of document.querySelectorAll("details")) details.addEventListener("toggle", () => details.open && !folded && drawSeen(dark, false));

// A word or a part that is linked to may lie in a part that is folded.
function unfold() {
  let at = location.hash && document.getElementById(location.hash.slice(1));
  for (; at; at = at.parentElement) if (at.nodeName === "DETAILS") at.open = true;
  if (location.hash && document.getElementById(location.hash.slice(1))) document.getElementById(location.hash.slice(1)).scrollIntoView();
}
addEventListener("hashchange", unfold);
unfold();

// On paper nothing is folded and every figure has the width of the page.
addEventListener("beforeprint", () => {
  folded = Array.from(document.querySelectorAll("details:not([open])"));
  for (const each of folded) each.open = true;
  document.documentElement.classList.remove("dark");
  for (const id of Object.keys(figures)) draw(id, false, PRINTED);
});
addEventListener("afterprint", () => {
  for (const each of folded || []) each.open = false;
  folded = null;
  drawSeen(dark, true);
});

function cellValue(row, index) {
  const text = row.cells[index].textContent.trim();
  const number = Number(text.replace(/,| %$/g, ""));
  return text !== "" && !Number.isNaN(number) ? number : text;
}
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = Array.from(table.tHead.rows[0].cells);
  heads.forEach((head, index) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      for (const each of heads) each.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const rows = Array.from(table.tBodies[0].rows).sort((a, b) => {
        const left = cellValue(a, index), right = cellValue(b, index);
        if (typeof left !== typeof right) return typeof left === "number" ? -1 : 1;
        return left === right ? 0 : left > right === up ? 1 : -1;
      });
      table.tBodies[0].append(...rows);
    });
  });
}
