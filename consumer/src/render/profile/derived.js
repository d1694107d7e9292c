"use strict";
/**
 * Values derived from a page's state. Each is cached until its input changes. `state()` is the current state, `region` has the
 * labels of regions for stacks that exist in only one of two profiles; the rest is the page's data.
 */
function derived({ profile, frames, trees, times, functions, region, handles, state }) {
  const { names } = frames, { difference } = profile;
  const kept = new Map();
  function once(key, value, make) {
    const of = kept.get(key);
    if (of && of.value === value) return of.made;
    const made = make();
    kept.set(key, { value, made });
    return made;
  }
  /** The position of the current event. */
  const event = () => Math.max(0, profile.events.findIndex(({ name }) => name === state().event));
  /** The times of its samples, null if they are not known. */
  const timed = () => times[event()];
  /** Positions of its measures. */
  const measures = () => once("measures", event(), () => profile.measures.flatMap((of, i) => of.event === event() ? [i] : []));
  const measure = () => {
    const all = measures(), asked = all.find((i) => profile.measures[i].name === state().measure) ?? all[0], of = timed();
    // A time range has only the measures that are known for each sample.
    return of && (state().time || state().than || state().threads.length) && !of.knows(profile.measures[asked].at) ? all[0] : asked;
  };
  const unit = () => profile.measures[measure()].unit;
  const wantedBy = (regex) => {
    const found = new Uint8Array(names.length);
    for (let label = 0; label < functions; label++) if (regex.test(names[label])) found[label] = 1;
    return found;
  };
  const filters = new Filters(wantedBy), transforms = new Transforms(trees[0]);
  /** The tree after the filters and then the transforms: filters see functions as recorded. */
  const filtered = (tree) => {
    selected();
    return transforms.of(filters.of(tree, state().filters));
  };
  /** The active transforms of functions; the key changes with them. */
  function selected() {
    const key = JSON.stringify(state().transforms);
    transforms.select(once("transforms", key, () => state().transforms.map(({ kind, fn }) => ({ kind, label: handles.label(fn) }))));
    return key;
  }
  const lanes = () => once("lanes", [event(), ...state().threads].join("\0"), () => timed().of(state().threads));
  const part = () => JSON.stringify([measure(), state().time, state().threads]);
  /** For a time range and the selected threads: a tree, and the weight of a sample. */
  const ofTime = (range) => {
    const { own, samples } = timed().own(trees[measure()].own, profile.measures[measure()].at, range, lanes()), tree = trees[measure()].weighed(own);
    return { tree, each: samples ? tree.whole / samples : 1 };
  };
  /** The tree before filters. */
  function all() {
    if (!timed() || !(state().time || state().threads.length)) return trees[measure()];
    return once("timed", part(), () => ofTime(state().time).tree);
  }
  /** The comparison before filters; null if there is none. */
  function whole() {
    if (difference) return once("whole", 0, () => compare({ ...difference, before: trees[1], after: trees[0] }));
    if (!timed() || !state().than) return null;
    return once("whole", part() + state().than, () => {
      const [before, after] = [state().than, state().time].map(ofTime), both = before.tree.whole > 0 && after.tree.whole > 0;
      const scale = both ? after.tree.whole / before.tree.whole : 1;
      return new Pair({ before: before.tree, after: after.tree, scale, perSample: [before.each, after.each], sigmas: 2 });
    });
  }
  function pair() {
    const all = whole();
    if (!all) return null;
    const key = JSON.stringify([state().filters, state().transforms]);
    const both = lastOf(once("pair", all, () => new Map()), key, () => all.of(filtered(all.before), filtered(all.after)));
    both.own = state().by === "self";
    both.dark = document.documentElement.classList.contains("dark");
    both.colours = CHANGE_COLOURS[palette()] || CHANGE_COLOURS.change;
    return both;
  }
  const palette = () => {
    const changes = Object.hasOwn(CHANGE_PALETTES, state().palette);
    return whole() ? state().palette === "kind" && !difference ? "change" : state().palette : changes ? "kind" : state().palette;
  };
  function base() {
    const of = pair();
    // Every box of either profile has a width.
    if (of) return once("larger", of, () => of.tree("larger"));
    return filtered(all());
  }
  /** Returns whether siblings are ordered by weight instead of name. */
  const byWeight = () => state().order === "width";
  /** The tree of the flame graph, in the selected order. */
  function drawn() {
    const tree = named();
    return byWeight() ? once("ordered", tree, () => OrderedTree.of(tree)) : tree;
  }
  /** For two profiles: one of them, with the additional stacks of the other in a region. */
  function named() {
    const of = pair();
    if (!of || state().widths === "larger") return base();
    return once("drawn" + state().widths, of, () => state().widths === "change" ? of.tree("change") : of.withRegion(state().widths, region[state().widths]));
  }
  /** The value of a key in a map that holds only the last one. */
  function lastOf(map, key, make) {
    if (!map.has(key)) map.clear(), map.set(key, make());
    return map.get(key);
  }
  /** Recorded boxes whose transformed stacks match. */
  const foundBoxes = () => {
    const found = wanted(), key = selected();
    return lastOf(once("boxes", found, () => new Map()), key, () => {
      if (!found || !found.includes(1)) return null;
      const tree = transforms.of(trees[0]), has = new Uint8Array(tree.count), { box } = transforms;
      for (let i = 0; i < tree.count; i++) has[i] = found[tree.label[i]] || (tree.parent[i] >= 0 && has[tree.parent[i]]) ? 1 : 0;
      return box ? Uint8Array.from(box, (i) => i < 0 ? 0 : has[i]) : has;
    });
  };
  /** The lanes, with the boxes at which their transformed stacks end. */
  const stacked = () => {
    const key = selected(), { box } = transforms;
    return box ? lastOf(once("stacked", lanes(), () => new Map()), key, () => lanes().map((lane) => ({ ...lane, stack: Int32Array.from(lane.stack, (i) => box[i]) }))) : lanes();
  };
  /** Returns true if a function calls itself directly. */
  const recurses = (label) => {
    const { count, label: labels, parent } = base();
    for (let i = 0; i < count; i++) if (labels[i] === label && parent[i] >= 0 && labels[parent[i]] === label) return true;
    return false;
  };
  const reverse = () => once("reverse" + byWeight(), base(), () => reversed(base(), names.length, byWeight()));
  const sums = () => once("sums", base(), () => base().byLabel(names.length));
  const heaviest = () => once("heaviest", base(), () => {
    const { self } = sums();
    return self.indexOf(self.reduce((most, weight) => Math.max(most, weight), 0));
  });
  const middle = () => {
    const label = handles.label(state().fn);
    return label >= 0 ? label : heaviest();
  };
  function wanted() {
    const regex = state().q ? regexOf(state().q, state().ignore) : null;
    return once("wanted", state().q + "\0" + state().ignore, () => regex && wantedBy(regex));
  }
  /** 1 for labels in the current stacks. */
  const present = () => once("present", base(), () => {
    const { count, label, total } = base(), has = new Uint8Array(names.length);
    for (let i = 0; i < count; i++) if (total[i] > 0) has[label[i]] = 1;
    return has;
  });
  return { once, event, timed, measures, present, measure, unit, lanes, whole, pair, palette, base, byWeight, drawn, foundBoxes, stacked, recurses, reverse, sums, middle, wanted };
}
