// The graphs of before, after and the difference: an action in one applies to all. Sums were calculated by
// hand. Run by run.sh.
import assert from "node:assert/strict";
import { test } from "node:test";
import { compared } from "./compared.mjs";
import { click, colour, details, hover, opened, picture, search, settled } from "./flame.mjs";

const PANES = ["before", "after", "change"], [BEFORE, AFTER, CHANGE] = PANES.map((which) => ({ canvas: `#linked-${which} canvas` }));
const titles = (page) => page.locator("#three h2").allTextContents();
/** The frames of a pane: left and right in parts of its width, level from the bottom, and whether it is
 * the same box. */
const framed = (page, which) => page.evaluate((which) => {
  const scroller = document.getElementById("linked-" + which), { width, bottom } = scroller.querySelector("canvas").getBoundingClientRect();
  const left = scroller.getBoundingClientRect().left;
  return [...scroller.querySelectorAll(".light:not([hidden])")].map((frame) => {
    const box = frame.getBoundingClientRect();
    return { from: (box.left - left) / width, to: (box.right - left) / width, level: Math.round((bottom - box.bottom) / 17), same: frame.classList.contains("same") };
  });
}, which);
const near = (is, want) => assert.ok(Math.abs(is - want) < 0.005, `${is}, not ${want}`);

test("three linked graphs have one scale and share pointer, keys, zoom, search and scrolling", async () => {
  const page = await opened(compared(["--no-normalize"]));
  await page.keyboard.press("3");
  await settled(page);
  assert.deepEqual(await titles(page), ["Before: 1,000 samples", "After: 1,390 samples", "Difference: +440 samples, −50 samples"]);
  // Before: gone 50, root 950 of 1390; difference: gone 50, root fresh 40 and parent 400 of 490.
  assert.match(await hover(page, 25 / 1390, 2, BEFORE), /^Function: leaf \(50 → 0 samples, −50;/);
  assert.match(await hover(page, 100 / 1390, 3, BEFORE), /^Function: a /);
  const [inAfter] = await framed(page, "after"), [inChange] = await framed(page, "change");
  assert.ok(inAfter.same && inChange.same);
  assert.equal(inAfter.level, 3);
  near(inAfter.from, 40 / 1390);
  near(inAfter.to, 340 / 1390);
  near(inChange.from, 90 / 490);
  near(inChange.to, 290 / 490);
  // A function that only one graph has is framed only there.
  await hover(page, 30 / 1390, 2, AFTER);
  assert.match(await details(page), /^Function: fresh \(0 → 40 samples/);
  assert.deepEqual([(await framed(page, "before")).length, (await framed(page, "change")).length], [0, 1]);
  const [more, less] = [await colour(page, 300 / 490, 2, CHANGE), await colour(page, 10 / 490, 2, CHANGE)];
  assert.ok(more[0] > more[2] + 40 && less[2] > less[0] + 40, `${more} is red, ${less} blue`);
  assert.deepEqual(await colour(page, 140 / 1390, 3, BEFORE), await colour(page, 330 / 1390, 3, AFTER), "the same name has the same colour");

  assert.match(await search(page, "^[ab]$"), /^Matched: 200 → 600 samples/);
  assert.deepEqual((await titles(page)).slice(0, 2), ["Before: 1,000 samples · matched 20.00%", "After: 1,390 samples · matched 60.00%"]);
  for (const [at, pane] of [[145 / 1390, BEFORE], [335 / 1390, AFTER], [285 / 490, CHANGE]]) assert.deepEqual(await colour(page, at, 3, pane), [230, 0, 230]);
  await search(page, "");

  // By width all three have the same order, that of the sum of their weights: root before gone, and in it
  // same before parent.
  await page.focus("#linked-after");
  await page.keyboard.press("w");
  for (const [at, pane] of [[100 / 1390, BEFORE], [100 / 1390, AFTER]]) assert.match(await hover(page, at, 2, pane), /^Function: same /);
  assert.match(await hover(page, 970 / 1390, 1, BEFORE), /^Function: gone /);
  assert.match(await hover(page, 200 / 490, 2, CHANGE), /^Function: parent /);
  assert.match(await hover(page, 470 / 490, 1, CHANGE), /^Function: gone /);
  await page.keyboard.press("w");

  const unzoomed = await picture(page, AFTER.canvas);
  await click(page, 300 / 490, 2, CHANGE);
  await settled(page);
  assert.match(await page.evaluate(() => location.hash), /view=three.*zoom=root%3Bparent/);
  assert.deepEqual((await titles(page)).slice(0, 2), ["Before: 1,000 samples · parent 20.00%", "After: 1,390 samples · parent 60.00%"]);
  for (const pane of [BEFORE, AFTER, CHANGE]) assert.match(await hover(page, 0.9, 3, pane), /^Function: b /);
  await page.keyboard.press("0");
  assert.equal(await picture(page, AFTER.canvas), unzoomed);
  await click(page, 25 / 1390, 2, BEFORE);
  assert.equal((await titles(page))[1], "After: 1,390 samples · leaf is not in this graph");
  await page.keyboard.press("u");

  // By keys: the current box is framed in the others.
  await page.focus("#linked-after");
  for (const key of ["ArrowUp", "ArrowUp", "ArrowRight", "ArrowUp"]) await page.keyboard.press(key);
  assert.match(await details(page), /^Function: a \(100 → 300 samples/);
  assert.ok((await framed(page, "before"))[0].same);
  await page.keyboard.press("Enter");
  assert.match((await titles(page))[0], /· a 10\.00%$/);
  const labels = await page.locator("#three .pane").evaluateAll((all) => all.map((one) => one.getAttribute("aria-label")));
  assert.match(labels[0], /^Before: 1,000 samples · a 10\.00%\. Arrow keys/);
  assert.deepEqual(page.errors, []);
});

test("boxes of one name are framed in all graphs, deep graphs scroll together, and one profile has no linked graphs", async () => {
  const deep = Array.from({ length: 60 }, (_, i) => `f${i}`).join(";");
  const page = await opened(compared([], `${deep} 100\nx;f1 50\n`, `${deep} 150\nx;f1 50\n`), "dark", "#view=three");
  await page.evaluate(() => { document.getElementById("linked-before").scrollTop = 1e6; });
  await page.waitForFunction(() => new Set([...document.querySelectorAll("#three .pane")].map((one) => one.scrollTop)).size === 1);
  await hover(page, 0.9, 2, BEFORE);
  assert.match(await details(page), /^Function: f1 /);
  assert.deepEqual((await framed(page, "after")).map(({ level, same }) => [level, same]), [[2, false], [2, true]]);
  await page.setViewportSize({ width: 360, height: 640 });
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth) <= 360);
  assert.deepEqual(page.errors, []);
  // All open at the level where stacks part, and stay there.
  const common = await opened(compared([], `${deep};a;${deep} 60\n${deep};b 40\n`, `${deep};a;${deep} 50\n${deep};b 50\n`), "light", "#view=three");
  for (let i = 0; i < 3; i++) await settled(common);
  for (const pane of [BEFORE, AFTER, CHANGE]) assert.match(await hover(common, 0.9, 0, pane), /^Function: f58 /, pane.canvas);
  const single = await opened(compared.alone(), "light", "#view=three");
  assert.equal(await single.locator("#three").isVisible(), false);
  assert.equal(await single.locator("#views [data-view=three]").isVisible(), false);
  await single.keyboard.press("3");
  assert.match(await details(single), /^There is nothing to compare/);
  assert.deepEqual(single.errors, []);
});
