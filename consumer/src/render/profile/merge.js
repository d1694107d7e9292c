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
    const { base } = this, { boxes, parts } = this.members[box], above = new Grouping(base.label);
    for (let i = 0; i < boxes.length; i++) {
      const of = boxes[i];
      if (this.ends) {
        if (base.parent[of] >= 0) above.add(base.parent[of], parts[i]);
      } else {
        for (let child = base.first(of); child >= 0; child = base.next(child)) above.add(child, base.total[child]);
      }
    }
    this.firsts[box] = this.place(above, box);
    this.members[box] = null;
  }

  /** Makes boxes of groups, in order of their names; gives the first. */
  place(grouping, on) {
    let first = -1, last = -1;
    for (const [label, { boxes, parts }] of [...grouping.groups].sort((a, b) => a[0] - b[0])) {
      const box = this.label.length;
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
      this.members.push({ boxes, parts });
      this.firsts.push(undefined);
      this.nexts.push(-1);
      if (last < 0) first = box;
      else this.nexts[last] = box;
      last = box;
    }
    return first;
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

/** Boxes of a tree by label, with how much of each. */
class Grouping {
  constructor(label) {
    this.label = label;
    this.groups = new Map();
  }

  add(box, part) {
    let group = this.groups.get(this.label[box]);
    if (!group) this.groups.set(this.label[box], (group = { boxes: [], parts: [] }));
    const last = group.boxes.length - 1;
    // Neighbours have their caller in common.
    if (last >= 0 && group.boxes[last] === box) group.parts[last] += part;
    else {
      group.boxes.push(box);
      group.parts.push(part);
    }
  }
}

/** All stacks from their leaves on. */
function reversed(base, labels) {
  const tree = new MergedTree(base, labels, true), leaves = new Grouping(base.label);
  for (let i = 0; i < base.count; i++) if (base.own[i] > 0) leaves.add(i, base.own[i]);
  tree.root = tree.place(leaves, -1);
  tree.all = tree.whole = base.all;
  return tree;
}

/** Who calls the function `label`, or what it calls: all of its stacks, each counted once. */
function around(base, labels, label, upwards) {
  const tree = new MergedTree(base, labels, upwards), outer = base.outermost(labels), calls = new Grouping(base.label);
  for (let i = 0; i < base.count; i++) if (base.label[i] === label && outer[i] && base.total[i] > 0) calls.add(i, base.total[i]);
  tree.root = tree.place(calls, -1);
  tree.all = tree.root < 0 ? 0 : tree.total[tree.root];
  // Shares are of the whole profile, not of the function.
  tree.whole = base.all;
  tree.bare = true;
  return tree;
}
