// The page's trees without a browser: every sum compared with stacks counted one by one. Run by run.sh, which
// sets RENDER.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import vm from "node:vm";

const files = ["page.js", "flame/tree.js", "profile/merge.js", "profile/columns.js", "profile/filters.js", "profile/transform.js", "profile/times.js", "profile/state.js"].map((name) => readFileSync(join(process.env.RENDER, name), "utf8"));
const { CallTree, reversed, around, walk, stateText, stateOf, firstState, pathTo, startOf, Past, Filters, Transforms, columnsOf } = vm.runInNewContext(
  files.join("\n") + "\n({ CallTree, reversed, around, walk, stateText, stateOf, firstState, pathTo, startOf, Past, Filters, Transforms, columnsOf })", { URLSearchParams });

// Stacks of few names, so that names repeat and functions call themselves often.
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
/** The weights of all paths that boxes represent, added up independently. */
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
/** The same for a tree; checks all of its nodes. */
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
  test(`a tree and its reverse have the sums of the stacks (${seed})`, () => {
    assert.equal(tree.all, sum(all));
    assert.deepEqual(boxesOf(tree), prefixes(all));
    assert.deepEqual(boxesOf(reversed(tree, NAMES)), prefixes(all.map(({ path, weight }) => ({ path: [...path].reverse(), weight }))));
  });
  test(`callers and callees start at a function's first frame on a stack (${seed})`, () => {
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
  test(`matches count each stack once, and filters select whole stacks (${seed})`, () => {
    for (const labels of [[0], [1, 4], [0, 1, 2, 3, 4, 5], []]) {
      const having = ({ path }) => path.some((label) => labels.includes(label)), wanted = some(...labels);
      const towers = [];
      assert.equal(tree.matched(wanted, (from, width) => towers.push([from, width])), sum(all.filter(having)));
      for (let i = 1; i < towers.length; i++) assert.ok(towers[i][0] >= towers[i - 1][0] + towers[i - 1][1], "towers do not overlap");
      for (const keep of [true, false]) {
        const left = all.filter((stack) => having(stack) === keep), filtered = tree.filtered(wanted, keep);
        assert.equal(filtered.all, sum(left));
        assert.deepEqual(boxesOf(filtered), prefixes(left));
        // The matches of a search in the remaining stacks, and the reverse tree.
        assert.equal(filtered.matched(some(2)), sum(left.filter(({ path }) => path.includes(2))));
        assert.deepEqual(boxesOf(reversed(filtered, NAMES)), prefixes(left.map(({ path, weight }) => ({ path: [...path].reverse(), weight }))));
      }
    }
  });
  test(`each box starts where its neighbour ends (${seed})`, () => {
    walk(tree, (box, start) => { assert.equal(startOf(tree, box), start); });
  });
}

/** A stack after a transform. */
const transformed = (path, { kind, label }) => {
  if (kind === "collapse") return path.includes(label) ? path.slice(0, path.indexOf(label) + 1) : path;
  return path.filter((at, i) => at !== label || kind === "recursion" && path[i - 1] !== label);
};

for (const seed of [4, 5, 6, 7]) {
  test(`transforms preserve the total and the sums of the stacks, sorted by name (${seed})`, () => {
    const all = stacks(seed), tree = treeOf(all), transforms = new Transforms(tree), kinds = ["collapse", "recursion", "merge"];
    const lists = kinds.flatMap((kind) => [0, 1, 2, 3, 4, 5].map((label) => [{ kind, label }]));
    for (const [i, first] of kinds.entries()) {
      lists.push([{ kind: first, label: 1 }, { kind: kinds[(i + seed) % 3], label: 2 }], [{ kind: first, label: 3 }, { kind: "merge", label: 0 }, { kind: "recursion", label: 4 }, { kind: "collapse", label: 5 }]);
    }
    for (const list of lists) {
      assert.ok(transforms.select(list));
      const made = transforms.of(tree), paths = all.map(({ path, weight }) => ({ path: list.reduce(transformed, path), weight }));
      assert.deepEqual(boxesOf(made), prefixes(paths), JSON.stringify(list));
      assert.equal(made.all, tree.all);
      for (let i = 0; i < made.count; i++) {
        const next = made.next(i);
        assert.ok(next < 0 || made.label[next] > made.label[i], "neighbours are in order, one of a name");
      }
      // Each recorded box goes to the box of its stack; the same weights are not moved twice.
      for (let i = 0; i < tree.count; i++) {
        const path = list.reduce(transformed, pathTo(tree, i).map((box) => tree.label[box]));
        assert.deepEqual(pathTo(made, transforms.box[i]).map((box) => made.label[box]), path);
      }
      assert.equal(transforms.of(tree), made);
    }
    assert.equal(transforms.select([]), false);
    assert.equal(transforms.of(tree), tree);
  });
}

test("an additional filter reads the stacks once, and undo does not read them", () => {
  const tree = treeOf(stacks(4)), names = "abcdef".split("");
  let gone = 0;
  const filters = new Filters((regex) => {
    gone++;
    return Uint8Array.from(names, (name) => regex.test(name) ? 1 : 0);
  });
  const some = ["a", "b", "c"].map((source, i) => ({ keep: i > 0, source, ignore: false }));
  const [two, three] = [filters.of(tree, some.slice(0, 2)), filters.of(tree, some)];
  assert.equal(gone, 3);
  assert.equal(filters.of(tree, some), three);
  assert.equal(filters.of(tree, some.slice(0, 2)), two);
  assert.equal(filters.of(tree, []), tree);
  assert.equal(gone, 3);
});

test("search and next match use columns without a list of matches", () => {
  const tree = treeOf(stacks(5)), wanted = some(1, 4), found = [];
  walk(tree, (box) => { if (wanted[tree.label[box]]) found.push(box); });
  for (const way of ["first", "next", "known"]) tree[way] = () => assert.fail(way);
  assert.ok(tree.matched(wanted, () => {}) > 0);
  let { box, at, of } = tree.nextMarked(wanted, -1, 1);
  for (let i = 0; i < found.length; i++) {
    assert.deepEqual([box, at, of], [found[i], i + 1, found.length]);
    ({ box, at, of } = tree.nextMarked(wanted, box, 1));
  }
  assert.equal(box, found[0], "around the end");
  assert.equal(tree.nextMarked(wanted, found[0], -1).box, found.at(-1));
  assert.equal(tree.nextMarked(some(), -1, 1).of, 0);
});

test("the frames of a reverse tree are bounded and sum up to the whole", () => {
  const tree = treeOf(stacks(6)), whole = boxesOf(reversed(tree, NAMES)), parts = reversed(tree, NAMES);
  let frames = 0, before = parts.label.length;
  const more = () => {
    parts.allow(50);
    boxesOf(parts);
    // No more than the limit, except for the last box and the overhead of each.
    assert.ok(parts.label.length - before <= 50 + NAMES, `${parts.label.length - before} boxes`);
    before = parts.label.length;
    return parts.allow(Infinity);
  };
  while (more()) frames++;
  assert.ok(frames > 3, `${frames} frames`);
  assert.deepEqual(boxesOf(parts), whole);
});

test("columns work with few and many names, and with low and high stacks", () => {
  for (const names of [1, 200, 300, 70000]) {
    // The last name is on two boxes, so its number is 0 and those of others are one more; levels down 0, 0, ..., 0, 200.
    const bits = Array.from({ length: names }, (_, name) => name === names - 1 ? 2 : 1), labels = [names - 1, ...Array(200).fill(names >> 1), names - 1, names - 1];
    const number = (name) => name === names - 1 ? 0 : name + 1, planes = [];
    for (let shift = 16; shift >= 0; shift -= 8) if (names - 1 >> shift) planes.push(labels.map((label) => number(label) >> shift & 255));
    const shape = labels.map((_, i) => i === 201 ? 255 : i === 202 ? 1 : i === 200 ? 1 : 0);
    const bytes = Uint8Array.from([...bits, ...shape, ...planes.flat(), 200 - 127, 5, 0x81, 2, 7]);
    const { label, depth, owns } = columnsOf(bytes, { count: labels.length, names, measures: [{ total: 1000 }] });
    assert.deepEqual([...label], labels);
    assert.deepEqual([...depth], [...Array(201).keys(), 1, 2]);
    assert.deepEqual([200, 201, 202].map((i) => owns[0][i]), [5, 257, 7]);
    assert.equal(owns[0].reduce((a, b) => a + b), 269);
  }
});

test("a state written to the address and read back is unchanged", () => {
  const first = firstState("flame");
  const state = {
    ...first, view: "reverse", turned: true, q: "a&b=#%+ c", ignore: true, palette: "name", sort: "total", theme: "dark", fn: "f;g",
    zoom: ["a;b", "c\\", "\\;", "d e", "#&=%", "✓"],
    heat: true, time: [20, 1040], than: [0, 20], threads: ["[a&b tid=1]", "[c;d tid=2]"], widths: "larger", by: "self",
    filters: [{ keep: true, source: "^x+$", ignore: false }, { keep: false, source: "y|z", ignore: true }],
    transforms: [{ kind: "merge", fn: "a;b" }, { kind: "collapse", fn: "c=&d" }, { kind: "merge", fn: "e" }, { kind: "recursion", fn: "f" }],
  };
  assert.deepEqual(JSON.parse(JSON.stringify(stateOf(stateText(state, first), first))), state);
  assert.equal(stateText(first, first), "");
});

test("undo and redo restore states in order", () => {
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
