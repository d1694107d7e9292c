"use strict";
/**
 * Calls merged from the leaf, or around a function, instead of from the root. A box represents boxes of `base` and a part of the
 * weight of each. Its children are computed on first access, which never happens for thin ones. The boxes of all children of one
 * box are in one array, sorted by label with counting sort, so that no objects are allocated.
 */
class MergedTree {
  /**
   * `upwards`: callers are above their callees, and weights start at the ends of paths. `members`: the boxes to start from; null
   * means all stacks, from their ends. `byWeight`: children are ordered by weight instead of name.
   */
  constructor(base, labels, upwards, members, byWeight) {
    this.base = base;
    this.ends = upwards;
    this.deepest = base.deepest;
    this.label = [];
    this.parent = [];
    this.depth = [];
    this.total = [];
    this.own = [];
    // For the children of a box, or of the base at index 0: their members, and for each box the range in them.
    this.members = [];
    this.froms = [];
    this.tos = [];
    this.firsts = [];
    // For two profiles, the weights of each.
    this.pair = base.pair;
    if (this.pair) this.was = [], this.is = [], this.wasOwn = [], this.isOwn = [];
    this.counts = new Uint32Array(labels);
    this.weights = byWeight ? new Float64Array(labels) : null;
    // Members to sort next.
    this.above = new Members(0, this.pair);
    this.left = Infinity;
    this.waiting = false;
    this.root = members ? this.place(members, -1) : this.placeEnds();
    this.whole = base.whole;
  }

  first(box) {
    if (box < 0) return this.root;
    if (this.firsts[box] === undefined) {
      if (this.left <= 0) {
        this.waiting = true;
        return -1;
      }
      this.grow(box);
    }
    return this.firsts[box];
  }

  /** Limits the number of boxes to compute from now on (approximately); returns whether something had to wait before. */
  allow(left) {
    const { waiting } = this;
    this.left = left;
    this.waiting = false;
    return waiting;
  }

  /** The children of a box are computed at once. */
  next(box) {
    return this.parent[box + 1] === this.parent[box] ? box + 1 : -1;
  }

  /** Like `first`, but without computing anything: only accessed boxes count. */
  known(box) {
    return box < 0 ? this.root : this.firsts[box] ?? -1;
  }

  grow(box) {
    const { base, pair, above } = this, members = this.members[this.parent[box] + 1], from = this.froms[box], to = this.tos[box], { parent } = base;
    above.size = 0;
    if (this.ends) {
      above.reserve(to - from);
      for (let i = from; i < to; i++) {
        const caller = parent[members.boxes[i]];
        if (caller >= 0) above.add(caller, members.parts[i], pair && members.before[i], pair && members.after[i]);
      }
    } else {
      let size = 0;
      for (let i = from; i < to; i++) for (let child = base.first(members.boxes[i]); child >= 0; child = base.next(child)) size++;
      above.reserve(size);
      for (let i = from; i < to; i++) for (let child = base.first(members.boxes[i]); child >= 0; child = base.next(child)) above.addAll(base, child);
    }
    // Each box has some fixed cost.
    this.left -= above.size + 16;
    this.firsts[box] = this.place(above, box);
  }

  /** Makes boxes from members, in order of names or weights; returns the first. */
  place(all, on) {
    const { counts, weights } = this, { label } = this.base, labels = [];
    for (let i = 0; i < all.size; i++) if (counts[label[all.boxes[i]]]++ === 0) labels.push(label[all.boxes[i]]);
    if (weights) for (let i = 0; i < all.size; i++) weights[label[all.boxes[i]]] += all.parts[i];
    const begins = this.begins(labels), sorted = new Members(all.size, this.pair);
    for (let i = 0; i < all.size; i++) sorted.put(counts[label[all.boxes[i]]]++, all, i);
    return this.make(sorted, labels, begins, on);
  }

  /** The same for all stacks of the base, at their ends. */
  placeEnds() {
    const { base, counts, weights } = this, { count, label, own } = base, labels = [];
    let size = 0;
    for (let i = 0; i < count; i++) {
      if (!(own[i] > 0)) continue;
      size++;
      if (counts[label[i]]++ === 0) labels.push(label[i]);
      if (weights) weights[label[i]] += own[i];
    }
    const begins = this.begins(labels), sorted = new Members(size, this.pair);
    for (let i = 0; i < count; i++) if (own[i] > 0) sorted.putOwn(counts[label[i]]++, base, i);
    return this.make(sorted, labels, begins, -1);
  }

  /** Sorts labels; returns the start of the members of each, from their counts. */
  begins(labels) {
    const { counts, weights } = this, sorted = Uint32Array.from(labels).sort(), begins = new Uint32Array(labels.length);
    if (weights) {
      sorted.sort((a, b) => weights[b] - weights[a] || a - b);
      for (const label of labels) weights[label] = 0;
    }
    for (let i = 0, begin = 0; i < begins.length; i++) {
      const label = sorted[i], size = counts[label];
      labels[i] = label;
      counts[label] = begins[i] = begin;
      begin += size;
    }
    return begins;
  }

