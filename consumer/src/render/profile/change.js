"use strict";
/**
 * Two profiles of the same boxes: `before` and `after` are trees with recorded weights. As in `difference.rs`, `scale` is the
 * factor of the first, and the standard deviation decides whether a change may be chance.
 */
class Pair {
  constructor({ before, after, scale, perSample, sigmas, whole }) {
    Object.assign(this, { before, after, scale, perSample, sigmas });
    // The weight that counts as 100 %.
    this.whole = whole ?? (before.whole * scale || after.whole);
    this.own = false;
    this.dark = false;
    this.colours = CHANGE_COLOURS.change;
  }

  /** The same for fewer stacks; shares refer to all stacks. */
  of(before, after) {
    return new Pair({ ...this, before, after });
  }

  /** The change between two recorded weights. */
  change(before, after) {
    const scaled = before * this.scale, delta = after - scaled;
    const variance = this.perSample[0] * this.scale * scaled + this.perSample[1] * after;
    return { recorded: before, before: scaled, after, delta, noise: Math.abs(delta) <= this.sigmas * Math.sqrt(variance) };
  }

  all() {
    return this.change(this.before.all, this.after.all);
  }

  /**
   * Own weights for widths: of `before` or `after`, `larger` for the larger of both for each stack, `change` for the difference.
   */
  widths(which) {
    const { before, after, scale } = this;
    if (which === "after") return after.own;
    const of = { before: (was) => was, larger: Math.max, change: (was, is) => Math.abs(is - was) }[which] || Math.max;
    return Float64Array.from(before.own, (own, i) => of(own * scale, after.own[i]));
  }

  /** A tree with such widths and a reference to the pair. */
  tree(which) {
    const tree = this.before.weighed(this.widths(which));
    tree.pair = this;
    tree.whole = this.whole;
    return tree;
  }

  /** Both profiles to one scale, and the difference; boxes have the same numbers in all three. */
  three() {
    const [before, after, change] = ["before", "after", "change"].map((which) => this.tree(which));
    before.all = after.all = Math.max(before.all, after.all);
    return { before, after, change };
  }

  /**
   * The same with a region to the right: boxes without a width, below one box labelled `label`. `of` maps boxes of the tree to
   * boxes of the profiles; -1 is the region.
   */
  withRegion(which, label) {
    const { before, after, scale } = this, [drawn, other, by] = which === "before" ? [before, after, 1] : [after, before, scale];
    const base = this.tree(which), missing = Float64Array.from(other.own, (own, i) => drawn.total[i] > 0 ? 0 : own * by);
    const only = other.weighed(missing);
    if (!(only.all > 0)) return base;
    const all = base.label.length, boxes = [];
    for (let i = 0; i < all; i++) if (only.total[i] > 0) boxes.push(i);
    const columns = { label: new Uint32Array(all + 1 + boxes.length), depth: new Uint32Array(all + 1 + boxes.length), own: new Float64Array(all + 1 + boxes.length) };
    columns.label.set(base.label);
    columns.depth.set(base.depth);
    columns.own.set(base.own);
    columns.label[all] = label;
    const of = Int32Array.from({ length: all + 1 + boxes.length }, (_, i) => i < all ? i : i === all ? -1 : boxes[i - all - 1]);
    boxes.forEach((box, i) => {
      const at = all + 1 + i;
      columns.label[at] = base.label[box];
      columns.depth[at] = base.depth[box] + 1;
      columns.own[at] = missing[box];
    });
    const tree = new CallTree(columns);
    return Object.assign(tree, { pair: this, whole: this.whole, of, region: all });
  }

  /** The largest significant change of a box. */
  get most() {
    const key = this.own ? "mostOwn" : "mostTotal";
    if (this[key] === undefined) {
      const weight = this.own ? "own" : "total", before = this.before[weight], after = this.after[weight];
      let most = 0;
      for (let i = 0; i < before.length; i++) {
        const { delta, noise } = this.change(before[i], after[i]);
        if (!noise) most = Math.max(most, Math.abs(delta));
      }
      this[key] = most;
    }
    return this[key];
  }

  /** Red or orange for growth, blue or purple for decline, paler for smaller changes; grey for chance, with a shade by name. */
  colour({ delta, noise }, name) {
    const ground = this.dark ? 70 : 255;
    if (noise || delta === 0 || !(this.most > 0)) {
      const [a] = thirds(name), grey = this.dark ? 84 + 18 * a : 206 + 19 * a;
      return pixel(grey, grey, grey);
    }
    const full = this.colours[delta > 0 ? 0 : 1], strength = 0.2 + 0.8 * Math.sqrt(Math.min(1, Math.abs(delta) / this.most));
    return pixel(...full.map((part) => ground + (part - ground) * strength));
  }

