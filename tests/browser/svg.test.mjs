// Pictures of `flightline flame -o x.svg`, opened as files, with script and without.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
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

/** The texts to be seen, wherever they are scrolled to. */
const shown = (page) =>
  page.locator("text").evaluateAll((all) => all.filter((text) => text.getBoundingClientRect().width > 0).map((text) => text.textContent.trim()));

test("an SVG without script tells what is left out, and has no dead button", async () => {
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

test("an SVG with its roots at the top opens there", async () => {
  const page = await visit(picture("--inverted"));
  await page.waitForFunction(() => document.querySelector("#search").getBoundingClientRect().width > 0);
  await page.waitForTimeout(50);
  assert.equal(await page.evaluate(() => scrollY), 0);
});
