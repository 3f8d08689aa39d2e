"use strict";
// What keeps a page fresh and handy. Everything on it can be read and done without.

const root = document.documentElement;
const prefix = root.dataset.prefix; // of a proxy that takes a part of the path away
const said = (text) => { document.getElementById("said").textContent = text; };

// --- theme ---
const themeButton = document.getElementById("theme");
const themes = ["auto", "light", "dark"];
function applyTheme(name) {
  if (name === "auto") delete root.dataset.theme; else root.dataset.theme = name;
  themeButton.textContent = "Theme: " + name;
}
let theme = themes.includes(localStorage.getItem("theme")) ? localStorage.getItem("theme") : "auto";
applyTheme(theme);
const isDark = () => theme === "dark" || (theme === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
themeButton.addEventListener("click", () => {
  theme = themes[(themes.indexOf(theme) + 1) % themes.length];
  localStorage.setItem("theme", theme);
  applyTheme(theme);
  drawAll(true);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawAll(true));

// --- figures: fetched when they come into sight, drawn again when the theme or the run changes ---
let plotly = null;
function loadPlotly() {
  plotly ||= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = document.querySelector('meta[name="plotly"]').content;
    script.addEventListener("load", resolve);
    script.addEventListener("error", () => { plotly = null; reject(new TypeError("no plotly")); });
    document.head.append(script);
  });
  return plotly;
}
async function draw(element) {
  element.dataset.drawn = "yes";
  try {
    await loadPlotly();
    const answer = await fetch(element.dataset.src + (element.dataset.src.includes("?") ? "&" : "?") + "theme=" + (isDark() ? "dark" : "light"), {headers: {Accept: "application/json"}});
    if (!answer.ok) {
      element.dataset.says = "This chart is not there: the dashboard answered " + answer.status + ".";
      return;
    }
    const figure = await answer.json();
    const layout = {...figure.layout, autosize: true};
    const title = plain((layout.title && layout.title.text) || "");
    showTitle(element, title);
    delete layout.title; // it is text of the page, which wraps and can be selected
    layout.margin = {...layout.margin, t: Math.min(40, (layout.margin && layout.margin.t) || 40)};
    if (element.clientWidth < 600) fitNarrow(layout);
    await Plotly.react(element, figure.data, layout, {displaylogo: false, responsive: true, displayModeBar: element.clientWidth < 600 ? false : "hover"});
    if (title) element.setAttribute("aria-label", element.getAttribute("aria-label").split(": ")[0] + ": " + title);
    element.style.minHeight = "";
  } catch (error) {
    if (error instanceof TypeError) { // the next event draws it
      element.dataset.says = "This chart waits: the dashboard does not answer.";
      return;
    }
    throw error;
  }
}
function plain(text) {
  const holder = document.createElement("template");
  holder.innerHTML = text.replace(/<br\s*\/?>/g, " ");
  return holder.content.textContent;
}
function showTitle(element, title) {
  const shown = element.previousElementSibling;
  if (title && shown && shown.classList.contains("figure-title")) shown.textContent = title;
}
function fitNarrow(layout) {
  layout.margin = {...layout.margin, l: 50, r: 10};
  stackPanels(layout);
  layout.font = {...layout.font, size: 11};
  layout.annotations = (layout.annotations || []).filter((each) => each.showarrow);
}
// Panels that stand beside each other stand below each other where there is no room.
function stackPanels(layout) {
  const axes = Object.keys(layout).filter((name) => /^xaxis\d*$/.test(name) && layout[name].domain && layout[name].domain[1] - layout[name].domain[0] < 0.8);
  if (axes.length < 2) return;
  axes.forEach((name, place) => {
    const high = 1 - place / axes.length, low = 1 - (place + 1) / axes.length;
    layout[name] = {...layout[name], domain: [0, 1]};
    const other = "yaxis" + name.slice(5);
    layout[other] = {...layout[other], domain: [low + 0.1, high]};
  });
  layout.height = 240 * axes.length;
}
const inSight = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting && !entry.target.dataset.drawn) draw(entry.target);
}, {rootMargin: "300px"});
function watchFigures() {
  for (const element of document.querySelectorAll(".figure[data-src]:not([data-watched])")) {
    element.dataset.watched = "yes";
    inSight.observe(element);
  }
}
function drawAll(onlyDrawn) {
  for (const element of document.querySelectorAll(".figure[data-src]")) if (!onlyDrawn || element.dataset.drawn) draw(element);
}
// Those further down are drawn when nothing else is to do, so that a printed page or a picture of
// all of it is whole; those in a fold when it is opened.
async function drawTheRest() {
  for (const element of document.querySelectorAll(".figure[data-src]:not([data-drawn])")) {
    if (element.offsetParent && !element.dataset.drawn) await draw(element);
  }
}
addEventListener("load", () => { watchFigures(); setTimeout(drawTheRest, 300); });
addEventListener("hashchange", () => {
  const target = document.getElementById(location.hash.slice(1));
  const fold = target && target.closest("details");
  if (fold) fold.open = true;
});

// --- copying ---
document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-copy]");
  if (!button) return;
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
  } catch {
    getSelection().selectAllChildren(button.previousElementSibling);
    said("Select and copy it yourself");
    return;
  }
  button.textContent = inWords("Copied");
  said("Copied");
  setTimeout(() => { button.textContent = inWords("Copy"); }, 2000);
});

