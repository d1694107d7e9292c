"use strict";
/**
 * A tree of calls. Boxes are numbers, each before those above it; -1 is what all of them stand on.
 * Other trees that a graph can draw have `all` (what its boxes share), `whole` (what
 * percentages are of), `deepest`, `label`, `depth`, `parent`, `own`, `total`, `first()`, `next()` and
 * `known()`, too.
 */
class CallTree {
  /** `boxes`: label, depth and own weight of each; `whole`: weight of all stacks, those without a frame, too. */
  constructor({ label, depth, own }, whole = 0) {
    const count = label.length;
    this.count = count;
    this.label = label;
    this.depth = depth;
    this.parent = new Int32Array(count);
    this.end = new Uint32Array(count);
    this.deepest = 0;
    const path = [];
    for (let i = 0; i < count; i++) {
      const level = depth[i];
      this.parent[i] = level ? path[level - 1] : -1;
      path[level] = i;
      if (level > this.deepest) this.deepest = level;
    }
    for (let i = count - 1; i >= 0; i--) {
      if (!this.end[i]) this.end[i] = i + 1;
      const p = this.parent[i];
      if (p >= 0 && this.end[p] < this.end[i]) this.end[p] = this.end[i];
    }
    this.weigh(own, whole);
  }

  /** The same boxes with other weights. Those without any are passed over. */
  weighed(own, whole = 0) {
    const tree = Object.create(CallTree.prototype);
    Object.assign(tree, this);
    tree.weigh(own, whole);
    return tree;
  }

  weigh(own, whole) {
    const { count, parent } = this, total = Float64Array.from(own);
    let all = 0;
    for (let i = count - 1; i >= 0; i--) {
      const p = parent[i];
      if (p < 0) all += total[i];
      else total[p] += total[i];
    }
    this.own = own;
    this.total = total;
    this.boxed = all;
    // Stacks without a frame count in the whole but have no box.
    this.all = this.whole = Math.max(all, whole);
  }

  /** The first box on `box`, -1 if there is none. */
  first(box) {
    const child = box + 1;
    return child < (box < 0 ? this.count : this.end[box]) ? this.weighty(child, box) : -1;
  }

  /** The box behind `box` on the same one, -1 if there is none. */
  next(box) {
    return this.weighty(this.end[box], this.parent[box]);
  }

  weighty(box, parent) {
    const last = parent < 0 ? this.count : this.end[parent];
    while (box < last && this.total[box] <= 0) box = this.end[box];
    return box < last ? box : -1;
  }

  /** As `first`, of what has been looked at before: here, of everything. */
  known(box) {
    return this.first(box);
  }

  /** Weight of the stacks that have one of the labels in `wanted`, each counted once; `visit(start, weight)` for each tower of them. */
  matched(wanted, visit) {
    const { count, label, depth, end, total } = this, at = [0];
    let weight = 0;
    for (let i = 0; i < count;) {
      const level = depth[i], x = at[level], w = total[i];
      at[level] = x + w;
      if (w > 0 && wanted[label[i]]) {
        weight += w;
        if (visit) visit(x, w);
      } else if (w > 0) {
        at[level + 1] = x;
        i++;
        continue;
      }
      i = end[i];
    }
    return weight;
  }

  /** Own weights of the stacks that have one of the labels in `wanted`, or of those that have none. */
  kept(wanted, having) {
    const { count, label, parent, own } = this;
    const has = new Uint8Array(count), kept = new Float64Array(count);
    for (let i = 0; i < count; i++) {
      const p = parent[i];
      if (wanted[label[i]] || (p >= 0 && has[p])) has[i] = 1;
      if ((has[i] === 1) === having) kept[i] = own[i];
    }
    return kept;
  }

  /** 1 for each box that stands on none of its own label: a function that calls itself counts once. */
  outermost(labels) {
    if (this.outer) return this.outer;
    const { count, label, end } = this, outer = new Uint8Array(count), until = new Uint32Array(labels);
    for (let i = 0; i < count; i++) {
      const l = label[i];
      if (until[l] > i) continue;
      until[l] = end[i];
      outer[i] = 1;
    }
    return (this.outer = outer);
  }

  /** By label: weight of the stacks that end in it, and of those that have it. */
  byLabel(labels) {
    const outer = this.outermost(labels), { count, label, own, total } = this;
    const self = new Float64Array(labels), whole = new Float64Array(labels);
    for (let i = 0; i < count; i++) {
      self[label[i]] += own[i];
      if (outer[i]) whole[label[i]] += total[i];
    }
    return { self, whole };
  }
}

/** Boxes of `tree` from the root to `box`. */
function pathTo(tree, box) {
  const path = [];
  for (let i = box; i >= 0; i = tree.parent[i]) path.push(i);
  return path.reverse();
}

/** Weight of what is left of `box`. */
function startOf(tree, box) {
  let start = 0;
  for (let at = box; at >= 0; at = tree.parent[at]) {
    for (let before = tree.first(tree.parent[at]); before !== at && before >= 0; before = tree.next(before)) start += tree.total[before];
  }
  return start;
}

/** All boxes of `tree` that have been looked at, in order: `visit(box, start)`, false where what is on it is to be passed over. */
function walk(tree, visit) {
  const at = [0];
  let box = tree.known(-1), level = 0;
  while (box >= 0) {
    const x = at[level];
    at[level] = x + tree.total[box];
    const child = visit(box, x) === false ? -1 : tree.known(box);
    if (child >= 0) {
      at[++level] = x;
      box = child;
      continue;
    }
    let next = tree.next(box);
    while (next < 0 && level > 0) {
      box = tree.parent[box];
      level--;
      next = tree.next(box);
    }
    box = next;
  }
}
