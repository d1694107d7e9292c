// The cells of docs/guide/reference/interoperability.md that need a browser or an npm program and that no other test covers: weights
// and boxes, one by one.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { exported, firefox, folded, sorted, speedscope } from "./foreign.mjs";
import { search } from "./flame.mjs";
import { flightline, folder, visit } from "./page.mjs";

const text = process.env.FOLDED;
const recording = join(process.env.RECORDINGS, "ap-native-cpu.jfr");

function made(name, input, ...args) {
  const file = join(folder, name);
  execFileSync(flightline, [...args, input, "-o", file]);
  return file;
}

/** The self time of each stack, from boxes that open and close. */
function selves(events, name) {
  const stacks = new Map(), open = [];
  let before = 0;
  for (const { type, at, frame } of events) {
    const stack = open.join(";");
    if (at > before && open.length) stacks.set(stack, (stacks.get(stack) ?? 0) + at - before);
    before = at;
    if (type === "O") open.push(name(frame));
    else assert.equal(open.pop(), name(frame));
  }
  assert.equal(open.length, 0);
  return stacks;
}

const rounded = (stacks, unit = 1) => sorted(new Map([...stacks].map(([stack, weight]) => [stack, Math.round(weight * unit)])));

test("speedscope shows the weight of every stack", async () => {
  const recorded = join(process.env.RECORDINGS, "ap-java-cpu.jfr"), weights = execFileSync(flightline, ["fold", recorded, "-e", "cpu", "--total"], { encoding: "utf8" });
  const files = [
    ["own.speedscope.json", text, ["convert", "--format", "speedscope"]], ["a.folded", text, ["convert"]], ["a.pb.gz", text, ["convert"]],
    ["labels.pb.gz", recorded, ["export", "-e", "cpu", "--format", "pprof"]],
  ];
  for (const [name, input, args] of files) {
    const want = sorted(folded(input === text ? readFileSync(text, "utf8") : weights));
    assert.ok(want.length > 100);
    const page = await speedscope(name, readFileSync(made(name, input, ...args)));
    const { profiles, names } = await exported(page);
    assert.deepEqual([page.told, page.errors], [[], []], name);
    assert.equal(profiles.length, 1, name);
    assert.deepEqual(rounded(selves(profiles[0].events, (frame) => names[frame])), want, name);
  }
});

/** The boxes of a file of trace events as open and close events, by thread. */
function boxes(file) {
  const threads = new Map();
  for (const { ph, tid, name, ts, dur } of JSON.parse(readFileSync(file)).traceEvents) {
    if (ph !== "X") continue;
    if (!threads.has(tid)) threads.set(tid, []);
    threads.get(tid).push({ name, ts, end: ts + dur });
  }
  return threads;
}

/** If boxes have the same begin and end, the first is the outer one. */
function nested(all) {
  const events = [], open = [];
  const close = (to) => {
    while (open.length && open.at(-1).end <= to) {
      const { name, end } = open.pop();
      events.push({ type: "C", at: end, frame: name });
    }
  };
  const order = all.map((box, at) => ({ ...box, at })).sort((a, b) => a.ts - b.ts || b.end - a.end || a.at - b.at);
  for (const box of order) {
    close(box.ts);
    assert.ok(!open.length || open.at(-1).end >= box.end, "a box is within the one around it");
    open.push(box);
    events.push({ type: "O", at: box.ts, frame: box.name });
  }
  close(Infinity);
  return events;
}

test("speedscope and the Firefox Profiler show every box of a trace", async () => {
  const file = made("boxes.json", recording, "convert", "--format", "chrome");
  const threads = boxes(file), all = [...threads.values()].flat();
  assert.ok(threads.size > 1 && all.length > 1000, `${threads.size} threads, ${all.length} boxes`);
  assert.ok(all.every(({ ts, end }) => end > ts));

  // It merges adjacent boxes of one name, so the self time of each stack is compared.
  const page = await speedscope("boxes.json", readFileSync(file));
  const { profiles, names } = await exported(page);
  assert.deepEqual([page.told, page.errors], [[], []]);
  const tid = ({ name }) => Number(/\(tid (\d+)\)$/.exec(name)[1]);
  const has = profiles.map((profile) => [tid(profile), rounded(selves(profile.events, (frame) => names[frame]), 1000)]);
  const first = Math.min(...all.map(({ ts }) => ts));
  const want = [...threads].map(([tid, all]) => [tid, rounded(selves(nested(all), (name) => name), 1000)]);
  assert.equal(first, 0);
  assert.deepEqual(sorted(new Map(has)), sorted(new Map(want)));

  // Ends, not lengths: only times are rounded to whole nanoseconds.
  const key = (name, from, to) => `${name} ${Math.round(from)} ${Math.round(to)}`;
  await firefox("trace", file, async (profiler) => {
    const { markers } = JSON.parse(await profiler("profile", "markers", "--limit", "0", "--json"));
    // Milliseconds to nanoseconds.
    const shown = markers.map(({ name, start, duration }) => key(name, start * 1e6, (start + duration) * 1e6));
    assert.deepEqual(shown.sort(), all.map(({ name, ts, end }) => key(name, ts * 1e3, end * 1e3)).sort());
  });
});

test("the Firefox Profiler shows the weight of every folded stack", async () => {
  const want = folded(readFileSync(text, "utf8"));
  await firefox("folded", text, async (profiler) => {
    const { regularCallTree } = JSON.parse(await profiler("thread", "samples-top-down", "--include-idle", "--max-lines", "1000000", "--json"));
    const has = new Map();
    const walk = (node, path) => {
      if (node.selfSamples > 0) has.set(path.join(";"), node.selfSamples);
      for (const child of node.children ?? []) walk(child, [...path, child.name]);
    };
    walk(regularCallTree, []);
    assert.deepEqual(sorted(has), sorted(want));
  });
});

test("Chromium draws the SVG images", async () => {
  const draw = (name) => made(name, text, "flame", "--width", "800");
  const svg = await visit(draw("picture.svg"));
  assert.equal(await svg.evaluate(() => document.documentElement.nodeName), "svg");
  assert.ok((await svg.locator("text").allTextContents()).some((name) => name.includes("fib")));
  const html = await visit(draw("picture.html"));
  await html.waitForFunction(() => "ready" in document.documentElement.dataset);
  assert.match(await search(html, "fib"), /[1-9]/);
  draw("picture.png");
  const shown = join(folder, "png.html");
  writeFileSync(shown, `<!DOCTYPE html><img src="picture.png">`);
  const png = await visit(shown);
  await png.waitForFunction(() => document.images[0].complete);
  assert.equal(await png.evaluate(() => document.images[0].naturalWidth), 800);
  for (const page of [svg, html, png]) assert.deepEqual(page.errors, []);
});
