"use strict";
/**
 * Runs the code of the first search, filter and table on a part of `tree` while the page is idle, because a browser compiles code
 * that ran often.
 */
function warmUp(tree, labels) {
  const count = Math.min(tree.count, 1 << 15), ROUNDS = 6;
  // Small trees are fast without this.
  if (count < 1 << 13) return;
  const [label, depth, own] = [tree.label, tree.depth, tree.own].map((column) => column.subarray(0, count));
  const part = new CallTree({ label, depth, own });
  const wanted = Uint8Array.from({ length: labels }, (_, i) => i % 16 ? 0 : 1);
  const steps = [
    () => part.matched(wanted), () => part.matched(wanted, () => {}), () => part.countMarked(wanted, count), () => part.byLabel(labels),
    () => part.filtered(wanted, true), () => part.filtered(wanted, false).countMarked(wanted, count),
  ];
  const idle = window.requestIdleCallback || ((run) => setTimeout(run, 50));
  let turn = 0;
  const next = () => {
    steps[turn % steps.length]();
    if (++turn < steps.length * ROUNDS) idle(next);
  };
  idle(next);
}
