"use strict";
/** What filters leave of trees. Of each tree the last ones are kept one by one, so that another filter goes over the stacks once. */
class Filters {
  /** `wantedBy(regex)`: 1 for each label that it matches. */
  constructor(wantedBy) {
    this.wantedBy = wantedBy;
    this.known = new WeakMap();
  }

  /** `tree` without what `filters` take away, each `{ keep, source, ignore }`. */
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
