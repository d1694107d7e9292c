"use strict";
const byId = (id) => document.getElementById(id);

/** Decodes the base64 text of the element `id`; empties the element. */
function bytesOf(id) {
  const text = byId(id).textContent;
  byId(id).textContent = "";
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

/** Returns a function that decodes the varints in `bytes` one by one: seven bits per byte, lowest first. */
function numbers(bytes) {
  let at = 0;
  return () => {
    let byte = bytes[at++];
    if (byte < 128) return byte;
    let value = byte & 127, scale = 128;
    for (;;) {
      byte = bytes[at++];
      if (!(byte >= 128)) return value + byte * scale;
      value += (byte & 127) * scale;
      scale *= 128;
    }
  };
}

/** Decodes the boxes of a small tree, column by column: levels gone down since the box before, label, own weight. */
function boxes(number, count) {
  const label = new Uint32Array(count), depth = new Uint32Array(count);
  for (let i = 0, level = 0; i < count; i++) {
    depth[i] = level -= number();
    level++;
  }
  for (let i = 0; i < count; i++) label[i] = number();
  const own = new Float64Array(count);
  for (let i = 0; i < count; i++) own[i] = number();
  return { label, depth, own };
}

/** The search field's expression: null if it is empty, false if it is invalid. */
function expression() {
  const text = byId("search").value;
  let regex = null;
  if (text) {
    try { regex = new RegExp(text, byId("case").checked ? "i" : ""); } catch { regex = false; }
  }
  byId("search").classList.toggle("bad", regex === false);
  return regex;
}

/** Light or dark mode: the system's, until the user selects one. `changed` redraws. */
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

/** Places the element `tip` next to the pointer, inside the window. */
function placeTip(tip, event) {
  tip.hidden = false;
  tip.style.left = Math.max(0, Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 4)) + "px";
  const below = event.clientY + 18, above = Math.max(0, event.clientY - tip.offsetHeight - 8);
  tip.style.top = (below + tip.offsetHeight > window.innerHeight ? above : below) + "px";
}
