"use strict";
/**
 * Calls merged another way than from the root on: from the leaf, or around a function. A box stands for boxes of `base` and how much of
 * each; what is on it is worked out when it is first asked for, which for thin ones is never.
 */
class MergedTree {
  /** `upwards`: callers are on top of what they call, and weights begin where paths end. */
  constructor(base, labels, upwards) {
    this.base = base;
    this.labels = labels;
    this.ends = upwards;
    this.deepest = base.deepest;
    this.all = 0;
    this.label = [];
    this.parent = [];
    this.depth = [];
    this.total = [];
    this.own = [];
    this.members = [];
    this.firsts = [];
    this.nexts = [];
    this.root = -1;
    // Of two profiles, what each has of a box.
    this.pair = base.pair;
    if (this.pair) this.was = [], this.is = [], this.wasOwn = [], this.isOwn = [];
  }

  first(box) {
    if (box < 0) return this.root;
    if (this.firsts[box] === undefined) this.grow(box);
    return this.firsts[box];
  }

  next(box) {
    return this.nexts[box];
  }

  /** As `first`, but nothing is worked out for it: only what has been looked at counts. */
  known(box) {
    return box < 0 ? this.root : this.firsts[box] ?? -1;
  }

  grow(box) {
    const { base } = this, { boxes, parts, before, after } = this.members[box], above = new Grouping(base);
    for (let i = 0; i < boxes.length; i++) {
      const of = boxes[i];
      if (this.ends) {
        if (base.parent[of] >= 0) above.add(base.parent[of], parts[i], before && before[i], after && after[i]);
      } else {
        for (let child = base.first(of); child >= 0; child = base.next(child)) above.addAll(child);
      }
    }
    this.firsts[box] = this.place(above, box);
    this.members[box] = null;
  }

  /** Makes boxes of groups, in order of their names; gives the first. */
  place(grouping, on) {
    let first = -1, last = -1;
    for (const [label, members] of [...grouping.groups].sort((a, b) => a[0] - b[0])) {
      const box = this.label.length, { boxes, parts } = members;
      let total = 0, own = 0;
      for (let i = 0; i < boxes.length; i++) {
        total += parts[i];
        if (!this.ends) own += this.base.own[boxes[i]];
        else if (this.base.parent[boxes[i]] < 0) own += parts[i];
      }
      this.label.push(label);
      this.parent.push(on);
      this.depth.push(on < 0 ? 0 : this.depth[on] + 1);
      this.total.push(total);
      this.own.push(own);
      this.members.push(members);
      if (this.pair) this.compare(members);
      this.firsts.push(undefined);
      this.nexts.push(-1);
      if (last < 0) first = box;
      else this.nexts[last] = box;
      last = box;
    }
    return first;
  }

  compare({ boxes, before, after }) {
    const sums = [0, 0, 0, 0], { base, pair } = this;
    for (let i = 0; i < boxes.length; i++) {
      const ends = !this.ends || base.parent[boxes[i]] < 0;
      sums[0] += before[i];
      sums[1] += after[i];
      if (!ends) continue;
      sums[2] += this.ends ? before[i] : pair.before.own[boxes[i]];
      sums[3] += this.ends ? after[i] : pair.after.own[boxes[i]];
    }
    [this.was, this.is, this.wasOwn, this.isOwn].forEach((of, i) => of.push(sums[i]));
  }

  /** As of a `CallTree`, but of what has been looked at. */
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
}

/** Boxes of a tree by label, with how much of each; of two profiles, how much of each in both. */
class Grouping {
  constructor({ label, total, pair }) {
    Object.assign(this, { label, total, pair });
    this.groups = new Map();
  }

  add(box, part, before, after) {
    let group = this.groups.get(this.label[box]);
    if (!group) this.groups.set(this.label[box], (group = this.pair ? { boxes: [], parts: [], before: [], after: [] } : { boxes: [], parts: [] }));
    const last = group.boxes.length - 1;
    // Neighbours have their caller in common.
    if (last >= 0 && group.boxes[last] === box) {
      group.parts[last] += part;
      if (this.pair) group.before[last] += before, group.after[last] += after;
    } else {
      group.boxes.push(box);
      group.parts.push(part);
      if (this.pair) group.before.push(before), group.after.push(after);
    }
  }

  /** All stacks through a box. */
  addAll(box) {
    const { pair } = this;
    if (pair) this.add(box, this.total[box], pair.before.total[box], pair.after.total[box]);
    else this.add(box, this.total[box]);
  }

  /** The stacks that end in it. */
  addOwn(box, own) {
    const { pair } = this;
    if (pair) this.add(box, own, pair.before.own[box], pair.after.own[box]);
    else this.add(box, own);
  }
}

/** All stacks from their leaves on. */
function reversed(base, labels) {
  const tree = new MergedTree(base, labels, true), leaves = new Grouping(base);
  for (let i = 0; i < base.count; i++) if (base.own[i] > 0) leaves.addOwn(i, base.own[i]);
  tree.root = tree.place(leaves, -1);
  tree.all = base.all;
  tree.whole = base.whole;
  return tree;
}

/** Who calls the function `label`, or what it calls: all of its stacks, each counted once. */
function around(base, labels, label, upwards) {
  const tree = new MergedTree(base, labels, upwards), outer = base.outermost(labels), calls = new Grouping(base);
  for (let i = 0; i < base.count; i++) if (base.label[i] === label && outer[i] && base.total[i] > 0) calls.addAll(i);
  tree.root = tree.place(calls, -1);
  tree.all = tree.root < 0 ? 0 : tree.total[tree.root];
  // Shares are of the whole profile, not of the function.
  tree.whole = base.whole;
  tree.bare = true;
  return tree;
}
