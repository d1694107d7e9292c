"use strict";
const grouped = new Intl.NumberFormat("en-US");
const fixed = (digits) => new Intl.NumberFormat("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
const fraction = new Intl.NumberFormat("en-US", { maximumFractionDigits: 9 });
const two = fixed(2), three = fixed(3);

/** Formats an amount of `unit`. */
function amountIn(unit, value) {
  if (unit === "ns") {
    if (value >= 1e9) return three.format(value / 1e9) + " s";
    return value >= 1e6 || value === 0 ? (value / 1e6).toFixed(3) + " ms" : (value / 1e3).toFixed(1) + " µs";
  }
  if (unit === "bytes" && value >= 1048576) return two.format(value / 1048576) + " MiB";
  // Fractional weights are counted in tenths, hundredths and so on: 250 samples/1000.
  const part = /^(.*)\/(10+)$/.exec(unit);
  if (part) return fraction.format(value / part[2]) + " " + part[1];
  return grouped.format(value) + " " + (value === 1 ? unit.replace(/s$/, "") : unit);
}

/** The same for a column whose heading has the unit. */
const figureIn = (unit, value) => unit === "ns" || unit === "bytes" || /\/10+$/.test(unit) ? amountIn(unit, value) : grouped.format(value);

const percentOf = (part, whole) => (whole ? (100 * part / whole).toFixed(2) : "0.00") + "%";

/** Description of a box: name, weight, share. */
function describeBox(tree, frames, unit, box) {
  if (tree.pair) return describeChange(tree, frames, unit, box);
  if (box < 0) return `all (${amountIn(unit, tree.all)}, ${percentOf(tree.all, tree.whole)})`;
  return `Function: ${frames.names[tree.label[box]]} (${amountIn(unit, tree.total[box])}, ${percentOf(tree.total[box], tree.whole)})`;
}

const KINDS = { n: "native", k: "kernel", t: "mostly interpreted", j: "mostly JIT-compiled", i: "mostly inlined", N: "native method", J: "JIT-compiled", o: "inlined", m: "", u: "" };

/** Further description: own weight, module. */
function describeMore(tree, frames, unit, box) {
  if (tree.pair) return describeChangeMore(tree, frames, unit, box);
  if (box < 0) return "";
  const label = tree.label[box], own = tree.own[box], parts = [];
  if (own > 0) parts.push(tree.ends ? `${percentOf(own, tree.whole)} start here` : `self ${amountIn(unit, own)}, ${percentOf(own, tree.whole)}`);
  if (frames.modules[label]) parts.push("in " + frames.modules[label]);
  if (KINDS[frames.kinds[label]]) parts.push(KINDS[frames.kinds[label]]);
  return parts.join(" · ");
}
