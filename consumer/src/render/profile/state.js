"use strict";
const VIEWS = ["flame", "icicle", "reverse", "sandwich", "three", "top", "tree", "chart"];
/** Parts of the state that are a single word or name. */
const WORDS = ["q", "fn", "event", "measure", "palette", "sort", "order", "lines", "theme", "widths", "by", "names"];

/** The initial state of a page. */
const firstState = (view) => ({
  view, turned: false, zoom: [], q: "", ignore: false, filters: [], transforms: [], fn: "", event: "", measure: "", palette: "kind", sort: "", theme: "",
  order: "name", lines: "width", names: "short", widths: "after", by: "inclusive", heat: false, time: null, than: null, at: null, threads: [],
});

/** Names separated by semicolons; a semicolon in a name is escaped by a backslash. */
const joined = (names) => names.map((name) => name.replace(/[\\;]/g, "\\$&")).join(";");
function parted(text) {
  if (!text) return [];
  const names = [""];
  for (let i = 0; i < text.length; i++) {
    if (text[i] === ";") names.push("");
    else names[names.length - 1] += text[i] === "\\" && i + 1 < text.length ? text[++i] : text[i];
  }
  return names;
}

/** The state as the fragment of an address, without values that equal `first`. */
function stateText(state, first) {
  const parts = new URLSearchParams();
  for (const key of ["view", ...WORDS]) if (state[key] !== first[key]) parts.set(key, state[key]);
  if (state.turned) parts.set("turned", "1");
  if (state.heat) parts.set("heat", "1");
  for (const key of ["time", "than", "at"]) if (state[key]) parts.set(key, state[key].join("-"));
  for (const name of state.threads) parts.append("thread", name);
  if (state.ignore) parts.set("i", "1");
  if (state.zoom.length) parts.set("zoom", joined(state.zoom));
  for (const { keep, source, ignore } of state.filters) parts.append((keep ? "in" : "out") + (ignore ? "-i" : ""), source);
  for (const { kind, fn } of state.transforms) parts.append(kind, fn);
  return parts.toString();
}

/** Parses the state in a fragment; missing or invalid values are those of `first`. */
function stateOf(text, first) {
  const parts = new URLSearchParams(text), state = { ...first, zoom: parted(parts.get("zoom") || ""), filters: [], transforms: [] };
  for (const key of WORDS) state[key] = parts.get(key) ?? first[key];
  if (VIEWS.includes(parts.get("view"))) state.view = parts.get("view");
  state.turned = parts.get("turned") === "1";
  state.heat = parts.get("heat") === "1";
  for (const key of ["time", "than", "at"]) state[key] = rangeOf(parts.get(key));
  state.threads = parts.getAll("thread");
  state.ignore = parts.get("i") === "1";
  for (const [key, source] of parts) {
    const which = /^(in|out)(-i)?$/.exec(key);
    if (which && regexOf(source, !!which[2])) state.filters.push({ keep: which[1] === "in", source, ignore: !!which[2] });
    else if (Object.hasOwn(TRANSFORMS, key)) state.transforms.push({ kind: key, fn: source });
  }
  return state;
}

/** An expression, or null if it is invalid. */
function regexOf(source, ignore) {
  try { return new RegExp(source, ignore ? "i" : ""); } catch { return null; }
}

/** The states before and after the current one, as texts. */
class Past {
  constructor() {
    this.before = [];
    this.behind = [];
  }
  add(text) {
    if (this.before[this.before.length - 1] === text) return;
    this.before.push(text);
    if (this.before.length > 200) this.before.shift();
    this.behind = [];
  }
  /** Moves back or forward from `now`; undefined if there is no such state. */
  go(back, now) {
    const [from, to] = back ? [this.before, this.behind] : [this.behind, this.before];
    if (!from.length) return undefined;
    to.push(now);
    return from.pop();
  }
}
