// The HTML flame graph in a real browser: numbers compared with folded text counted here, zoom, search,
// keyboard, and no network requests. Run by run.sh, which sets FLIGHTLINE, CHROMIUM and FOLDED.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { ROW, click, hover, open, search } from "./flame.mjs";

const STACKS = "main;a;b 30\nmain;a;c 10\nmain;a 20\nmain;d;b 25\nmain;d;b;a 15\nother 100\n";

test("boxes have the position and width of their weights, with counts and percentages", async () => {
  const page = await open(STACKS);
  assert.equal(await hover(page, 0.5, 0), "all (200 samples, 100.00%)");
  // main takes the first half, its children in order of names: a 60, d 40.
  assert.equal(await hover(page, 0.25, 1), "Function: main (100 samples, 50.00%)");
  assert.equal(await hover(page, 0.29, 2), "Function: a (60 samples, 30.00%)");
  assert.equal(await hover(page, 0.31, 2), "Function: d (40 samples, 20.00%)");
  assert.equal(await hover(page, 0.14, 3), "Function: b (30 samples, 15.00%)");
  assert.equal(await hover(page, 0.75, 1), "Function: other (100 samples, 50.00%)");
  assert.deepEqual(page.errors, []);
});

test("the page makes no network requests", async () => {
  const page = await open(STACKS);
  await search(page, "a");
  await click(page, 0.25, 1);
  assert.deepEqual(page.requests.filter((url) => !url.startsWith("data:")).length, 1, String(page.requests));
  assert.match(page.requests[0], /^file:/);
  const policy = await page.locator("meta[http-equiv]").getAttribute("content");
  assert.match(policy, /default-src 'none'/);
});