  /** Total growth and total decline of the stacks. */
  get moved() {
    if (this.sums) return this.sums;
    const { before, after, scale } = this;
    let [more, less] = [0, 0];
    for (let i = 0; i < after.own.length; i++) {
      const delta = after.own[i] - before.own[i] * scale;
      if (delta > 0) more += delta;
      else less -= delta;
    }
    return (this.sums = { more, less });
  }

  /** Entries of the legend: changes and their descriptions. */
  legend() {
    const most = percentOf(this.most, this.whole), chance = [{ delta: 0 }, "no change, or noise"];
    return this.most > 0 ? [[{ delta: this.most }, `up to ${most} more`], [{ delta: -this.most }, `up to ${most} less`], chance] : [chance];
  }

  /** By label: changes of the stacks that end in it, and of those that contain it. */
  byLabel(labels) {
    const before = this.before.byLabel(labels), after = this.after.byLabel(labels);
    return { self: (label) => this.change(before.self[label], after.self[label]), whole: (label) => this.change(before.whole[label], after.whole[label]) };
  }
}

const CHANGE_COLOURS = { change: [[230, 30, 30], [40, 70, 230]], "change-safe": [[230, 97, 1], [94, 60, 153]] };

/** Changes of a box: of all stacks through it and of those that end in it; null if it is not a box of the profiles. */
function changesOf(tree, box) {
  const { pair } = tree;
  if (tree.was) return { total: pair.change(tree.was[box], tree.is[box]), own: pair.change(tree.wasOwn[box], tree.isOwn[box]) };
  const at = tree.of ? tree.of[box] : box;
  if (at < 0) return null;
  return { total: pair.change(pair.before.total[at], pair.after.total[at]), own: pair.change(pair.before.own[at], pair.after.own[at]) };
}

/** Returns whether a box of the region exists in both profiles and is only the parent of missing ones. */
const leadsOn = (tree, box, { total }) => tree.region !== undefined && box > tree.region && total.recorded > 0 && total.after > 0;

/** Colour of a box by its change. */
function colourOfBox(tree, box, name) {
  const changes = changesOf(tree, box);
  if (!changes) return pixel(170, 170, 170);
  const { pair } = tree, change = pair.own ? changes.own : changes.total;
  return pair.colour(leadsOn(tree, box, changes) ? { delta: 0 } : change, name);
}

const signed = (text, value) => (value < 0 ? "−" : "+") + text;
/** `100 → 140 samples, +40; 10.00% → 14.00%, +4.00 points`, and a remark if it may be chance. */
function changeText(pair, unit, change) {
  if (pair.ratio) return pair.text(change);
  const { before, after, delta, noise } = change;
  const share = (value) => 100 * value / pair.whole, points = share(delta).toFixed(2);
  const left = unit === "ns" || unit === "bytes" ? amountIn(unit, before) : two.format(before).replace(/\.00$/, "");
  const right = amountIn(unit, after), by = unit === "ns" || unit === "bytes" ? amountIn(unit, Math.abs(delta)) : two.format(Math.abs(delta)).replace(/\.00$/, "");
  const chance = noise && delta !== 0 ? "; may be noise" : "";
  return `${left} → ${right}, ${signed(by, delta)}; ${percentOf(before, pair.whole)} → ${percentOf(after, pair.whole)}, ${signed(points.replace("-", ""), Math.sign(points))} points${chance}`;
}

/** Like `describeBox`, for two profiles. */
function describeChange(tree, frames, unit, box) {
  const { pair } = tree;
  if (box < 0) return `all (${changeText(pair, unit, pair.all())})`;
  const changes = changesOf(tree, box), name = frames.names[tree.label[box]];
  if (!changes && pair.ratio) return `paths with ${pair.ratio.over} but no ${pair.ratio.of} (${percentOf(tree.total[box], pair.whole)} of the ${pair.ratio.over})`;
  if (!changes) return `paths only in the ${name.includes("before") ? "first" : "second"} profile (${amountIn(unit, Math.round(tree.total[box]))}, ${percentOf(tree.total[box], pair.whole)})`;
  return `Function: ${name} (${changeText(pair, unit, changes.total)})`;
}

/** Like `describeMore`, for two profiles. */
function describeChangeMore(tree, frames, unit, box) {
  const changes = box < 0 ? null : changesOf(tree, box), { pair } = tree, parts = [];
  if (!changes) return "";
  if (changes.own.before > 0 || changes.own.after > 0) parts.push("self " + changeText(pair, unit, changes.own));
  if (!pair.ratio && pair.scale !== 1 && changes.total.before > 0) parts.push(`before as recorded ${amountIn(unit, changes.total.recorded)}, times ${pair.scale.toPrecision(4)}`);
  if (frames.modules[tree.label[box]]) parts.push("in " + frames.modules[tree.label[box]]);
  return parts.join("\n");
}
