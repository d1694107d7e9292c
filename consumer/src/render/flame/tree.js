"use strict";
/**
 * A call tree. Boxes are numbers; parents precede children; -1 is the common base. Other trees that a graph can draw must also
 * have `all` (total width of the boxes), `whole` (the 100 % of percentages), `deepest`, `label`, `depth`, `parent`, `own`,
 * `total`, `first()`, `next()`, `known()`, `matched()` and `nextMarked()`.
 */
class CallTree {
  /**
   * `boxes`: label, depth and own weight of each; `whole`: weight of all stacks, including those without a frame; `like`: a tree
   * of the same boxes. All trees get their properties here and in this order, so that the engine's inline caches work for all of
   * them.
   */
  constructor({ label, depth, own, sums = null }, whole = 0, like = null) {
    const count = label.length;
    this.count = count;
    this.label = label;
    this.depth = depth;
    this.parent = like ? like.parent : new Int32Array(count);
    this.end = like ? like.end : new Uint32Array(count);
    this.deepest = like ? like.deepest : 0;
    this.counted = null;
    this.marks = 0;
    if (!like) this.nest();
    if (sums) this.put(own, sums.total, false, sums.boxed, whole);
    else this.weigh(own, whole);
  }

  /** Computes parents, ends and the maximum depth. */
  nest() {
    const { count, depth, parent, end } = this, path = [];
    let last = 0;
    for (let i = 0; i < count; i++) {
      const level = depth[i];
      // Boxes at this level and above end where this one begins.
      for (let at = level; at < last; at++) end[path[at]] = i;
      parent[i] = level ? path[level - 1] : -1;
      path[level] = i;
      last = level + 1;
      if (level > this.deepest) this.deepest = level;
    }
    for (let at = 0; at < last; at++) end[path[at]] = count;
  }

  /** The same boxes with other weights. Boxes without weight are skipped. */
  weighed(own, whole = 0) {
    return new CallTree({ label: this.label, depth: this.depth, own }, whole, this);
  }

  weigh(own, whole) {
    const { count, parent } = this, total = own.slice();
    let all = 0, full = true;
    for (let i = count - 1; i >= 0; i--) {
      const p = parent[i], w = total[i];
      if (w <= 0) full = false;
      else if (p < 0) all += w;
      else total[p] += w;
    }
    this.put(own, total, full, all, whole);
  }

  /**
   * Sets the weights: own and total weights of boxes, whether all boxes are known to have weight, the weight of all boxes, and of
   * all stacks.
   */
  put(own, total, full, boxed, whole) {
    this.full = full;
    this.own = own;
    this.total = total;
    this.boxed = boxed;
    // Stacks without a frame count in the whole but have no box.
    this.all = this.whole = Math.max(boxed, whole);
  }

  /** The first child of `box`, -1 if there is none. */
  first(box) {
    const child = box + 1;
    return child < (box < 0 ? this.count : this.end[box]) ? this.weighty(child, box) : -1;
  }

  /** The next sibling of `box`, -1 if there is none. */
  next(box) {
    return this.weighty(this.end[box], this.parent[box]);
  }

  weighty(box, parent) {
    const last = parent < 0 ? this.count : this.end[parent];
    while (box < last && this.total[box] <= 0) box = this.end[box];
    return box < last ? box : -1;
  }

  /** Like `first`, for boxes that were already accessed; here, for all boxes. */
  known(box) {
    return this.first(box);
  }

  /**
   * Returns the weight of the stacks with one of the labels in `wanted`, each counted once; calls `visit(start, weight)` for each
   * matching subtree. One pass over the labels in memory order that skips the boxes above a match.
   */
  matched(wanted, visit) {
    const { count, label, depth, end, own, total } = this;
    let weight = 0;
    if (!visit) {
      for (let i = 0; i < count;) {
        if (wanted[label[i]]) {
          weight += total[i];
          i = end[i];
        } else i++;
      }
      return weight;
    }
    // Stacks that end in a box are to the right of its children: a box begins at the weight before it, minus the own weights of
    // the boxes below it.
    const below = new Float64Array(this.deepest + 2);
    for (let i = 0, before = 0; i < count;) {
      const level = depth[i];
      if (wanted[label[i]]) {
        const w = total[i];
        weight += w;
        if (w > 0) visit(before - below[level], w);
        before += w;
        i = end[i];
      } else {
        below[level + 1] = below[level] + own[i];
        before += own[i];
        i++;
      }
    }
    return weight;
  }

