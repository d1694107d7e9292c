// Pictures of `flightline flame -o x.svg`, opened as files, with script and without.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { colour, open } from "./flame.mjs";
import { flightline, folder, visit } from "./page.mjs";

// Higher than the window, and with 300 stacks of 1 that are too thin.
const deep = Array.from({ length: 80 }, (_, depth) => `level${depth}`).join(";");
const thin = Array.from({ length: 300 }, (_, at) => `thin${at} 1`).join("\n");
const folded = join(folder, "tall.txt");
writeFileSync(folded, `${deep} 9700\n${thin}\n`);

function picture(...options) {
  const file = join(folder, "tall.svg");
  execFileSync(flightline, ["flame", folded, "-o", file, "--min-width", "0.1%", ...options]);
  return file;
}

/** The visible texts, at any scroll position. */
const shown = (page) =>
  page.locator("text").evaluateAll((all) => all.filter((text) => text.getBoundingClientRect().width > 0).map((text) => text.textContent.trim()));

test("an SVG without scripts reports what it omits and has no inactive button", async () => {
  const page = await visit(picture("--title", "Tall"), "light", "", { javaScriptEnabled: false });
  const texts = await shown(page);
  for (const text of ["Tall", "level0", "level79"]) assert.ok(texts.includes(text), text);
  assert.ok(texts.some((text) => text.includes("3.0% ends in 300 hidden thin frames")), texts.join());
  for (const button of ["Search", "Reset Zoom"]) assert.ok(!texts.includes(button), button);
});

test("a tall SVG opens at its roots, and its buttons work", async () => {
  const page = await visit(picture());
  await page.waitForFunction(() => scrollY > 0);
  const inWindow = (locator) => locator.evaluate((element) => {
    const { top, bottom } = element.getBoundingClientRect();
    return top >= 0 && bottom <= innerHeight;
  });
  const root = page.locator("g", { has: page.locator("title", { hasText: /^level0 \(/ }) });
  assert.ok(await inWindow(root.locator("rect")));
  await root.hover();
  assert.match(await page.locator("#details").textContent(), /level0 \(9,700 samples, 97\.00%\)/);
  assert.ok(await inWindow(page.locator("#details")));
  assert.ok((await shown(page)).includes("Search"));
  page.on("dialog", (dialog) => dialog.accept("^level7\\b"));
  await page.locator("#search").dispatchEvent("click");
  await page.locator("#matched", { hasText: "Matched: at least 97.0%" }).waitFor();
  assert.deepEqual(page.errors, []);
});

test("an SVG with its roots at the top opens at the top", async () => {
  const page = await visit(picture("--inverted"));
  await page.waitForFunction(() => document.querySelector("#search").getBoundingClientRect().width > 0);
  await page.waitForTimeout(50);
  assert.equal(await page.evaluate(() => scrollY), 0);
});

/** The red, green and blue of the box of a function in an SVG. */
const fill = (page, name) => page.locator("g", { has: page.locator("title", { hasText: new RegExp(`^${name} \\(`) }) }).locator("rect").first()
  .evaluate((rect) => rect.getAttribute("fill").match(/\d+/g).map(Number));

test("an SVG has the colours, background and legend of the page", async () => {
  const STACKS = "A.a_[0] 1\nB.b_[j] 1\nC.c_[i] 1\nd_[k] 1\nuser 1\n\u00fcx::y_\u{1f600} 1\n", input = join(folder, "kinds.txt"), file = join(folder, "kinds.svg");
  writeFileSync(input, STACKS);
  execFileSync(flightline, ["flame", input, "-o", file]);
  const page = await open(STACKS), svg = await visit(file), names = ["A.a_\\[0\\]", "B.b", "C.c", "d", "user", "\u00fcx::y_\u{1f600}"];
  for (const [i, name] of names.entries()) {
    const seen = await colour(page, (i + 0.9) / names.length, 1), drawn = await fill(svg, name);
    assert.ok(seen.every((part, at) => Math.abs(part - drawn[at]) <= 1), `${name}: ${seen} and ${drawn}`);
  }
  assert.deepEqual(await fill(svg, "all"), await colour(page, 0.9, 0));
  const entries = async (of) => (await of.locator("#legend").textContent()).split("\u25a0").map((text) => text.trim()).filter(Boolean).join();
  assert.equal(await entries(svg), "kernel,JIT-compiled,inlined,interpreted");
  assert.equal((await page.locator("#legend span").allTextContents()).join(), await entries(svg));
  const style = (selector, name) => svg.locator(selector).evaluate((element, of) => getComputedStyle(element)[of], name);
  assert.equal(await style("#search", "opacity"), "1");
  assert.notEqual(await style("#legend", "display"), "none");
  // A search needs its place.
  svg.on("dialog", (dialog) => dialog.accept("^user"));
  await svg.locator("#search").dispatchEvent("click");
  await svg.locator("#matched", { hasText: "Matched: 16.7%" }).waitFor();
  assert.equal(await style("#legend", "display"), "none");
  assert.deepEqual([...page.errors, ...svg.errors], []);
});

test("a chart as SVG has the colours of the flame graph and a labelled axis", async () => {
  const draw = (name, ...options) => {
    const file = join(folder, name);
    execFileSync(flightline, ["flame", join(process.env.RECORDINGS, "flightline.jfr"), "-o", file, ...options]);
    return visit(file);
  };
  const [graph, chart] = [await draw("graph.svg"), await draw("chart.svg", "--flame-chart")];
  const names = new Set(await graph.locator("#frames title").allTextContents());
  const functions = [...names].map((title) => title.slice(0, title.lastIndexOf(" ("))).filter((name) => /^\w{2,}$/.test(name) && name !== "all").slice(0, 6);
  assert.ok(functions.length > 2, [...names].join());
  for (const name of functions) assert.deepEqual(await fill(chart, name), await fill(graph, name), name);
  const [about, axis] = await Promise.all([graph, chart].map((page) => page.locator("#subtitle").textContent()));
  assert.equal(axis, `${about} \u00b7 left to right: the samples of each thread in order of time`);
  assert.deepEqual([...graph.errors, ...chart.errors], []);
});
