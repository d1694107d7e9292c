// The page of a difference: both weights of every box, the red and the blue boxes, and vanished stacks. Sums
// were calculated by hand. Run by run.sh.
import assert from "node:assert/strict";
import { test } from "node:test";
import { compared } from "./compared.mjs";
import { click, colour, details, hover, opened, search, settled } from "./flame.mjs";

const DOWN = { down: true };

const isGrey = ([red, green, blue]) => red === green && green === blue;
const rows = (page) => page.locator("#table .row").evaluateAll((all) => all.map((row) => [...row.children].map((cell) => cell.textContent)));

test("a box shows both weights and the change: red for more, blue for less, vanished paths to the right", async () => {
  const page = await opened(compared(["--no-normalize"]));
  // 1390 after, and 50 that exist only before.
  const at = (weight) => weight / 1440;
  assert.equal(await hover(page, 0.5, 0), "all (1,000 → 1,390 samples, +390; 100.00% → 139.00%, +39.00 points)");
  assert.equal(await hover(page, at(340), 2), "Function: parent (200 → 600 samples, +400; 20.00% → 60.00%, +40.00 points)");
  assert.equal(await hover(page, at(1000), 2), "Function: same (750 → 750 samples, +0; 75.00% → 75.00%, +0.00 points)");
  assert.equal(await hover(page, at(1415), 1), "paths only in the first profile (50 samples, 5.00%)");
  assert.equal(await hover(page, at(1415), 3), "Function: leaf (50 → 0 samples, −50; 5.00% → 0.00%, −5.00 points)");
  const parent = await colour(page, at(600), 2), a = await colour(page, at(300), 3), leaf = await colour(page, at(1435), 3);
  assert.ok(parent[0] > 200 && parent[2] < 60, `red: ${parent}`);
  assert.ok(a[0] > a[2] && a[2] > parent[2], `a smaller change is paler: ${a}`);
  assert.ok(leaf[2] > leaf[0] + 40, `blue: ${leaf}`);
  assert.ok(isGrey(await colour(page, at(1200), 2)), "no change");
  // A box of the region is selected by its address.
  await click(page, at(1415), 3);
  const again = await opened(page.url().replace("file://", "").replace(/#.*/, ""), "light", await page.evaluate(() => location.hash));
  assert.match(await hover(again, 0.02, 3), /^Function: leaf /);
  await page.keyboard.press("0");
  await page.selectOption("#by", "self");
  assert.ok(isGrey(await colour(page, at(600), 2)), "parent itself did nothing");
  await page.selectOption("#palette", "change-safe");
  const orange = await colour(page, at(300), 3), purple = await colour(page, at(1435), 3);
  assert.ok(orange[0] > 220 && orange[1] > 80 && orange[2] < 20, `orange: ${orange}`);
  assert.ok(purple[2] > purple[1] && purple[0] > purple[1], `purple: ${purple}`);
  assert.match(await page.locator("#legend").innerText(), /more[^]*less[^]*noise/);
  // With the widths of before, new boxes are separate; with the larger of both, all are in place.
  await page.selectOption("#widths", "before");
  assert.match(await hover(page, 1020 / 1040, 1), /^paths only in the second profile \(40 samples/);
  assert.match(await hover(page, 100 / 1040, 2), /^Function: parent \(200 → 600/);
  await page.selectOption("#widths", "larger");
  assert.match(await hover(page, 25 / 1440, 2), /^Function: leaf \(50 → 0/);
  assert.match(await page.evaluate(() => location.hash), /widths=larger/);
  assert.deepEqual(page.errors, []);
});

test("with normalised weights a doubled profile shows no change, and noise is grey", async () => {
  const page = await opened(compared([], "f;a 100\nf;b 100\n", "f;a 210\nf;b 190\n"));
  assert.equal(await hover(page, 0.2, 2), "Function: a (200 → 210 samples, +10; 50.00% → 52.50%, +2.50 points; may be noise)");
  assert.ok(isGrey(await colour(page, 0.45, 2)));
  assert.match(await page.locator("#tip").textContent(), /before as recorded 100 samples, times 2\.000/);
});

test("table, tree, reverse and sandwich show changes; search and filters count both profiles", async () => {
  const page = await opened(compared(["--no-normalize"]));
  assert.equal(await search(page, "^[ab]$"), "Matched: 200 → 600 samples, +400; 20.00% → 60.00%, +40.00 points (2 functions)");
  await search(page, "");
  await page.keyboard.press("Escape");
  await page.keyboard.press("t");
  const table = await rows(page);
  // root changed by 440, which may be as random as parent's 400.
  assert.deepEqual(table.map(([name]) => name), ["root", "parent", "a", "b", "leaf", "gone", "fresh", "same"]);
  assert.deepEqual(table[1].slice(2), ["20020.00%", "60060.00%", "+40.00"]);
  await page.selectOption("#by", "self");
  assert.deepEqual((await rows(page)).slice(0, 3).map(([name, , , , change]) => [name, change]), [["a", "+20.00"], ["b", "+20.00"], ["leaf", "−5.00"]]);
  await page.locator("#table .row", { hasText: "leaf" }).click();
  assert.match(await details(page), /^Function: leaf \(total 50 → 0 samples, −50; .*self 50 → 0 samples/);
  await page.keyboard.press("s");
  assert.match(await hover(page, 0.5, 1, { canvas: "#callers canvas" }), /^Function: gone \(50 → 0 samples, −50;/);
  await page.keyboard.press("r");
  assert.match(await hover(page, 100 / 1440, 1, DOWN), /^Function: a \(100 → 300 samples, \+200; 10\.00% → 30\.00%/);
  assert.match(await hover(page, 100 / 1440, 2, DOWN), /^Function: parent \(100 → 300 samples/);
  await page.keyboard.press("e");
  const lines = await page.locator("#outline .row").evaluateAll((all) => all.map((row) => [...row.children].map((cell) => cell.textContent.replace(/[▸▾]/, "")).join("|")));
  assert.equal(lines[0], "95.00%|139.00%|+44.00|root");
  assert.equal(lines.at(-1), "5.00%|0.00%|−5.00|gone");
  await search(page, "parent");
  await page.click("#keep");
  assert.match(await page.locator("#filters").textContent(), /200 → 600 samples, \+400/);
  await page.keyboard.press("f");
  await click(page, 0.2, 3);
  await settled(page);
  assert.match(await hover(page, 0.9, 3), /^Function: a \(100 → 300 samples, \+200; 10\.00% → 30\.00%/);
  assert.deepEqual(page.errors, []);
});

test("the tree opens at the largest weight, even if it changed less", async () => {
  const page = await opened(compared([], "main;work 90\nother 8\nstart;x 2\n", "main;work 85\nother 3\nstart;x 12\n"), "light", "#view=tree");
  const names = await page.locator("#outline .row .name").evaluateAll((all) => all.map((name) => name.textContent));
  assert.deepEqual(names, ["▸start", "▾main", "work", "other"]);
});

test("a comparison works in dark mode and a narrow window without network requests", async () => {
  const page = await opened(compared(), "dark");
  const same = await colour(page, 0.7, 2);
  assert.ok(same[0] < 130, `changes fade into the dark: ${same}`);
  for (const view of ["flame", "top", "tree", "sandwich"]) {
    await page.setViewportSize({ width: 360, height: 640 });
    await page.click(`#views [data-view=${view}]`);
    const [wide, height] = await page.evaluate(() => [document.documentElement.scrollWidth, document.querySelector("main").clientHeight]);
    assert.ok(wide <= 360 && height > 280, `${view}: ${wide} wide, ${height} high`);
  }
  assert.equal(page.requests.filter((url) => !url.startsWith("data:")).length, 1, String(page.requests));
  assert.deepEqual(page.errors, []);
});
