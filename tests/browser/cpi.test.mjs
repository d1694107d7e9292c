// The page of two counters: boxes are as wide as their cycles, and red if an instruction takes more cycles
// than on average. Sums were calculated by hand. Run by run.sh.
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { colour, drawnOf, hover, opened, search } from "./flame.mjs";

test("every view shows and colours cycles per instruction", async () => {
  const page = await opened(drawnOf(join(process.env.RECORDINGS, "../perf/cpi.txt"), ["--cpi"]));
  // 200 of cycles, and 5 of 130 of instructions without any of 200 cycles: a region as wide as 7.69.
  const at = (weight) => weight / (200 + 5 / 0.65), level = 3;
  assert.equal(await hover(page, at(60), level), "Function: chase (119,000,000 cycles, 59.50%; 20,000,000 instructions; 5.95 cycles per instruction)");
  assert.equal(await hover(page, at(140), level), "Function: mixed (40,000,000 cycles, 20.00%; 26,000,000 instructions; 1.54 cycles per instruction)");
  assert.match(await hover(page, at(203), 1), /^paths with instructions but no cycles \(3\.85% of the instructions\)/);
  const [chase, mixed, spin] = [await colour(page, at(100), level), await colour(page, at(150), level), await colour(page, at(190), level)];
  assert.ok(chase[0] > 220 && chase[2] < 60, `red: ${chase}`);
  assert.ok(mixed[0] === mixed[1] && mixed[1] === mixed[2], `grey: ${mixed}`);
  assert.ok(spin[2] > 220 && spin[0] < 80, `blue: ${spin}`);
  assert.match(await page.locator("#legend").innerText(), /6\.15 cycles per instruction, or more[^]*0\.38, or less[^]*1\.54 average/);
  assert.match(await search(page, "chase|spin"), /^Matched: 159,000,000 cycles, 79\.50%; 99,000,000 instructions; 1\.61 cycles per instruction/);
  await search(page, "");
  await page.keyboard.press("Escape");
  await page.keyboard.press("t");
  const rows = await page.locator("#table .row").evaluateAll((all) => all.map((row) => [...row.children].map((cell) => cell.textContent)));
  assert.deepEqual(rows.find(([name]) => name === "chase").slice(2), ["20,000,00015.38%", "119,000,00059.50%", "5.95"]);
  assert.match(await page.locator("#table-head").innerText(), /instructions[^]*cycles[^]*Ratio/);
  await page.keyboard.press("r");
  assert.match(await hover(page, at(60), 1, { down: true }), /5\.95 cycles per instruction/);
  await page.keyboard.press("e");
  assert.match(await page.locator("#tree-head").innerText(), /instructions[^]*cycles[^]*Ratio/);
  assert.equal(await page.locator("#views [data-view=three]").isVisible(), false);
  assert.equal(await page.locator("#widths").isVisible(), false);
  assert.deepEqual(page.errors, []);
});

test("switching the event shows the boxes of that event", async () => {
  const page = await opened(drawnOf(join(process.env.RECORDINGS, "../perf/cpi.txt"), ["--measure", "cycles,instructions"]));
  assert.deepEqual(await page.locator("#event option").allTextContents(), ["cycles (200,000,000 cycles)", "instructions (130,000,000 instructions)"]);
  assert.equal(await page.locator("#measures").isVisible(), false);
  assert.equal(await hover(page, 60 / 200, 3), "Function: chase (119,000,000 cycles, 59.50%)");
  await page.keyboard.press("v");
  assert.equal(await hover(page, 10 / 130, 3), "Function: chase (20,000,000 instructions, 15.38%)");
  // By name: chase 20, mixed 26, skipped 5, which has no cycles, spin 79; rare has no instructions.
  assert.equal(await hover(page, 48 / 130, 3), "Function: skipped (5,000,000 instructions, 3.85%)");
  assert.match(await page.evaluate(() => location.hash), /event=instructions/);
  assert.match(await search(page, "rare|skipped"), /^Matched: 3\.85% \(5,000,000 instructions/);
  assert.deepEqual(page.errors, []);
});
