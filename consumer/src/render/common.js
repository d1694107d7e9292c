"use strict";
const byId = (id) => document.getElementById(id);

/** Reads the numbers that the element `id` has, in base64 and seven bits at a time; the element is emptied. */
function numbers(id) {
  const text = atob(byId(id).textContent);
  byId(id).textContent = "";
  let at = 0;
  return () => {
    let value = 0, scale = 1;
    for (;;) {
      const byte = text.charCodeAt(at++);
      if (byte < 128) return value + byte * scale;
      value += (byte & 127) * scale;
      scale *= 128;
    }
  };
}

/** The boxes of a tree as they travel: levels gone down since the box before, label, own weight. */
function boxes(id, count) {
  const number = numbers(id);
  const label = new Uint32Array(count), depth = new Uint32Array(count), own = new Float64Array(count);
  for (let i = 0, level = 0; i < count; i++) {
    depth[i] = level -= number();
    label[i] = number();
    own[i] = number();
    level++;
  }
  return { label, depth, own };
}

/** The search field's expression: null if there is none, false if it is none. */
function expression() {
  const text = byId("search").value;
  let regex = null;
  if (text) {
    try { regex = new RegExp(text, byId("case").checked ? "i" : ""); } catch { regex = false; }
  }
  byId("search").classList.toggle("bad", regex === false);
  return regex;
}

/** Light or dark: as the system has it, until someone says otherwise. `changed` draws anew. */
function themes(changed) {
  const root = document.documentElement.classList;
  const theme = (dark) => { root.toggle("dark", dark); changed(); };
  const prefersDark = window.matchMedia("(prefers-color-scheme: dark)");
  prefersDark.addEventListener("change", () => theme(prefersDark.matches));
  const toggle = () => theme(!root.contains("dark"));
  byId("theme").addEventListener("click", toggle);
  theme(prefersDark.matches);
  return toggle;
}
