"use strict";
/**
 * The boxes of a `CallTree` with siblings ordered by weight, heaviest first; numbers do not change. Siblings are sorted on first
 * access, which never happens for thin ones.
 */
class OrderedTree extends CallTree {
  /** `weights`: the weights to sort by, for trees that must have the same order. */
  static of(tree, weights = tree.total) {
    const ordered = Object.assign(Object.create(OrderedTree.prototype), tree);
    ordered.by = weights;
    // For each box its first child, 0 before the first access, and its next sibling.
    ordered.firsts = new Int32Array(tree.count);
    ordered.behind = new Int32Array(tree.count);
    ordered.lowest = null;
    ordered.counted = ordered.found = null;
    return ordered;
  }

  first(box) {
    if (box < 0) return this.lowest ??= this.arrange(-1);
    return this.firsts[box] || (this.firsts[box] = this.arrange(box));
  }

  next(box) {
    this.first(this.parent[box]);
    return this.behind[box];
  }

  /** Sorts the children of a box; returns the first, -1 if there is none. */
  arrange(on) {
    const { by, behind, region } = this, all = [];
    for (let i = super.first(on); i >= 0; i = super.next(i)) all.push(i);
    // The region of stacks that one of two profiles lacks stays at the right.
    all.sort((a, b) => (a === region) - (b === region) || by[b] - by[a] || a - b);
    all.forEach((box, i) => { behind[box] = all[i + 1] ?? -1; });
    return all[0] ?? -1;
  }

  /** 1 for boxes that are marked or have a marked descendant. */
  leading(wanted) {
    const { count, label, parent, total } = this, leads = new Uint8Array(count);
    for (let i = 0; i < count; i++) {
      if (!wanted[label[i]] || !(total[i] > 0)) continue;
      for (let at = i; at >= 0 && !leads[at]; at = parent[at]) leads[at] = 1;
    }
    return leads;
  }

  matched(wanted, visit) {
    const weight = super.matched(wanted), { label, total, all } = this;
    if (!visit || !(weight > 0)) return weight;
    // Matches that are too thin to see are merged.
    const leads = this.leading(wanted), grain = all / 8192;
    walk(this, (box, x) => {
      if (!leads[box]) return false;
      if (!wanted[label[box]] && total[box] >= grain) return true;
      visit(x, total[box]);
      return false;
    });
    return weight;
  }

  nextMarked(wanted, from, step) {
    if (this.counted !== wanted) {
      const leads = this.leading(wanted), found = new Uint32Array(this.countMarked(wanted, this.count));
      let at = 0;
      walk(this, (box) => {
        if (leads[box] && wanted[this.label[box]]) found[at++] = box;
        return leads[box] === 1;
      });
      [this.counted, this.found] = [wanted, found];
    }
    const { found } = this, here = found.indexOf(from);
    if (!found.length) return { box: -1, at: 0, of: 0 };
    const at = here < 0 ? (step > 0 ? 0 : found.length - 1) : (here + step + found.length) % found.length;
    return { box: found[at], at: at + 1, of: found.length };
  }
}