test("a click zooms and keeps the ancestors; reset returns to the whole graph", async () => {
  const page = await open(STACKS);
  assert.equal(await page.locator("#reset").isVisible(), false);
  await click(page, 0.31, 2); // d
  assert.match(await hover(page, 0.02, 2), /^Function: d /);
  assert.match(await hover(page, 0.98, 2), /^Function: d /);
  assert.match(await hover(page, 0.98, 1), /^Function: main /);
  assert.match(await hover(page, 0.02, 3), /^Function: b \(40 samples, 20.00%/);
  await click(page, 0.5, 1); // the ancestor main
  assert.match(await hover(page, 0.98, 1), /^Function: main /);
  assert.match(await hover(page, 0.98, 2), /^Function: d /);
  assert.match(await hover(page, 0.02, 2), /^Function: a /);
  await page.click("#reset");
  assert.match(await hover(page, 0.98, 1), /^Function: other /);
  await click(page, 0.31, 2);
  await page.keyboard.press("0");
  assert.match(await hover(page, 0.98, 1), /^Function: other /);
  assert.equal(await page.locator("#reset").isVisible(), false);
});

test("the pointer finds the displayed box, also before the next frame is drawn", async () => {
  const page = await open(STACKS);
  const told = await page.evaluate((row) => {
    const canvas = document.getElementById("canvas"), bounds = canvas.getBoundingClientRect();
    const at = (kind, x, level) => canvas.dispatchEvent(new MouseEvent(kind, {
      clientX: bounds.left + x * bounds.width, clientY: bounds.bottom - (level + 0.5) * row, bubbles: true,
    }));
    const details = () => document.getElementById("details").textContent;
    // One task: the browser draws no frame between these.
    at("click", 0.31, 2);
    at("mousemove", 0.98, 1);
    const zoomed = details();
    document.getElementById("reset").click();
    at("mousemove", 0.98, 1);
    return [zoomed, details()];
  }, ROW);
  assert.match(told[0], /^Function: main /);
  assert.match(told[1], /^Function: other /);
});

test("boxes stay under the pointer if the reset button makes a narrow header taller", async () => {
  const page = await open(STACKS);
  for (const width of [330, 400, 470, 540]) {
    await page.setViewportSize({ width, height: 500 });
    await page.keyboard.press("0");
    await click(page, 0.31, 2); // d
    await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
    const heights = await page.evaluate(() =>
      [document.getElementById("canvas").clientHeight, document.getElementById("scroller").clientHeight]);
    assert.equal(heights[0], heights[1], `width ${width}`);
    assert.match(await hover(page, 0.98, 1), /^Function: main /, `width ${width}`);
  }
});

test("the matched percentage counts nested matches once", async () => {
  const page = await open(STACKS);
  // a below main: 60; b below d: 40 (a above it is inside); by hand 100 of 200.
  assert.equal(await search(page, "^[ab]$"), "Matched: 50.00% (100 samples, 2 functions)");
  assert.equal(await search(page, "^a$"), "Matched: 37.50% (75 samples, 1 function)"); // 60 + 15
  assert.equal(await search(page, "B"), "Matched: 0.00% (0 samples, 0 functions)");
  await page.check("#case");
  assert.equal(await page.locator("#matched").textContent(), "Matched: 35.00% (70 samples, 1 function)"); // 30 + 40
  assert.equal(await search(page, "("), "not a regular expression");
  assert.equal(await search(page, ""), "");
});

test("a search highlights exactly the matching boxes", async () => {
  const page = await open(STACKS);
  await search(page, "^other$");
  await page.waitForTimeout(100);
  const colours = await page.evaluate(() => {
    const canvas = document.getElementById("canvas"), ratio = devicePixelRatio;
    const at = (x, level) => {
      const y = canvas.height - (level + 0.5) * 17 * ratio;
      return [...canvas.getContext("2d").getImageData(x * canvas.width, y, 1, 1).data].slice(0, 3);
    };
    return { other: at(0.9, 1), main: at(0.4, 1) };
  });
  assert.deepEqual(colours.other, [230, 0, 230]);
  assert.notDeepEqual(colours.main, [230, 0, 230]);
});

test("the keyboard focuses, moves, zooms, finds the next match, inverts and switches the theme", async () => {
  const page = await open(STACKS);
  const details = () => page.locator("#details").textContent();
  await page.focus("#scroller");
  await page.keyboard.press("ArrowUp");
  assert.match(await details(), /^Function: main /);
  await page.keyboard.press("ArrowUp");
  assert.match(await details(), /^Function: a \(60/);
  await page.keyboard.press("ArrowRight");
  assert.match(await details(), /^Function: d /);
  await page.keyboard.press("ArrowLeft");
  assert.match(await details(), /^Function: a \(60/);
  await page.keyboard.press("Enter");
  assert.equal(await page.locator("#reset").isVisible(), true);
  await page.keyboard.press("Escape");
  assert.equal(await page.locator("#reset").isVisible(), false);
  await page.keyboard.press("/");
  await page.keyboard.type("^b$");
  await page.keyboard.press("Enter");
  assert.match(await details(), /^Function: b \(30/);
  await page.keyboard.press("n");
  assert.match(await details(), /^Function: b \(40/);
  await page.keyboard.press("i");
  await page.waitForTimeout(100);
  const box = await page.locator("#canvas").boundingBox();
  await page.mouse.move(box.x + 10, box.y + 0.5 * ROW);
  assert.match(await details(), /^all /);
  const dark = () => page.evaluate(() => document.documentElement.classList.contains("dark"));
  const before = await dark();
  await page.keyboard.press("d");
  assert.notEqual(await dark(), before);
});

test("the page is dark if the system theme is dark", async () => {
  const page = await open(STACKS, [], "dark");
  assert.equal(await page.evaluate(() => document.documentElement.classList.contains("dark")), true);
});

test("names that contain markup are shown as text", async () => {
  const page = await open("</script><img src=x onerror=alert(1)>;{{nodes}} 1\n");
  assert.match(await hover(page, 0.5, 1), /^Function: <\/script><img src=x onerror=alert\(1\)> \(1 sample, /);
  assert.deepEqual(page.errors, []);
});

test("the percentages of a real recording equal those of its folded text", async () => {
  const folded = readFileSync(process.env.FOLDED, "utf8");
  const page = await open(folded);
  const expression = /alloc|Monitor|^_/;
  let all = 0, hit = 0;
  for (const line of folded.trimEnd().split("\n")) {
    const at = line.lastIndexOf(" ");
    const weight = Number(line.slice(at + 1));
    all += weight;
    if (line.slice(0, at).split(";").some((frame) => expression.test(frame))) hit += weight;
  }
  const told = await search(page, expression.source);
  assert.ok(hit > 0 && hit < all);
  assert.ok(told.startsWith(`Matched: ${(100 * hit / all).toFixed(2)}% `), told);
});

test("a graph of half a million boxes is drawn and searched within the time limit", async () => {
  let state = 12345;
  const random = (n) => ((state = (Math.imul(state, 1664525) + 1013904223) >>> 0) >>> 8) % n;
  const lines = [];
  for (let i = 0; i < 100000; i++) {
    const frames = ["root"];
    for (let d = 0, depth = 6 + random(30); d < depth; d++) frames.push("f" + random(d < 4 ? 6 : 4000));
    lines.push(frames.join(";") + " " + (1 + random(9)));
  }
  const page = await open(lines.join("\n") + "\n");
  // Checks the causes of speed instead of a clock: a graph draws no more than the screen can show, and a
  // search evaluates its expression once per name. The times are printed for people.
  const cost = await page.evaluate(async () => {
    const frame = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    let drawn = 0, tested = 0;
    // A box is a run of equal pixels in a line.
    const fill = Uint32Array.prototype.fill, test = RegExp.prototype.test;
    Uint32Array.prototype.fill = function (...box) { drawn++; return fill.apply(this, box); };
    RegExp.prototype.test = function (text) { tested++; return test.call(this, text); };
    const costs = async (action) => {
      drawn = tested = 0;
      const t = performance.now();
      action();
      await frame();
      return { drawn, tested, ms: Math.round(performance.now() - t) };
    };
    const field = document.getElementById("search"), profile = JSON.parse(document.getElementById("profile").textContent);
    const view = (name) => costs(() => document.querySelector(`#views [data-view=${name}]`).click());
    return {
      boxes: profile.count,
      search: await costs(() => { field.value = "f3"; field.dispatchEvent(new Event("input")); }),
      icicle: await view("icicle"),
      reverse: await view("reverse"),
      top: await view("top"),
      tree: await view("tree"),
      sandwich: await view("sandwich"),
      elements: document.querySelectorAll(".row").length,
    };
  });
  console.log(cost);
  assert.ok(cost.boxes > 500000, `${cost.boxes} boxes`);
  // 1000 pixels of width and at most 41 rows; a box of half a pixel or a hair per pixel and row.
  const room = 41 * 1000 * 2;
  for (const { drawn } of [cost.search, cost.icicle, cost.reverse, cost.sandwich]) assert.ok(drawn > 0 && drawn <= room, `${drawn} boxes drawn`);
  // f0 to f3999 and the root.
  assert.equal(cost.search.tested, 4001);
  assert.equal(cost.icicle.tested, 0, "another view asks nothing anew");
  assert.ok(cost.elements > 0 && cost.elements < 200, `${cost.elements} rows of a list are elements`);
});
