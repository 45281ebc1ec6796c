// Searches the index that was made with the site. Nothing is sent anywhere.
"use strict";
(() => {
  const root = document.currentScript.dataset.root;
  const form = document.querySelector(".search"), input = document.getElementById("q"), found = document.getElementById("found");
  form.hidden = false;
  // On narrow screens the list of pages is closed at first.
  const menu = document.querySelector(".menu");
  if (matchMedia("(max-width: 800px)").matches) menu.open = false;

  let entries, loading;
  const load = () => loading ??= new Promise((done) => {
    const s = document.createElement("script");
    s.src = root + "search-index.js";
    s.onload = () => {
      entries = window.searchIndex.map((e) => ({ ...e, low: { p: e.p.toLowerCase(), h: e.h.toLowerCase(), t: e.t.toLowerCase() } }));
      done();
    };
    s.onerror = () => { loading = undefined; };
    document.head.append(s);
  });

  // The rate of an entry: every word must be in it, and counts more in a title, and
  // as the beginning of a word.
  const rate = (e, words) => {
    let sum = 0;
    for (const w of words) {
      let best = 0;
      for (const [part, weight] of [["p", 8], ["h", 10], ["t", 1]]) {
        const at = e.low[part].indexOf(w);
        if (at < 0) continue;
        const begins = at === 0 || !/[\p{L}\p{N}]/u.test(e.low[part][at - 1]);
        const short = part === "t" ? 1 : 1 + w.length / e.low[part].length;
        best += weight * (begins ? 2 : 1) * short;
      }
      if (!best) return 0;
      sum += best;
    }
    return sum;
  };

  // text with the words marked, around the first of them.
  const excerpt = (e, words) => {
    const out = document.createElement("span");
    const first = Math.min(...words.map((w) => e.low.t.indexOf(w)).map((n) => n < 0 ? Infinity : n));
    const from = first === Infinity || first < 60 ? 0 : first - 50;
    let text = (from ? "…" : "") + e.t.slice(from, from + 170) + (e.t.length > from + 170 ? "…" : "");
    while (text) {
      const low = text.toLowerCase();
      let at = -1, hit = "";
      for (const w of words) {
        const n = low.indexOf(w);
        if (n >= 0 && (at < 0 || n < at)) { at = n; hit = w; }
      }
      if (at < 0) { out.append(text); break; }
      const mark = document.createElement("mark");
      mark.textContent = text.slice(at, at + hit.length);
      out.append(text.slice(0, at), mark);
      text = text.slice(at + hit.length);
    }
    return out;
  };

  const show = (list, words) => {
    found.replaceChildren(...list.map((e) => {
      const a = document.createElement("a");
      a.href = root + e.u;
      const b = document.createElement("b");
      b.textContent = e.h ? e.p + " › " + e.h : e.p;
      a.append(b, excerpt(e, words));
      return a;
    }));
    if (!list.length) {
      const p = document.createElement("p");
      p.textContent = "Nothing has all these words.";
      found.append(p);
    }
    found.hidden = false;
  };
  const hide = () => { found.hidden = true; };

  const search = async () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return hide();
    await load();
    if (input.value.toLowerCase().split(/\s+/).filter(Boolean).join() !== words.join()) return;
    show(entries.map((e) => [rate(e, words), e]).filter(([r]) => r > 0).sort((a, b) => b[0] - a[0]).slice(0, 12).map(([, e]) => e), words);
  };
  input.addEventListener("focus", load, { once: true });
  input.addEventListener("input", search);
  form.addEventListener("submit", (e) => { e.preventDefault(); found.querySelector("a")?.click(); });
  form.addEventListener("focusout", (e) => { if (!form.contains(e.relatedTarget) && e.relatedTarget) hide(); });
  found.addEventListener("click", (e) => { if (e.target.closest("a")) hide(); });
  document.addEventListener("click", (e) => { if (!form.contains(e.target)) hide(); });
  form.addEventListener("keydown", (e) => {
    const links = [...found.querySelectorAll("a")], at = links.indexOf(document.activeElement);
    if (e.key === "Escape") { hide(); input.focus(); }
    if (found.hidden || !links.length || (e.key !== "ArrowDown" && e.key !== "ArrowUp")) return;
    e.preventDefault();
    const to = at + (e.key === "ArrowDown" ? 1 : -1);
    (to < 0 ? input : links[Math.min(to, links.length - 1)]).focus();
  });
  document.addEventListener("keydown", (e) => {
    if (e.key === "/" && !/^(INPUT|TEXTAREA)$/.test(document.activeElement.tagName)) { e.preventDefault(); input.focus(); }
  });
})();