// --- tables ---
function cellValue(row, index) {
  const cell = row.cells[index];
  if (cell.dataset.value !== undefined) return cell.dataset.value === "" ? "" : Number(cell.dataset.value);
  const text = cell.textContent.trim();
  const number = Number(text.replace(/[,%]/g, ""));
  return text !== "" && !Number.isNaN(number) ? number : text;
}
function compare(a, b, up) {
  if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1; // what is not known comes behind, either way
  return a === b ? 0 : a > b === up ? 1 : -1;
}
function makeSortable() {
  for (const table of document.querySelectorAll("table.sortable:not([data-sorts])")) {
    table.dataset.sorts = "yes";
    Array.from(table.tHead.rows[0].cells).forEach((head, index) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent;
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        for (const each of table.tHead.rows[0].cells) each.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const rows = Array.from(table.tBodies[0].rows).sort((a, b) => compare(cellValue(a, index), cellValue(b, index), up));
        table.tBodies[0].append(...rows);
      });
    });
  }
}
makeSortable();

// --- live parts: the page is fetched again and what differs is changed in place, so that the
// focus, the selection and what was typed stay ---
function alike(a, b) {
  return a.nodeType === b.nodeType && a.nodeName === b.nodeName && (a.nodeType !== 1 || a.id === b.id);
}
function patch(old, fresh) {
  if (old.nodeType === 3) { if (old.data !== fresh.data) old.data = fresh.data; return; }
  if (old.nodeType !== 1) return;
  if (old.classList.contains("figure-title")) return; // the drawing says it better
  if (old.classList.contains("figure")) {
    if (old.dataset.src !== fresh.dataset.src) { old.replaceWith(fresh); watchFigures(); }
    return;
  }
  for (const {name, value} of Array.from(fresh.attributes)) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const {name} of Array.from(old.attributes)) if (!fresh.hasAttribute(name) && !["data-sorts", "data-watched", "open", "aria-sort"].includes(name)) old.removeAttribute(name);
  if (old.nodeName === "THEAD" || old.nodeName === "INPUT") return;
  if (old.nodeName === "TBODY" && old.closest("table").querySelector("[aria-sort]")) return;
  const before = Array.from(old.childNodes), after = Array.from(fresh.childNodes);
  after.forEach((node, index) => {
    if (index >= before.length) old.append(node);
    else if (alike(before[index], node)) patch(before[index], node);
    else before[index].replaceWith(node);
  });
  for (const node of before.slice(after.length)) node.remove();
}
let refreshing = false, again = false;
async function refresh() {
  if (refreshing) { again = true; return; }
  refreshing = true;
  try {
    const answer = await fetch(location.href, {headers: {Accept: "text/html"}});
    if (answer.ok) {
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      inChinese(fresh);
      if (document.title !== fresh.title && document.body.dataset.run) { location.reload(); return; }
      for (const part of document.querySelectorAll("[data-part]")) {
        const other = fresh.getElementById(part.id);
        if (other) patch(part, other);
      }
      makeSortable();
      watchFigures();
      for (const each of document.querySelectorAll(".figure[data-drawn][data-src$='/figures/live']")) draw(each);
    }
  } catch (error) {
    if (!(error instanceof TypeError)) throw error; // the server does not answer; the stream says so
  } finally {
    setTimeout(() => { refreshing = false; if (again) { again = false; refresh(); } }, 1000);
  }
}
if (document.body.dataset.live) {
  const state = document.getElementById("stream");
  const run = document.body.dataset.run;
  const events = new EventSource(prefix + "/api/v1/events" + (run ? "?run=" + encodeURIComponent(run) : ""));
  events.addEventListener("open", () => { state.textContent = "updates by itself"; refresh(); }); // changes until now were not sent
  events.addEventListener("error", () => { state.textContent = "no connection: trying again"; });
  const kinds = document.body.dataset.live.split(" ");
  events.addEventListener("changed", (event) => { if (kinds.includes(JSON.parse(event.data).kind)) refresh(); });
  addEventListener("pagehide", () => events.close());
}
setInterval(() => {
  for (const each of document.querySelectorAll("[data-countdown]")) {
    const left = Number(each.textContent);
    if (left > 0) each.textContent = String(left - 1);
  }
}, 1000);

for (const select of document.querySelectorAll("select[data-submits]")) {
  select.addEventListener("change", () => select.form.submit());
}

// --- a start: choices that exclude each other are said before anything is sent ---
function checkChoices(form) {
  for (const input of form.querySelectorAll("[data-not-with]")) {
    const [name, value] = input.dataset.notWith.split("=");
    const other = form.elements[name];
    const clash = input.checked && other && other.value === value;
    input.setCustomValidity(clash ? "Not together: " + input.parentElement.textContent.trim() : "");
  }
}
document.addEventListener("change", (event) => {
  const form = event.target.closest("form.start");
  if (form) checkChoices(form);
});

// --- predictions: answered while a knob is turned ---
const form = document.getElementById("predict-form");
if (form) {
  let timer = 0, asked = 0;
  const ask = async () => {
    const number = ++asked;
    const query = new URLSearchParams(new FormData(form));
    const answer = await fetch(prefix + "/predict?" + query, {headers: {Accept: "text/html"}});
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (number !== asked) return;
    inChinese(fresh);
    const other = fresh.getElementById("part-prediction");
    if (answer.ok && other) {
      patch(document.getElementById("part-prediction"), other);
      makeSortable();
      history.replaceState(null, "", "/predict?" + query);
    } else {
      said(fresh.querySelector(".alert") ? fresh.querySelector(".alert").textContent : "That cannot be predicted");
    }
  };
  const soon = () => { clearTimeout(timer); timer = setTimeout(ask, 150); };
  form.addEventListener("input", (event) => {
    const slider = event.target;
    if (slider.dataset.for) document.getElementById(slider.dataset.for).value = slider.value;
    else {
      const other = form.querySelector(`[data-for="${slider.id}"]`);
      if (other) other.value = slider.value;
    }
    soon();
  });
  form.addEventListener("submit", (event) => { event.preventDefault(); ask(); });
}
