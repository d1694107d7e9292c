"use strict";
/** The transforms of the tree by their key in an address: `text` describes one in the list of active transforms. */
const TRANSFORMS = {
  collapse: { text: "collapsed" },
  recursion: { text: "recursion collapsed" },
  merge: { text: "merged" },
};

/**
 * Applies transforms to trees of the same boxes as `base`, each `{ kind, label }`:
 *
 * - `collapse` removes the callees of a function; their weight becomes the function's own.
 * - `recursion` makes one box of a function and its direct calls of itself.
 * - `merge` removes a function; its own weight and its callees go to its callers.
 *
 * Totals of all boxes do not change. A function that is merged and has no caller leaves its own weight without a box.
 */
class Transforms {
  constructor(base) {
    this.base = base;
    this.key = "";
    this.shape = null;
    this.made = new WeakMap();
  }

  /** Selects the transforms, applied in their order; returns true if there are any. */
  select(list) {
    const key = JSON.stringify(list);
    if (key !== this.key) {
      this.key = key;
      this.made = new WeakMap();
      this.shape = list.reduce((shape, one) => transformed(shape || { tree: this.base, box: null }, one), null);
    }
    return this.shape !== null;
  }

  /** The box after the transforms of each box before them, -1 for none; null if there are no transforms. */
  get box() {
    return this.shape && this.shape.box;
  }

  /** `tree` after the transforms. */
  of(tree) {
    if (!this.shape) return tree;
    const known = this.made.get(tree);
    if (known) return known;
    const { box, tree: shape } = this.shape, own = new tree.own.constructor(shape.count);
    for (let i = 0; i < tree.count; i++) if (box[i] >= 0) own[box[i]] += tree.own[i];
    const made = shape.weighed(own, tree.whole);
    this.made.set(tree, made);
    return made;
  }
}

/** A shape after one more transform: a tree without weights, and the box there of each box of the first tree. */
function transformed({ tree, box: before }, { kind, label: fn }) {
  const { count, label, parent } = tree, target = new Int32Array(count), inside = new Uint8Array(count);
  const nodes = new Nodes(count, label.reduce((most, of) => Math.max(most, of), 0) + 1);
  for (let i = 0; i < count; i++) {
    const p = parent[i], on = p < 0 ? -1 : target[p], is = label[i] === fn;
    const goes = kind === "collapse" ? p >= 0 && (inside[p] === 1 || label[p] === fn)
      : is && (kind === "merge" || on >= 0 && nodes.label[on] === fn && label[p] === fn);
    inside[i] = goes ? 1 : 0;
    target[i] = goes ? on : nodes.on(on, label[i]);
    // Callees may have siblings with the same name, so they are looked up from here on.
    if (goes && kind !== "collapse") nodes.join(on);
  }
  const { order, shape } = nodes.tree(label.constructor), box = before || Int32Array.from({ length: count }, (_, i) => i);
  return { tree: shape, box: box.map((i) => i < 0 || target[i] < 0 ? -1 : order[target[i]]) };
}

/** Boxes of a tree under construction: each has a parent, -1 for the base. */
class Nodes {
  /** `most`: maximum number of boxes; `labels`: upper limit of labels, exclusive. */
  constructor(most, labels) {
    this.labels = labels;
    this.count = 0;
    this.label = new Uint32Array(most);
    this.parent = new Int32Array(most);
    // By box: its first child and its next sibling, -1 for none; by box + 1: whether its children are looked up.
    this.firsts = new Int32Array(most + 1).fill(-1);
    this.nexts = new Int32Array(most).fill(-1);
    this.joined = new Uint8Array(most + 1);
    this.known = new Map();
  }

  key(on, label) {
    return (on + 1) * this.labels + label;
  }

  add(on, label) {
    const node = this.count++;
    this.label[node] = label;
    this.parent[node] = on;
    this.nexts[node] = this.firsts[on + 1];
    this.firsts[on + 1] = node;
    return node;
  }

  /** The child of a box with a label; a new one unless it may already exist. */
  on(on, label) {
    if (!this.joined[on + 1]) return this.add(on, label);
    const key = this.key(on, label);
    let node = this.known.get(key);
    if (node === undefined) this.known.set(key, node = this.add(on, label));
    else this.join(node);
    return node;
  }

  /** From here on, children of a box are looked up. */
  join(on) {
    if (this.joined[on + 1]) return;
    this.joined[on + 1] = 1;
    for (let node = this.firsts[on + 1]; node >= 0; node = this.nexts[node]) this.known.set(this.key(on, this.label[node]), node);
  }

  /** The tree with siblings in order of labels, and the number of each box in it. */
  tree(Labels) {
    const { count, firsts, nexts } = this, order = new Int32Array(count), label = new Labels(count), depth = new Uint32Array(count), pending = [];
    const put = (on, level) => {
      const all = [];
      for (let node = firsts[on + 1]; node >= 0; node = nexts[node]) all.push(node);
      all.sort((a, b) => this.label[b] - this.label[a]);
      for (const node of all) pending.push([node, level]);
    };
    put(-1, 0);
    for (let at = 0; pending.length; at++) {
      const [node, level] = pending.pop();
      order[node] = at;
      label[at] = this.label[node];
      depth[at] = level;
      put(node, level + 1);
    }
    return { order, shape: new CallTree({ label, depth, own: new Uint32Array(count) }) };
  }
}
