"use strict";
/**
 * Applies filters to trees. The results for the last chain of each tree are cached, so that another filter processes the stacks
 * only once.
 */
class Filters {
  /** `wantedBy(regex)` returns 1 for each label that matches. */
  constructor(wantedBy) {
    this.wantedBy = wantedBy;
    this.known = new WeakMap();
  }

  /** `tree` after `filters`, each `{ keep, source, ignore }`. */
  of(tree, filters) {
    const chain = this.known.get(tree) || [];
    this.known.set(tree, chain);
    let left = tree, at = 0;
    for (; at < filters.length; at++) {
      const { keep, source, ignore } = filters[at], key = [keep, ignore, source].join();
      if (!chain[at] || chain[at].key !== key) {
        chain.length = at;
        chain.push({ key, left: this.filtered(left, filters[at]) });
      }
      ({ left } = chain[at]);
    }
    chain.length = at;
    return left;
  }

  filtered(of, { keep, source, ignore }) {
    const left = of.filtered(this.wantedBy(regexOf(source, ignore)), keep);
    // A stack without a frame has no match.
    if (!keep) left.all = left.whole = left.boxed + of.all - of.boxed;
    return left;
  }
}