  make(sorted, labels, begins, on) {
    const { base, counts, pair } = this, { parent, own } = base;
    let first = -1;
    this.members[on + 1] = sorted;
    for (let group = 0; group < labels.length; group++) {
      counts[labels[group]] = 0;
      const box = this.label.length, from = begins[group], end = group + 1 < labels.length ? begins[group + 1] : sorted.boxes.length;
      // Adjacent members with the same caller are merged.
      const to = sorted.merge(from, end);
      let total = 0, ended = 0;
      for (let i = from; i < to; i++) {
        const of = sorted.boxes[i];
        total += sorted.parts[i];
        if (!this.ends) ended += own[of];
        else if (parent[of] < 0) ended += sorted.parts[i];
      }
      this.label.push(labels[group]);
      this.parent.push(on);
      this.depth.push(on < 0 ? 0 : this.depth[on] + 1);
      this.total.push(total);
      this.own.push(ended);
      this.froms.push(from);
      this.tos.push(to);
      if (pair) this.compare(sorted, from, to);
      this.firsts.push(undefined);
      if (first < 0) first = box;
    }
    return first;
  }

  compare({ boxes, before, after }, from, to) {
    const sums = [0, 0, 0, 0], { base, pair } = this;
    for (let i = from; i < to; i++) {
      const ends = !this.ends || base.parent[boxes[i]] < 0;
      sums[0] += before[i];
      sums[1] += after[i];
      if (!ends) continue;
      sums[2] += this.ends ? before[i] : pair.before.own[boxes[i]];
      sums[3] += this.ends ? after[i] : pair.after.own[boxes[i]];
    }
    [this.was, this.is, this.wasOwn, this.isOwn].forEach((of, i) => of.push(sums[i]));
  }

  /** Like that of a `CallTree`, for the boxes accessed so far. */
  matched(wanted, visit) {
    let weight = 0;
    walk(this, (box, x) => {
      if (!wanted[this.label[box]]) return true;
      weight += this.total[box];
      if (visit) visit(x, this.total[box]);
      return false;
    });
    return weight;
  }

  /** Like that of a `CallTree`, for the boxes accessed so far; there may be more the next time. */
  nextMarked(wanted, from, step) {
    if (this.counted !== wanted || this.counting !== this.label.length) {
      const found = [];
      walk(this, (box) => { if (wanted[this.label[box]]) found.push(box); });
      [this.counted, this.counting, this.found] = [wanted, this.label.length, found];
    }
    const { found } = this, here = found.indexOf(from);
    if (!found.length) return { box: -1, at: 0, of: 0 };
    const at = here < 0 ? (step > 0 ? 0 : found.length - 1) : (here + step + found.length) % found.length;
    return { box: found[at], at: at + 1, of: found.length };
  }
}

/** Boxes of a tree with a part of their weight; for two profiles, the parts in both. */
class Members {
  constructor(most, pair) {
    this.size = 0;
    this.pair = pair;
    this.make(most);
  }

  make(most) {
    this.boxes = new Uint32Array(most);
    this.parts = new Float64Array(most);
    this.before = this.pair ? new Float64Array(most) : null;
    this.after = this.pair ? new Float64Array(most) : null;
  }

  /** Reserves room; the list must be empty. */
  reserve(most) {
    if (most > this.boxes.length) this.make(2 * most);
  }

  add(box, part, before, after) {
    const at = this.size++;
    this.boxes[at] = box;
    this.parts[at] = part;
    if (this.before) this.before[at] = before, this.after[at] = after;
  }

  /** All stacks through a box. */
  addAll({ total, pair }, box) {
    this.add(box, total[box], pair && pair.before.total[box], pair && pair.after.total[box]);
  }

  /** The stacks that end in the box. */
  putOwn(at, { own, pair }, box) {
    this.boxes[at] = box;
    this.parts[at] = own[box];
    if (this.before) this.before[at] = pair.before.own[box], this.after[at] = pair.after.own[box];
  }

  put(at, other, i) {
    this.boxes[at] = other.boxes[i];
    this.parts[at] = other.parts[i];
    if (this.before) this.before[at] = other.before[i], this.after[at] = other.after[i];
  }

  /** Merges adjacent members that are the same box; returns the new end. */
  merge(from, end) {
    let to = from;
    for (let i = from; i < end; i++) {
      if (to > from && this.boxes[to - 1] === this.boxes[i]) {
        this.parts[to - 1] += this.parts[i];
        if (this.before) this.before[to - 1] += this.before[i], this.after[to - 1] += this.after[i];
      } else this.put(to++, this, i);
    }
    return to;
  }
}

/** All stacks, from their leaves. */
function reversed(base, labels, byWeight) {
  const tree = new MergedTree(base, labels, true, null, byWeight);
  tree.all = base.all;
  return tree;
}

/** Callers or callees of the function `label`: all of its stacks, each counted once. */
function around(base, labels, label, upwards, byWeight) {
  const boxes = base.outermost(label), calls = new Members(boxes.length, base.pair);
  boxes.forEach((box) => calls.addAll(base, box));
  const tree = new MergedTree(base, labels, upwards, calls, byWeight);
  // Shares refer to the whole profile, not to the function.
  tree.all = tree.root < 0 ? 0 : tree.total[tree.root];
  tree.bare = true;
  return tree;
}
