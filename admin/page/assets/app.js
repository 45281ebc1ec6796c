// Keeps the status page up to date: fetches its changing part from the agent and
// changes what differs, so that focus, selection and scroll positions stay.
"use strict";

const $ = (id) => document.getElementById(id);
const live = $("live"), pulse = $("pulse"), freshness = $("freshness"), pause = $("pause");

const every = 2000; // ms between two fetches, more when one takes long
let paused = false, timer = 0, running = null, failures = 0;

// keyOf tells rows apart that come, go and move.
const keyOf = (node) => (node.nodeType === 1 && (node.dataset.key || node.id)) || "";

// morph makes a like b, which is of the same kind.
function morph(a, b) {
  if (a.nodeType !== 1) {
    if (a.data !== b.data) a.data = b.data;
    return;
  }
  for (const { name } of [...a.attributes]) if (!b.hasAttribute(name)) a.removeAttribute(name);
  for (const { name, value } of b.attributes) if (a.getAttribute(name) !== value) a.setAttribute(name, value);
  if (a === document.activeElement && a.tagName === "INPUT") return; // somebody types
  if (a.tagName === "INPUT") { a.checked = b.hasAttribute("checked"); a.value = b.getAttribute("value") || ""; }
  const keyed = new Map();
  for (const c of a.childNodes) { const k = keyOf(c); if (k) keyed.set(k, c); }
  let at = a.firstChild;
  for (const next of [...b.childNodes]) {
    const k = keyOf(next);
    let found = k ? keyed.get(k) : at;
    if (found && (found.nodeName !== next.nodeName || keyOf(found) !== k)) found = null;
    if (!found) { a.insertBefore(next, at); continue; }
    if (found !== at) a.insertBefore(found, at); else at = at.nextSibling;
    keyed.delete(k);
    morph(found, next);
  }
  while (at) { const gone = at; at = at.nextSibling; gone.remove(); }
}

function parse(text) {
  return new DOMParser().parseFromString(text, "text/html").body;
}

// say shows how fresh the page is; a reader hears of it only when that changes.
function say(state, text) {
  pulse.className = "pulse " + state;
  if (freshness.textContent !== text) freshness.textContent = text;
}

async function get(url) {
  if (running) running.abort();
  const own = running = new AbortController();
  const limit = setTimeout(() => own.abort(), 15000);
  try {
    const r = await fetch(url, { signal: own.signal, cache: "no-store" });
    if (!r.ok) throw new Error(`answered ${r.status}`);
    return await r.text();
  } finally {
    clearTimeout(limit);
    if (running === own) running = null;
  }
}

async function refresh() {
  clearTimeout(timer);
  const began = performance.now();
  const u = new URL(location.href);
  u.hash = "";
  u.searchParams.set("live", "1");
  try {
    const next = document.createElement("div");
    next.id = "live";
    next.append(...parse(await get(u)).childNodes);
    for (const i of next.querySelectorAll("img[data-refresh]")) i.setAttribute("src", picture(i.getAttribute("src")));
    morph(live, next);
    failures = 0;
    say(paused ? "paused" : "", paused ? "paused at " + $("clock").textContent : "live");
  } catch (e) {
    if (e.name === "AbortError" && running) return; // a newer one is under way
    failures++;
    const clock = $("clock");
    say("lost", "no answer since " + (clock ? clock.textContent : "the start"));
  }
  const took = performance.now() - began;
  if (!paused && !document.hidden) timer = setTimeout(refresh, Math.max(every, 20 * took, Math.min(failures, 8) * every));
}

// picture is the address of a picture, a new one every ten seconds.
function picture(src) {
  return src + "&t=" + Math.floor(Date.now() / 10000);
}

function go(url) {
  history.pushState(null, "", url);
  refresh();
}

// show opens a decision above the page.
async function show(url) {
  const dialog = $("dialog"), into = dialog.querySelector("div");
  into.textContent = "…";
  dialog.showModal();
  try {
    const r = await fetch(url + "&live=1", { cache: "no-store" });
    into.replaceChildren(...parse(await r.text()).childNodes);
  } catch {
    into.textContent = "The agent does not answer.";
  }
}

document.addEventListener("click", (e) => {
  const a = e.target.closest("a");
  if (a && !e.ctrlKey && !e.metaKey && !e.shiftKey && e.button === 0) {
    if ("live" in a.dataset) { e.preventDefault(); go(a.href); }
    if ("dialog" in a.dataset) { e.preventDefault(); show(a.href); }
  }
  if (e.target === $("dialog")) $("dialog").close(); // beside it
});

// The form of the pools is a part of what changes: its events are caught above it.
let typing = 0;
function find() {
  const u = new URL(location.href);
  for (const name of ["q", "state", "page"]) u.searchParams.delete(name);
  for (const [name, value] of new FormData($("find"))) if (value && (name === "q" || name === "state")) u.searchParams.set(name, value);
  history.replaceState(null, "", u);
  refresh();
}
live.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(find, 200); });
live.addEventListener("submit", (e) => { e.preventDefault(); find(); });

pause.addEventListener("click", () => {
  paused = !paused;
  pause.textContent = paused ? "Resume" : "Pause";
  clearTimeout(timer);
  if (paused) say("paused", "paused at " + $("clock").textContent); else refresh();
});
document.addEventListener("visibilitychange", () => { if (!document.hidden && !paused) refresh(); });
addEventListener("popstate", refresh);

for (const d of document.querySelectorAll("details[data-load]")) {
  d.addEventListener("toggle", async () => {
    if (!d.open) return;
    const pre = d.querySelector("pre");
    try {
      const r = await fetch(d.dataset.load, { cache: "no-store" });
      pre.textContent = await r.text();
    } catch {
      pre.textContent = "The agent does not answer.";
    }
  });
}

const form = $("explain-form");
form.hidden = false;
form.addEventListener("submit", async (e) => {
  e.preventDefault();
  const out = $("explanation"), data = new FormData(form);
  const headers = { "Content-Type": "application/json" };
  try {
    for (const line of data.get("headers").split("\n")) {
      const at = line.indexOf(":");
      if (at > 0) headers["Explain-" + line.slice(0, at).trim()] = line.slice(at + 1).trim();
    }
    const r = await fetch("/debug/explain?html=1&path=" + encodeURIComponent(data.get("path")) + "&pool=" + encodeURIComponent(data.get("pool") || ""), { method: "POST", headers, body: data.get("body") });
    const text = await r.text();
    if (r.headers.get("Content-Type").startsWith("text/html")) out.replaceChildren(...parse(text).childNodes);
    else out.replaceChildren(Object.assign(document.createElement("p"), { className: "refused", textContent: text }));
  } catch (err) {
    out.textContent = "It could not be explained: " + err.message;
  }
});

document.documentElement.className = "js";
pulse.hidden = pause.hidden = false;
refresh();
