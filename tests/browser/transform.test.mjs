// Transforms of the tree by a function: collapse, direct recursion, merge. Sums are by hand. Run by run.sh.
import assert from "node:assert/strict";
import { test } from "node:test";
import { click, details, hover, open, opened, recorded, search, settled } from "./flame.mjs";

// f calls itself; g has two callers.
const STACKS = "main;f;f;g 20\nmain;f;h 30\nmain;g 10\nidle 40\n";
const DOWN = { down: true };
const ALL = "all (100 samples, 100.00%)";
const chips = (page) => page.locator("#filters .chip").allTextContents();
/** Returns true if no box is drawn at a place. */
const isEmpty = async (page, x, level, where) => {
  await hover(page, x, level, where);
  return page.locator("#tip").isHidden();
};
/** Function, self, total of the lines of the table. */
const table = async (page) => {
  await page.keyboard.press("t");
  return page.locator("#table .row").evaluateAll((all) => all.map((row) =>
    [".name", ".self .amount", ".total .amount"].map((cell) => row.querySelector(cell).textContent).join(" ")).sort());
};

test("a collapsed function has no callees, and its self weight is its total", async () => {
  const page = await open(STACKS);
  await click(page, 0.5, 2); // f
  await page.keyboard.press("o");
  assert.deepEqual(await chips(page), ["collapsed f ×"]);
  await page.keyboard.press("0");
  assert.equal(await hover(page, 0.5, 0), ALL);
  assert.equal(await hover(page, 0.5, 2), "Function: f (50 samples, 50.00%)");
  assert.match(await page.locator("#tip").textContent(), /self 50 samples, 50\.00%/);
  assert.equal(await hover(page, 0.95, 2), "Function: g (10 samples, 10.00%)");
  assert.ok(await isEmpty(page, 0.5, 3), "nothing stands on f");
  assert.deepEqual(await table(page), ["f 50 50", "g 10 10", "idle 40 40", "main 0 60"]);
  // The other views are of the same tree.
  await page.keyboard.press("r");
  assert.equal(await hover(page, 0.1, 1, DOWN), "Function: f (50 samples, 50.00%)");
  assert.equal(await hover(page, 0.1, 2, DOWN), "Function: main (50 samples, 50.00%)");
  await page.evaluate(() => { location.hash = "#view=sandwich&fn=f&collapse=f"; });
  assert.equal(await hover(page, 0.5, 0, { canvas: "#callees canvas", down: true }), "Function: f (50 samples, 50.00%)");
  assert.ok(await isEmpty(page, 0.5, 1, { canvas: "#callees canvas", down: true }));
  assert.match(await search(page, "^h$"), /Matched: 0\.00% \(0 samples, 0 functions\)/);
  assert.deepEqual(page.errors, []);
});

test("collapsed direct recursion is one box with merged callees", async () => {
  const page = await open("main;f;f;f;g 5\nmain;f;f;g;f 7\nmain;f;g 8\nmain;f 3\nmain;f;g;f;f 2\n");
  await click(page, 0.5, 2); // f
  await page.keyboard.press("R");
  assert.deepEqual(await chips(page), ["recursion collapsed f ×"]);
  // main;f 3, main;f;g 13, main;f;g;f 9.
  assert.equal(await hover(page, 0.5, 0), "all (25 samples, 100.00%)");
  assert.equal(await hover(page, 0.5, 2), "Function: f (25 samples, 100.00%)");
  assert.match(await page.locator("#tip").textContent(), /self 3 samples, 12\.00%/);
  assert.equal(await hover(page, 0.5, 3), "Function: g (22 samples, 88.00%)");
  assert.match(await page.locator("#tip").textContent(), /self 13 samples, 52\.00%/);
  assert.equal(await hover(page, 0.1, 4), "Function: f (9 samples, 36.00%)");
  assert.deepEqual(await table(page), ["f 12 25", "g 13 22", "main 0 25"]);
  await page.locator("#table .row", { hasText: "main" }).click();
  await page.keyboard.press("R");
  assert.equal(await details(page), "main does not call itself directly. Calls through other functions (a → b → a) are not collapsed.");
  assert.deepEqual(await chips(page), ["recursion collapsed f ×"]);
  assert.deepEqual(page.errors, []);
});

test("a merged function gives its weight and callees to its callers", async () => {
  const page = await open("main;f;f;g 20\nmain;f;h 30\nmain;f 4\nmain;g;x 10\nmain;g 1\nf 5\nf;g 3\nidle 27\n");
  await click(page, 0.5, 2); // f
  await page.keyboard.press("M");
  await page.keyboard.press("0");
  assert.equal(await hover(page, 0.5, 0), ALL);
  // Without a caller, the weight of f itself (5) has no box, and its callee g is a root.
  assert.deepEqual(await table(page), ["g 24 34", "h 30 30", "idle 27 27", "main 4 65", "x 10 10"]);
  await page.keyboard.press("f");
  // In order of names: g 3, idle 27, main 65; on main g 31, h 30.
  assert.equal(await hover(page, 0.01, 1), "Function: g (3 samples, 3.00%)");
  assert.equal(await hover(page, 0.2, 1), "Function: idle (27 samples, 27.00%)");
  assert.equal(await hover(page, 0.5, 1), "Function: main (65 samples, 65.00%)");
  assert.equal(await hover(page, 0.4, 2), "Function: g (31 samples, 31.00%)");
  assert.equal(await hover(page, 0.8, 2), "Function: h (30 samples, 30.00%)");
  assert.equal(await hover(page, 0.31, 3), "Function: x (10 samples, 10.00%)");
  // The function is not there any more: nothing is current.
  await page.keyboard.press("M");
  assert.match(await details(page), /^No function is selected/);
  assert.deepEqual(page.errors, []);
});

