// The data of the page, decoded and indexed.

/** Kinds of samples, in the order of their numbers. */
const WHAT = [
  { name: "on CPU", colour: "#2e9e44" },
  { name: "running or ready", colour: "#8fd19e" },
  { name: "waiting", colour: "#6f8fd8" },
  { name: "allocation", colour: "#e69500" },
  { name: "lock", colour: "#d33c3c" },
  { name: "input/output", colour: "#9a4fc4" },
  { name: "other", colour: "#8a8a94" },
];

/** Measures of flame graphs: the kinds of samples that each includes. */
const MEASURES = [
  { key: "wall", name: "wall-clock time", of: [1, 2], unit: "ns" },
  { key: "cpu", name: "CPU time", of: [0], unit: "ns" },
  { key: "off", name: "waiting (off CPU)", of: [2], unit: "ns" },
  { key: "alloc", name: "allocated memory", of: [3], unit: "bytes" },
  { key: "lock", name: "waiting for locks", of: [4], unit: "ns" },
  { key: "io", name: "input and output", of: [5], unit: "ns" },
  { key: "samples", name: "samples", of: [0, 1, 2, 3, 4, 5, 6], unit: "samples" },
];

const INFERRED = 1, UNTIMED = 2, OPEN = 4;

/** Formats a duration for people. */
function duration(ns) {
  if (ns < 1e3) return Math.round(ns) + " ns";
  const [value, unit] = ns < 1e6 ? [ns / 1e3, "µs"] : ns < 1e9 ? [ns / 1e6, "ms"] : [ns / 1e9, "s"];
  return value.toFixed(value < 10 ? 2 : value < 100 ? 1 : 0) + " " + unit;
}
const plural = (count, what) => `${count} ${what}${count === 1 ? "" : "s"}`;
function size(bytes) {
  if (bytes < 1024) return bytes + " B";
  return bytes < 1048576 ? (bytes / 1024).toFixed(1) + " KiB" : (bytes / 1048576).toFixed(1) + " MiB";
}
const amountOf = (measure, value) =>
  measure.unit === "ns" ? duration(value) : measure.unit === "bytes" ? size(value) : String(value);

/** Position of the first element of `list` (in order, from `low` up to `high`) that is not before `wanted`. */
function firstFrom(list, wanted, low, high) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}

