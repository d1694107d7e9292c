// Filtering, sorting and grouping of targets.
import { risen } from "./load.js";
import { plain } from "./text.js";

const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });
const before = (a, b) => collator.compare(a, b) || (a < b ? -1 : a > b ? 1 : 0);

/** Live targets first, then by name; numbers in names are compared as numbers. */
export const inOrder = (targets) => [...targets].sort((a, b) =>
  (a.state === "GONE") - (b.state === "GONE") || before(a.name, b.name) || before(a.host, b.host) || a.pid - b.pid || (a.id < b.id ? -1 : 1));

const words = (text) => text.toLowerCase().split(/\s+/).filter(Boolean);

// Built once per answer of the service, not per keystroke.
const haystacks = new WeakMap();
/** Searchable text of a target. */
function haystack(target) {
  const known = haystacks.get(target);
  if (known !== undefined) return known;
  const made = [
    target.name, target.host, target.pid, target.state, target.run ? "recording" : "", risen(target.load) ? "risen" : "", target.id,
    ...Object.entries(target.labels || {}).map(([key, value]) => `${key}=${value} ${key}:${value}`),
  ].join("\n").toLowerCase();
  haystacks.set(target, made);
  return made;
}

/** Returns the targets that match all words of `text`. */
export function matching(targets, text) {
  const all = words(text);
  if (!all.length) return targets;
  return targets.filter((target) => {
    const hay = haystack(target);
    return all.every((word) => hay.includes(word));
  });
}

const MOST_KEYS = 30;

/** Possible groupings: by host, and by label keys, most frequent first. */
export function groupings(targets) {
  const keys = new Map();
  for (const { labels } of targets) for (const key of Object.keys(labels || {})) keys.set(key, (keys.get(key) || 0) + 1);
  const most = [...keys].sort((a, b) => b[1] - a[1] || before(a[0], b[0])).slice(0, MOST_KEYS).map(([key]) => key);
  return [["", "No groups"], ["host", "By host"], ...most.map((key) => [`label:${key}`, `By ${plain(key)}`])];
}

/** Groups sorted targets into `[title, members]`; those without a value come last. */
export function grouped(targets, by) {
  if (!by) return [["", targets]];
  const key = by.startsWith("label:") ? by.slice(6) : null, groups = new Map();
  const valueOf = (target) => key === null ? target.host : Object.hasOwn(target.labels || {}, key) ? target.labels[key] : "";
  for (const target of targets) {
    const value = String(valueOf(target) ?? "");
    if (!groups.has(value)) groups.set(value, []);
    groups.get(value).push(target);
  }
  const none = key === null ? "no host" : `no ${plain(key)}`;
  return [...groups].sort((a, b) => (a[0] === "") - (b[0] === "") || before(a[0], b[0])).map(([value, all]) => [value === "" ? none : plain(value), all]);
}
