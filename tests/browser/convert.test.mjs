// Opens the output of `flightline convert` in the tools that it is for: speedscope's own page and
// d3-flame-graph.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { firefox, source, speedscope } from "./foreign.mjs";
import { flightline, folder, visit } from "./page.mjs";

const recorded = process.env.FOLDED;
const recording = join(process.env.RECORDINGS, "ap-java-cpu.jfr");
const total = readFileSync(recorded, "utf8").trim().split("\n").reduce((sum, line) => sum + Number(line.split(" ").pop()), 0);

function convert(format) {
  const file = join(folder, `${format}.json`);
  execFileSync(flightline, ["convert", recorded, "--format", format, "-o", file]);
  return readFileSync(file);
}

test("speedscope shows the functions of a converted profile", async () => {
  const page = await speedscope("converted.speedscope.json", convert("speedscope"));
  // Its flame graphs are drawn on a canvas; the table of the sandwich is text.
  await page.getByText("Sandwich").click({ timeout: 30_000 });
  await page.getByText("Work.fib").first().waitFor({ timeout: 30_000 });
  const text = await page.evaluate(() => document.body.innerText);
  const row = (function_) => text.split("\n").findIndex((line) => line.trim() === function_);
  assert.ok(row("Work.fib") > 0, text.slice(0, 2000));
  assert.deepEqual(page.errors, []);
});

test("speedscope finds every thread in Chrome trace events", async () => {
  const file = join(folder, "trace.json");
  execFileSync(flightline, ["convert", recording, "--format", "chrome", "-o", file]);
  const page = await speedscope("trace.json", readFileSync(file));
  await page.getByText("Sandwich").click({ timeout: 30_000 });
  await page.getByText(/\(\d+\/11\)/).first().waitFor({ timeout: 30_000 });
  assert.deepEqual(page.errors, []);
});

test("Firefox Profiler finds each thread and the self time of its functions", async () => {
  const file = join(folder, "firefox.json");
  execFileSync(flightline, ["convert", recording, "--format", "firefox", "-o", file]);
  await firefox("own", file, async (profiler) => {
    const found = new Map(), { threads } = JSON.parse(await profiler("thread", "list", "--json"));
    await Promise.all(threads.map(async ({ threadHandle, tid }) => {
      const { functions, weightType } = JSON.parse(await profiler("thread", "functions", "--thread", threadHandle, "--limit", "0", "--include-idle", "--json"));
      assert.equal(weightType, "samples");
      for (const { name, selfSamples } of functions) if (selfSamples > 0) found.set(`${tid} ${name}`, selfSamples);
    }));
    const want = new Map(), folded = execFileSync(flightline, ["fold", recording, "--threads"], { encoding: "utf8" });
    for (const line of folded.trimEnd().split("\n")) {
      const at = line.lastIndexOf(" "), frames = line.slice(0, at).split(";"), key = `${/tid=(\d+)\]$/.exec(frames[0])[1]} ${frames.at(-1)}`;
      want.set(key, (want.get(key) ?? 0) + Number(line.slice(at + 1)));
    }
    assert.ok(want.size > 100 && [...want.keys()].some((key) => key.endsWith(" Work.fib")));
    assert.deepEqual([...found].sort(), [...want].sort());
  });
});

test("d3-flame-graph draws every frame", async () => {
  const file = join(folder, "d3.html");
  // Its dependencies, each before those that need it.
  const parts = ["selection", "dispatch", "timer", "color", "interpolate", "ease", "transition", "array", "format", "hierarchy",
    "time", "time-format", "scale"];
  writeFileSync(
    file,
    `<!DOCTYPE html><meta charset="utf-8"><div id="chart"></div>
     ${parts.map((part) => source(`d3-${part}/dist/d3-${part}.min.js`)).join("")}
     ${source("d3-flame-graph/dist/d3-flamegraph.umd.min.js")}
     <script type="application/json" id="data">${convert("d3").toString().replaceAll("<", "\\u003c")}</script>
     <script>
       const data = JSON.parse(document.getElementById("data").textContent);
       const chart = (flamegraph.default ?? flamegraph)().width(900);
       d3.select("#chart").datum(data).call(chart);
     </script>`,
  );
  const page = await visit(file);
  await page.locator("g.frame").first().waitFor({ timeout: 30_000 });
  // Boxes grow to their widths in an animation.
  await page.waitForFunction(() => document.querySelector("g.frame rect").getBoundingClientRect().width > 899, undefined, { timeout: 30_000 });
  const boxes = await page.evaluate(() =>
    [...document.querySelectorAll("g.frame")].map((box) => ({
      name: box.__data__.data.name, value: box.__data__.value, width: box.querySelector("rect").getBoundingClientRect().width,
    })));
  const [root] = boxes.filter((box) => box.name === "root");
  assert.equal(root.value, total);
  assert.equal(Math.round(root.width), 900);
  const folded = readFileSync(recorded, "utf8").trim().split("\n");
  const first = boxes.find((box) => box.name === folded[0].split(";")[0].replace(/ \d+$/, ""));
  const want = folded.filter((line) => line.split(/;| \d+$/)[0] === first.name).reduce((sum, line) => sum + Number(line.split(" ").pop()), 0);
  assert.equal(first.value, want);
  assert.deepEqual(page.errors, []);
});

test("a PNG equals the browser's rendering of the SVG", () => {
  const file = join(folder, "flame.png");
  execFileSync(flightline, ["flame", recorded, "-o", file, "--width", "800", "--frame-height", "12"]);
  const picture = readFileSync(file);
  assert.equal(picture.subarray(1, 4).toString(), "PNG");
  assert.equal(picture.readUInt32BE(16), 800);
  assert.ok(picture.length > 5_000, "an empty page is smaller");
});