function traceModel() {
  const about = JSON.parse(byId("about").textContent);
  byId("about").textContent = "";
  const { spans, scopes, lanes, frames } = about;
  const count = spans.name.length;

  // Spans; children follow their parent.
  const end = new Uint32Array(count), parent = new Int32Array(count);
  const path = [];
  for (let i = 0; i < count; i++) {
    while (path.length > spans.depth[i]) end[path.pop()] = i;
    parent[i] = path.length ? path[path.length - 1] : -1;
    path.push(i);
  }
  while (path.length) end[path.pop()] = count;
  const byKey = new Map(spans.id.map((id, i) => [id, i]));

  // Activations by lane, and by span, in order of time; nested ones are a row lower.
  const order = scopes.span.map((_, i) => i);
  order.sort((a, b) => scopes.lane[a] - scopes.lane[b] || scopes.start[a] - scopes.start[b] || scopes.end[b] - scopes.end[a]);
  const level = new Uint16Array(order.length);
  const laneScopes = lanes.map(() => []), scopesOf = new Map();
  const DEEPEST = 12;
  let around = [], lane = -1;
  for (const i of order) {
    if (scopes.lane[i] !== lane) { lane = scopes.lane[i]; around = []; lanes[lane].levels = 1; }
    while (around.length && scopes.end[around[around.length - 1]] <= scopes.start[i]) around.pop();
    level[i] = Math.min(around.length, DEEPEST - 1);
    lanes[lane].levels = Math.max(lanes[lane].levels, level[i] + 1);
    around.push(i);
    laneScopes[lane].push(i);
    if (scopes.span[i] < 0) continue;
    if (!scopesOf.has(scopes.span[i])) scopesOf.set(scopes.span[i], []);
    scopesOf.get(scopes.span[i]).push(i);
  }
  for (const list of scopesOf.values()) list.sort((a, b) => scopes.start[a] - scopes.start[b]);

  // Samples, thread by thread.
  const total = about.samples;
  const time = new Float64Array(total), lasts = new Float64Array(total), value = new Float64Array(total), times = new Float64Array(total);
  const span = new Int32Array(total), node = new Int32Array(total), what = new Uint8Array(total);
  const laneFirst = new Uint32Array(lanes.length + 1);
  const number = numbers(bytesOf("moments"));
  for (let l = 0, i = 0; l < lanes.length; l++) {
    let at = 0, longest = 0, seen = 0;
    for (let left = number(); left > 0; left--, i++) {
      time[i] = at += number();
      lasts[i] = number();
      span[i] = number() - 1;
      node[i] = number() - 1;
      what[i] = number();
      times[i] = number();
      value[i] = number();
      seen += times[i];
      longest = Math.max(longest, lasts[i]);
    }
    laneFirst[l + 1] = i;
    lanes[l].longest = longest;
    lanes[l].seen = seen;
    lanes[l].levels ||= 0;
  }
  const samples = { time, lasts, value, times, span, node, what };
  const calls = boxes(numbers(bytesOf("calls")), frames.count);
  const callParent = new Int32Array(frames.count);
  for (let i = 0; i < frames.count; i++) {
    path.length = calls.depth[i];
    callParent[i] = path.length ? path[path.length - 1] : -1;
    path.push(i);
  }

  const nameOf = (i) => about.spanNames[spans.name[i]];
  const scopeName = (i) => scopes.span[i] < 0 ? about.spanNames[-1 - scopes.span[i]] : nameOf(scopes.span[i]);

  /** Returns whether a sample belongs to the span `i`, or with `within` to one inside it. All samples do if `i` is -1. */
  function belongs(i, within) {
    if (i < 0) return () => true;
    const last = within ? end[i] : i + 1;
    if (!(spans.flags[i] & INFERRED)) return (s) => span[s] >= i && span[s] < last;
    // An inferred span has the samples of its time on its thread, in its parent or in a linked span.
    let owner = i;
    while (owner >= 0 && spans.flags[owner] & INFERRED) owner = parent[owner];
    const [from, to] = [laneFirst[spans.lane[i]], laneFirst[spans.lane[i] + 1]];
    return (s) => s >= from && s < to && time[s] >= spans.start[i] && time[s] <= spans.end[i] &&
      (span[s] === owner || (span[s] > i && span[s] < end[i]));
  }

  /** Own weights of all calls for the samples of a span that `measure` includes, and their sum. */
  function weigh(i, within, measure) {
    const own = new Float64Array(frames.count), is = belongs(i, within);
    const taken = WHAT.map((_, w) => measure.of.includes(w));
    let whole = 0, number = 0;
    for (let s = 0; s < total; s++) {
      if (!taken[what[s]] || !is(s)) continue;
      const weight = measure.unit === "samples" ? times[s] : value[s];
      whole += weight;
      number += times[s];
      if (node[s] >= 0) own[node[s]] += weight;
    }
    return { own, whole, number };
  }

  /** The calls with a weight, in the form of a flame graph. */
  function callsOf(own) {
    const is = new Uint8Array(frames.count);
    for (let i = frames.count - 1; i >= 0; i--) {
      if (own[i] > 0) is[i] = 1;
      if (is[i] && callParent[i] >= 0) is[callParent[i]] = 1;
    }
    const kept = [];
    for (let i = 0; i < frames.count; i++) if (is[i]) kept.push(i);
    return {
      label: Uint32Array.from(kept, (i) => calls.label[i]),
      depth: Uint32Array.from(kept, (i) => calls.depth[i]),
      own: Float64Array.from(kept, (i) => own[i]),
    };
  }

  /** Names of the innermost frames of a sample's stack. */
  function topFrames(sample, most) {
    const all = [];
    for (let i = node[sample]; i >= 0 && all.length < most; i = callParent[i]) all.push(frames.names[calls.label[i]]);
    return all;
  }

  /** Resources spent in a span, or with `within` also in those inside it, by the keys of MEASURES. */
  function spent(i, within) {
    const sums = {};
    for (const { key } of MEASURES) {
      let sum = 0;
      for (let at = i < 0 ? 0 : i, last = i < 0 ? count : within ? end[i] : i + 1; at < last; at++) {
        // Samples of inferred spans belong to their parents.
        if (!(spans.flags[at] & INFERRED)) sum += spans[key][at];
      }
      sums[key] = sum;
    }
    return sums;
  }

  return {
    about, spans, count, end, parent, byKey, scopes, level, laneScopes, scopesOf, lanes, laneFirst, samples, frames, calls,
    lasts: about.lasts, nameOf, scopeName, weigh, callsOf, topFrames, spent,
  };
}