test("transforms are in the menu, the address, the filter list and the undo history", async () => {
  const page = await open(STACKS), box = await page.locator("#canvas").boundingBox();
  const menu = async (item) => {
    await page.mouse.click(box.x + 0.5 * box.width, box.y + box.height - 2.5 * 17, { button: "right" });
    const items = await page.locator("#menu button").allTextContents();
    await page.locator("#menu button", { hasText: item }).click();
    return items.slice(-3);
  };
  assert.deepEqual(await menu("Collapse direct recursion"), ["Collapse: hide its callees", "Collapse direct recursion", "Merge into its callers"]);
  assert.equal(await page.evaluate(() => location.hash), "#recursion=f");
  assert.deepEqual(await menu("Merge"), ["Callers and callees", "Collapse: hide its callees", "Merge into its callers"]);
  assert.equal(await page.evaluate(() => location.hash), "#recursion=f&merge=f");
  assert.deepEqual(await chips(page), ["recursion collapsed f ×", "merged f ×"]);
  await settled(page);
  assert.equal(await hover(page, 0.5, 2), "Function: g (30 samples, 30.00%)");
  await page.locator("#filters .chip").first().click();
  assert.equal(await page.evaluate(() => location.hash), "#merge=f");
  await page.keyboard.press("u");
  await page.keyboard.press("u");
  assert.deepEqual(await chips(page), ["recursion collapsed f ×"]);
  await page.keyboard.press("u");
  assert.deepEqual(await chips(page), []);
  assert.equal(await hover(page, 0.5, 3), "Function: f (20 samples, 20.00%)");
  const given = await open(STACKS, [], "light", "#collapse=f&merge=nonsense");
  assert.deepEqual(await chips(given), ["collapsed f ×"]);
  await given.keyboard.press("?");
  assert.match(await given.locator("#keys").textContent(), /collapse direct recursion[^]*merge/);
  // Filters see the functions as recorded.
  const filtered = await open(STACKS, [], "light", "#in=%5Eh%24&collapse=f");
  assert.deepEqual(await table(filtered), ["f 30 30", "main 0 30"]);
  assert.deepEqual([...page.errors, ...given.errors, ...filtered.errors], []);
});

test("transforms apply to both compared profiles", async () => {
  const page = await open("main;f;g 10 20\nmain;f;h 30 30\nmain;g 60 50\n", [], "light", "#collapse=f&widths=after");
  assert.match(await hover(page, 0.2, 2), /^Function: f .*40.*50/);
  assert.ok(await isEmpty(page, 0.2, 3));
  assert.deepEqual(page.errors, []);
});

test("heat map and chart show the transformed stacks with an unchanged total", async () => {
  const page = await opened(recorded("ap-java-cpu.jfr"), "light", "#view=top");
  const names = (await page.locator("#table .row .name").allTextContents()).slice(0, 6), all = await page.locator("#details").textContent();
  const show = async (parts) => {
    await page.evaluate((hash) => { location.hash = hash; }, new URLSearchParams(parts).toString());
    await settled(page);
  };
  assert.match(all, /^all \(/);
  for (const kind of ["collapse", "recursion", "merge"]) {
    for (const name of names) {
      await show({ view: "flame", [kind]: name });
      assert.equal((await chips(page)).length, 1);
      assert.equal(await hover(page, 0.5, 0), all, `${kind} ${name}`);
    }
  }
  const found = `^${names[0].replace(/[\\^$.*+?()[\]{}|]/g, "\\$&")}$`, heat = () => page.evaluate(() => document.querySelector("#heat-map").toDataURL());
  const seen = [];
  for (const more of [{}, { q: found }, { q: found, collapse: names[0] }, { q: found, merge: names[0] }]) {
    await show({ heat: 1, ...more });
    seen.push(await heat());
  }
  const [plain, marked, collapsed, merged] = seen;
  assert.notEqual(marked, plain);
  assert.equal(collapsed, marked);
  assert.equal(merged, plain);
  const chart = () => page.evaluate(() => document.querySelector("#chart-canvas").toDataURL());
  await show({ view: "chart" });
  const whole = await chart();
  await show({ view: "chart", merge: names[0] });
  assert.notEqual(await chart(), whole);
  assert.deepEqual(page.errors, []);
});