  /** Returns the number of boxes before `until` whose label is in `wanted`. Makes no list, because there may be millions. */
  countMarked(wanted, until) {
    const { label, total, full } = this;
    let size = 0;
    if (full) for (let i = 0; i < until; i++) size += wanted[label[i]];
    else for (let i = 0; i < until; i++) if (wanted[label[i]] && total[i] > 0) size++;
    return size;
  }

  /**
   * Returns the next box after `from` whose label is in `wanted`, or the previous one with a `step` of -1, with wrap-around; also
   * its number and the number of boxes.
   */
  nextMarked(wanted, from, step) {
    const { count, label, total } = this;
    if (this.counted !== wanted) [this.counted, this.marks] = [wanted, this.countMarked(wanted, count)];
    if (!this.marks) return { box: -1, at: 0, of: 0 };
    const is = (i) => wanted[label[i]] && total[i] > 0;
    let i = from >= 0 && is(from) ? from : step > 0 ? -1 : count;
    do i = (i + step + count) % count; while (!is(i));
    return { box: i, at: this.countMarked(wanted, i) + 1, of: this.marks };
  }

  /**
   * Returns the tree of the stacks with one of the labels in `wanted`, or without any. The subtree of a match is copied or
   * omitted as a whole; only the boxes that lead to one are summed again.
   */
  filtered(wanted, having) {
    const { count, label, depth, end } = this, own = having ? new this.own.constructor(count) : this.own.slice();
    const total = having ? new this.total.constructor(count) : this.total.slice();
    // The open boxes, and the weight of matches by level.
    const path = [], matched = [0];
    let open = 0;
    const close = (to) => {
      for (; open > to; open--) {
        const weight = matched[open];
        if (weight === 0) continue;
        const box = path[open - 1];
        total[box] = having ? weight : total[box] - weight;
        matched[open - 1] += weight;
      }
    };
    for (let i = 0; i < count;) {
      const at = depth[i];
      if (at < open) close(at);
      if (!wanted[label[i]]) {
        path[at] = i++;
        open = at + 1;
        matched[open] = 0;
        continue;
      }
      const behind = end[i];
      matched[at] += this.total[i];
      if (having) {
        own.set(this.own.subarray(i, behind), i);
        total.set(this.total.subarray(i, behind), i);
      } else {
        own.fill(0, i, behind);
        total.fill(0, i, behind);
      }
      i = behind;
    }
    close(0);
    const boxed = having ? matched[0] : this.boxed - matched[0];
    return new CallTree({ label, depth, own, sums: { total, boxed } }, 0, this);
  }

  /** Boxes of the label `of` without such a box below them: recursion counts once. */
  outermost(of) {
    const { count, label, end, total } = this, found = [];
    for (let i = 0; i < count;) {
      if (label[i] !== of) {
        i++;
        continue;
      }
      if (total[i] > 0) found.push(i);
      i = end[i];
    }
    return found;
  }

  /** By label: weight of the stacks that end in it, and of those that contain it. */
  byLabel(labels) {
    const { count, label, own, end, total } = this;
    const self = new Float64Array(labels), whole = new Float64Array(labels), until = new Uint32Array(labels);
    for (let i = 0; i < count; i++) {
      const l = label[i];
      self[l] += own[i];
      // Recursion counts once.
      if (until[l] > i) continue;
      until[l] = end[i];
      whole[l] += total[i];
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

/** Weight to the left of `box`. */
function startOf(tree, box) {
  let start = 0;
  for (let at = box; at >= 0; at = tree.parent[at]) {
    for (let before = tree.first(tree.parent[at]); before !== at && before >= 0; before = tree.next(before)) start += tree.total[before];
  }
  return start;
}

/** Visits all accessed boxes of `tree` in order: `visit(box, start)` returns false to skip the children. */
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
