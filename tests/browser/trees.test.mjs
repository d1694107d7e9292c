// The page's trees without a browser: every sum against stacks counted one by one. Run by run.sh, which sets RENDER.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import vm from "node:vm";

const files = ["flame/tree.js", "profile/merge.js", "profile/times.js", "profile/state.js"].map((name) => readFileSync(join(process.env.RENDER, name), "utf8"));
const { CallTree, reversed, around, walk, stateText, stateOf, firstState, pathTo, startOf, Past } = vm.runInNewContext(
  files.join("\n") + "\n({ CallTree, reversed, around, walk, stateText, stateOf, firstState, pathTo, startOf, Past })", { URLSearchParams });

// Stacks of few names, so that they meet and call themselves often.
const NAMES = 6;
function stacks(seed) {
  let state = seed;
  const random = (n) => ((state = (Math.imul(state, 1664525) + 1013904223) >>> 0) >>> 8) % n, all = new Map();
  for (let i = 0; i < 300; i++) {
    const path = Array.from({ length: 1 + random(7) }, () => random(NAMES));
    all.set(path.join(), { path, weight: 1 + random(50) });
  }
  return [...all.values()].sort((a, b) => {
    for (let i = 0; ; i++) {
      const x = a.path[i] ?? -1, y = b.path[i] ?? -1;
      if (x !== y) return x - y;
    }
  });
}
function treeOf(all) {
  const label = [], depth = [], own = [];
  let before = [];
  for (const { path, weight } of all) {
    let common = 0;
    while (common < before.length && before[common] === path[common]) common++;
    for (let d = common; d < path.length; d++) {
      label.push(path[d]);
      depth.push(d);
      own.push(0);
    }
    own[own.length - 1] = weight;
    before = path;
  }
  return new CallTree({ label: Uint32Array.from(label), depth: Uint32Array.from(depth), own: Float64Array.from(own) });
}
/** Weights of all paths that boxes stand for, as a person would add them up. */
function prefixes(paths) {
  const sums = new Map();
  for (const { path, weight } of paths) {
    for (let d = 1; d <= path.length; d++) {
      const key = path.slice(0, d).join();
      sums.set(key, (sums.get(key) || 0) + weight);
    }
  }
  return Object.fromEntries([...sums].sort());
}
/** The same of a tree; all that is in it is looked at. */
function boxesOf(tree) {
  const todo = [-1], sums = new Map();
  while (todo.length) {
    for (let i = tree.first(todo.pop()); i >= 0; i = tree.next(i)) {
      sums.set(pathTo(tree, i).map((box) => tree.label[box]).join(), tree.total[i]);
      todo.push(i);
    }
  }
  return Object.fromEntries([...sums].sort());
}
const sum = (paths) => paths.reduce((all, { weight }) => all + weight, 0);
const some = (...labels) => Uint8Array.from({ length: NAMES }, (_, l) => labels.includes(l) ? 1 : 0);

for (const seed of [1, 2, 3]) {
  const all = stacks(seed), tree = treeOf(all);
  test(`a tree and its reverse have the stacks' sums (${seed})`, () => {
    assert.equal(tree.all, sum(all));
    assert.deepEqual(boxesOf(tree), prefixes(all));
    assert.deepEqual(boxesOf(reversed(tree, NAMES)), prefixes(all.map(({ path, weight }) => ({ path: [...path].reverse(), weight }))));
  });
  test(`around a function: its callers and callees from where it is first on a stack (${seed})`, () => {
    for (let label = 0; label < NAMES; label++) {
      const having = all.filter(({ path }) => path.includes(label));
      const from = having.map(({ path, weight }) => ({ path: path.slice(path.indexOf(label)), weight }));
      const to = having.map(({ path, weight }) => ({ path: path.slice(0, path.indexOf(label) + 1).reverse(), weight }));
      assert.deepEqual(boxesOf(around(tree, NAMES, label, false)), prefixes(from));
      assert.deepEqual(boxesOf(around(tree, NAMES, label, true)), prefixes(to));
      const { self, whole } = tree.byLabel(NAMES);
      assert.equal(whole[label], sum(having));
      assert.equal(self[label], sum(all.filter(({ path }) => path.at(-1) === label)));
    }
  });
  test(`matches count each stack once, filters take whole stacks (${seed})`, () => {
    for (const labels of [[0], [1, 4], [0, 1, 2, 3, 4, 5], []]) {
      const having = ({ path }) => path.some((label) => labels.includes(label)), wanted = some(...labels);
      const towers = [];
      assert.equal(tree.matched(wanted, (from, width) => towers.push([from, width])), sum(all.filter(having)));
      for (let i = 1; i < towers.length; i++) assert.ok(towers[i][0] >= towers[i - 1][0] + towers[i - 1][1], "towers do not overlap");
      for (const keep of [true, false]) {
        const left = all.filter((stack) => having(stack) === keep), filtered = tree.weighed(tree.kept(wanted, keep));
        assert.equal(filtered.all, sum(left));
        assert.deepEqual(boxesOf(filtered), prefixes(left));
        // What a search finds in what is left, and the reverse of it.
        assert.equal(filtered.matched(some(2)), sum(left.filter(({ path }) => path.includes(2))));
        assert.deepEqual(boxesOf(reversed(filtered, NAMES)), prefixes(left.map(({ path, weight }) => ({ path: [...path].reverse(), weight }))));
      }
    }
  });
  test(`boxes begin where those before them end (${seed})`, () => {
    walk(tree, (box, start) => { assert.equal(startOf(tree, box), start); });
  });
}

test("a state survives its address", () => {
  const first = firstState("flame");
  const state = {
    ...first, view: "reverse", turned: true, q: "a&b=#%+ c", ignore: true, palette: "name", sort: "total", theme: "dark", fn: "f;g",
    zoom: ["a;b", "c\\", "\\;", "d e", "#&=%", "✓"],
    heat: true, time: [20, 1040], than: [0, 20], threads: ["[a&b tid=1]", "[c;d tid=2]"], widths: "larger", by: "self",
    filters: [{ keep: true, source: "^x+$", ignore: false }, { keep: false, source: "y|z", ignore: true }],
  };
  assert.deepEqual(JSON.parse(JSON.stringify(stateOf(stateText(state, first), first))), state);
  assert.equal(stateText(first, first), "");
});

test("undo and redo", () => {
  const past = new Past();
  past.add("a");
  past.add("b");
  assert.equal(past.go(true, "c"), "b");
  assert.equal(past.go(true, "b"), "a");
  assert.equal(past.go(true, "a"), undefined);
  assert.equal(past.go(false, "a"), "b");
  past.add("b");
  assert.equal(past.go(false, "d"), undefined, "what was undone is gone once something else is done");
});
