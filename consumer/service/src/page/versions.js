// All targets with a label: a merged flame graph, and the comparison of two versions.
import { byId, element, hide, tell } from "./dom.js";
import { count, moment, plain } from "./text.js";

const MOST = 100;

/** Returns the labels of continuously profiled targets: for each key its values, with the number of targets and their latest data. */
export function versions(targets) {
  const keys = new Map();
  for (const { labels, continuous } of targets) for (const [key, value] of Object.entries(continuous ? labels || {} : {})) {
    if (!keys.has(key)) keys.set(key, new Map());
    const values = keys.get(key), before = values.get(value) || { of: 0, to: 0 };
    values.set(value, { of: before.of + 1, to: Math.max(before.to, continuous.to) });
  }
  return keys;
}

export const groupRef = (key, value, { from, to }) => `windows:${key}=${value}:${from}:${to}`;

/** `view(label, range)` and `compare(before, after)` show the result. */
export function versionsForm({ view, compare }) {
  const key = byId("versions-key"), sides = { a: byId("versions-a"), b: byId("versions-b") }, length = byId("versions-length");
  let known = new Map(), given = null;
  const collator = new Intl.Collator("en", { numeric: true });
  function options(list, all) {
    const text = JSON.stringify(all), before = list.value;
    if (list.dataset.of === text) return;
    list.dataset.of = text;
    list.replaceChildren(...all.map(([value, words]) => element("option", { value, textContent: words })));
    if (all.some(([value]) => value === before)) list.value = before;
  }
  /** The latest interval with data of a value; an older version may have ended before. */
  const range = (which) => {
    const to = known.get(key.value)?.get(sides[which].value)?.to || 0;
    return { from: to - Number(length.value) * 1000, to };
  };
  const named = (which) => plain(`${key.value}=${sides[which].value}`);
  function lay() {
    const all = [...known.get(key.value) || []].sort((a, b) => collator.compare(a[0], b[0])).slice(0, MOST);
    const words = all.map(([value, { of }]) => [value, `${plain(value)} (${count(of, "target")})`]);
    const fresh = key.dataset.laid !== key.value;
    key.dataset.laid = key.value;
    for (const list of Object.values(sides)) options(list, words);
    if (fresh && all.length > 1) [sides.a.value, sides.b.value] = all.slice(-2).map(([value]) => value);
    tellWords();
  }
  function tellWords() {
    const [a, b] = ["a", "b"].map(range), same = sides.a.value === sides.b.value;
    byId("versions-compare").disabled = same;
    tell(byId("versions-words"), same ? "Choose two values to compare them."
      : `${named("a")} ${moment(a.from)} – ${moment(a.to)}, ${named("b")} ${moment(b.from)} – ${moment(b.to)}; by share of samples.`);
  }
  key.addEventListener("change", lay);
  for (const each of [...Object.values(sides), length]) each.addEventListener("change", tellWords);
  byId("versions-compare").addEventListener("click", () => compare(groupRef(key.value, sides.a.value, range("a")), groupRef(key.value, sides.b.value, range("b"))));
  for (const which of ["a", "b"]) byId(`versions-view-${which}`).addEventListener("click", () => view(`${key.value}=${sides[which].value}`, range(which)));

  return {
    show(targets, wanted) {
      if (targets !== given) [given, known] = [targets, versions(targets)];
      const keys = [...known].sort((a, b) => (b[1].size > 1) - (a[1].size > 1) || collator.compare(a[0], b[0])).slice(0, MOST);
      hide(byId("versions"), !wanted || !keys.length);
      if (!wanted || !keys.length) return;
      options(key, keys.map(([name]) => [name, plain(name)]));
      lay();
    },
  };
}
