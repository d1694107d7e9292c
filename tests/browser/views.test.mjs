// The views of a flame graph's page on one data set: reverse, sandwich, table, tree; filters, address,
// colours, keys, narrow and printed. Sums were calculated by hand. Run by run.sh.
import assert from "node:assert/strict";
import { test } from "node:test";
import { click, colour, details, drawn, hover, open, opened, picture, recorded, search, settled, sum } from "./flame.mjs";

// f calls itself; g has two callers.
const STACKS = "main;f;f;g 20\nmain;f;h 30\nmain;g 10\nidle 40\n";
const DOWN = { down: true };
const rows = (page, list) => page.locator(`${list} .row`).evaluateAll((all) => all.map((row) =>
  [...row.children].map((cell) => [...cell.childNodes].map((part) => part.textContent).filter(Boolean).join(" "))));

test("the reverse view merges stacks from the leaf", async () => {
  const page = await open(STACKS);
  await page.keyboard.press("r");
  // Leaves by name: g 30, h 30, idle 40; on g its callers f 20 and main 10.
  assert.equal(await hover(page, 0.15, 1, DOWN), "Function: g (30 samples, 30.00%)");
  assert.equal(await hover(page, 0.45, 1, DOWN), "Function: h (30 samples, 30.00%)");
  assert.equal(await hover(page, 0.9, 1, DOWN), "Function: idle (40 samples, 40.00%)");
  assert.equal(await hover(page, 0.1, 2, DOWN), "Function: f (20 samples, 20.00%)");
  assert.equal(await hover(page, 0.25, 2, DOWN), "Function: main (10 samples, 10.00%)");
  assert.equal(await hover(page, 0.1, 4, DOWN), "Function: main (20 samples, 20.00%)");
  await click(page, 0.1, 2, DOWN);
  assert.equal(await hover(page, 0.95, 3, DOWN), "Function: f (20 samples, 20.00%)");
  await page.keyboard.press("i");
  assert.equal(await hover(page, 0.95, 0), "all (100 samples, 100.00%)");
  await page.keyboard.press("f");
  assert.equal(await hover(page, 0.9, 1), "Function: main (60 samples, 60.00%)");
  assert.deepEqual(page.errors, []);
});

test("the sandwich view has the function's total above and below, with recursion counted once", async () => {
  const page = await open(STACKS);
  await click(page, 0.5, 2); // f
  await page.keyboard.press("s");
  assert.equal(await page.locator("#middle").textContent(), "f");
  const up = { canvas: "#callers canvas" }, down = { canvas: "#callees canvas", down: true };
  assert.equal(await hover(page, 0.5, 0, up), "Function: f (50 samples, 50.00%)");
  assert.equal(await hover(page, 0.5, 1, up), "Function: main (50 samples, 50.00%)");
  assert.equal(await hover(page, 0.5, 0, down), "Function: f (50 samples, 50.00%)");
  assert.equal(await hover(page, 0.2, 1, down), "Function: f (20 samples, 20.00%)");
  assert.equal(await hover(page, 0.2, 2, down), "Function: g (20 samples, 20.00%)");
  assert.equal(await hover(page, 0.8, 1, down), "Function: h (30 samples, 30.00%)");
  // Another function by its row in the adjacent table.
  await page.locator("#table .row", { hasText: "g" }).click();
  assert.equal(await page.locator("#middle").textContent(), "g");
  assert.equal(await hover(page, 0.3, 1, up), "Function: f (20 samples, 20.00%)");
  assert.equal(await hover(page, 0.9, 1, up), "Function: main (10 samples, 10.00%)");
  assert.deepEqual(page.errors, []);
});

test("the function table shows self and total, sorts by the clicked column, and works with screen readers", async () => {
  const page = await open(STACKS);
  await page.keyboard.press("t");
  assert.deepEqual(await rows(page, "#table"), [
    ["idle", "", "40 40.00%", "40 40.00%"], ["g", "", "30 30.00%", "30 30.00%"], ["h", "", "30 30.00%", "30 30.00%"],
    ["main", "", "0 0.00%", "60 60.00%"], ["f", "", "0 0.00%", "50 50.00%"],
  ]);
  await page.locator("#table-head .total").click();
  assert.deepEqual((await rows(page, "#table")).map(([name]) => name), ["main", "f", "idle", "g", "h"]);
  assert.equal(await page.locator("#table-head .total").getAttribute("aria-sort"), "descending");
  await page.locator("#table-head .name").click();
  assert.deepEqual((await rows(page, "#table")).map(([name]) => name), ["f", "g", "h", "idle", "main"]);
  await page.focus("#table");
  await page.keyboard.press("ArrowDown");
  assert.equal(await details(page), "Function: f (self 0 samples, 0.00%; total 50 samples, 50.00%)");
  await search(page, "^[gh]$");
  assert.deepEqual((await rows(page, "#table")).map(([name]) => name), ["g", "h"]);
});

test("the indented tree has the numbers of the boxes, and keys open and close it", async () => {
  const page = await open(STACKS);
  await page.keyboard.press("e");
  const lines = async () => (await rows(page, "#outline")).map(([part, amount, own, name]) => [part, amount, own, name.replace(/[▸▾] ?/, "")].join("|"));
  await page.keyboard.press("Home");
  assert.equal(await details(page), "Function: main (60 samples, 60.00%)");
  await page.keyboard.press("ArrowLeft");
  assert.deepEqual(await lines(), ["60.00%|60||main", "40.00%|40|40.00%|idle"]);
  await page.keyboard.press("*");
  assert.deepEqual(await lines(), [
    "60.00%|60||main", "50.00%|50||f", "30.00%|30|30.00%|h", "20.00%|20||f", "20.00%|20|20.00%|g", "10.00%|10|10.00%|g", "40.00%|40|40.00%|idle",
  ]);
  const item = page.locator("#outline .row.current");
  const grounds = await page.locator("#outline .row").evaluateAll((all) => all.map((row) => getComputedStyle(row).backgroundColor));
  assert.equal(grounds.filter((ground) => ground !== "rgba(0, 0, 0, 0)").length, 1, "only the current line stands out, not all that are open");
  assert.deepEqual([await item.getAttribute("role"), await item.getAttribute("aria-level"), await item.getAttribute("aria-expanded")], ["treeitem", "1", "true"]);
  await search(page, "^h$");
  await page.keyboard.press("Enter");
  assert.equal(await details(page), "Function: h (30 samples, 30.00%)");
});

const DEEP = Array.from({ length: 90 }, (_, i) => `level_${i}`).join(";");

test("deeply indented names are readable, also in a narrow window", async () => {
  const page = await open(`${DEEP} 3\n`);
  for (const width of [360, 1000]) {
    await page.setViewportSize({ width, height: 640 });
    await page.click("#views [data-view=tree]");
    await page.focus("#outline");
    await page.keyboard.press("*");
    await page.keyboard.press("End");
    await settled(page);
    const room = await page.locator("#outline .row.current").evaluate((row) => {
      const { paddingLeft } = getComputedStyle(row.lastChild);
      return row.lastChild.clientWidth - parseFloat(paddingLeft);
    });
    assert.ok(room > 100, `${room} px in a window of ${width}`);
  }
  assert.match(await details(page), /^Function: level_[5-8]\d /);
});

test("a graph taller than the window keeps its lowest row when the window is resized", async () => {
  const page = await open(`one;two;three;${DEEP} 50\none;two;three;other 50\n`);
  const keeps = async (lowest) => {
    for (const height of [700, 450, 900, 600]) {
      await page.setViewportSize({ width: 1000, height });
      await settled(page);
      assert.match(await hover(page, 0.5, 0), lowest, `${height} px high`);
    }
  };
  await keeps(/^all /);
  // Two rows of 17 px up.
  await page.evaluate(() => { document.getElementById("scroller").scrollTop -= 34; });
  await settled(page);
  await keeps(/^Function: two /);
});

test("keep and drop select whole stacks, combine, and can be undone and redone", async () => {
  const page = await open(STACKS);
  assert.equal(await search(page, "^g$"), "Matched: 30.00% (30 samples, 1 function)");
  await page.click("#keep");
  assert.equal(await hover(page, 0.5, 0), "all (30 samples, 100.00%)");
  assert.equal(await hover(page, 0.5, 1), "Function: main (30 samples, 100.00%)");
  assert.equal(await hover(page, 0.1, 2), "Function: f (20 samples, 66.67%)");
  assert.match(await page.locator("#filters").textContent(), /only \^g\$.*30\.00% of 100 samples/);
  await search(page, "^f$");
  await page.click("#drop");
  assert.equal(await hover(page, 0.5, 2), "Function: g (10 samples, 100.00%)");
  await page.click("#undo");
  await page.click("#undo");
  assert.equal(await hover(page, 0.5, 0), "all (30 samples, 100.00%)");
  await page.keyboard.press("Control+Shift+Z");
  await page.keyboard.press("Control+Shift+Z");
  assert.equal(await hover(page, 0.5, 0), "all (10 samples, 100.00%)");
  await page.locator(".chip", { hasText: "only ^g$" }).click();
  // Without f: idle 40, main;g 10.
  assert.equal(await hover(page, 0.5, 0), "all (50 samples, 100.00%)");
  await page.locator(".chip").click();
  assert.equal(await hover(page, 0.5, 0), "all (100 samples, 100.00%)");
});

test("the address restores view, zoom, search and filters for any names", async () => {
  const file = drawn("main;a\\b;x y & z#1;deep 3\nmain;a\\b;other 2\nmain;dropped 5\n");
  const page = await opened(file);
  await search(page, "dropped");
  await page.click("#drop");
  await page.keyboard.press("i");
  await click(page, 0.9, 3, DOWN); // x y & z#1
  await search(page, "DEEP");
  await page.check("#case");
  await page.selectOption("#palette", "name");
  await page.mouse.move(0, 0);
  const hash = await page.evaluate(() => location.hash), before = await picture(page);
  const again = await opened(file, "light", hash);
  assert.equal(await again.locator("#matched").textContent(), "Matched: 60.00% (3 samples, 1 function)");
  assert.equal(await again.locator("#reset").isVisible(), true);
  assert.equal(await again.locator("#views [data-view=icicle]").getAttribute("aria-selected"), "true");
  assert.equal(await hover(again, 0.05, 3, DOWN), "Function: x y & z#1 (3 samples, 60.00%)");
  await again.mouse.move(0, 0);
  assert.equal(await picture(again), before);
  // An invalid address shows the default page.
  const odd = await opened(file, "light", "#view=no&zoom=;;a&in=(&palette=x&measure=y&sort=z&q=(");
  assert.equal(await hover(odd, 0.5, 0), "all (10 samples, 100.00%)");
  assert.deepEqual([...page.errors, ...again.errors, ...odd.errors], []);
});

test("reset restores the initial graph, and a zoomed box has faded callers", async () => {
  const page = await open(STACKS);
  await page.mouse.move(0, 0);
  const start = await picture(page), main = await colour(page, 0.97, 1);
  await click(page, 0.5, 2);
  await page.mouse.move(0, 0);
  const faded = await colour(page, 0.97, 1);
  assert.notDeepEqual(faded, main);
  // Half of the colour on white.
  faded.forEach((part, i) => assert.ok(Math.abs(part - (main[i] + 255) / 2) <= 2, `${faded} of ${main}`));
  await page.click("#reset");
  await page.mouse.move(0, 0);
  await page.evaluate(() => document.activeElement.blur());
  assert.equal(await picture(page), start);
});

test("matches too thin to draw are on the overview strip, and the next match is shown with its number", async () => {
  const page = await open("main;wide 100000\nmain;zthin;needle 1\nmain;zthin;other 1\n");
  assert.equal(await search(page, "needle"), "Matched: 0.00% (1 sample, 1 function)");
  const strip = () => page.evaluate(() => {
    const map = document.getElementById("map"), { data } = map.getContext("2d").getImageData(0, map.height / 2, map.width, 1);
    return Array.from({ length: map.width }, (_, x) => x).filter((x) => data[4 * x] === 230 && data[4 * x + 1] === 0 && data[4 * x + 2] === 230);
  });
  const width = await page.evaluate(() => document.getElementById("map").width);
  assert.deepEqual(await strip(), [width - 1]);
  await page.keyboard.press("Enter");
  assert.equal(await details(page), "Function: needle (1 sample, 0.00%)");
  assert.match(await page.locator("#matched").textContent(), / · 1 \/ 1$/);
  await page.keyboard.press("Enter"); // zooms to it
  await settled(page);
  assert.deepEqual(await colour(page, 0.9, 3), [230, 0, 230]);
});

test("a name has the same colour in every graph; chain delimiters are grey, wakers have another colour", async () => {
  const one = await open("main;f 1\n"), two = await open("other;main;f 3\nmain;f 1\nz 5\n");
  for (const palette of ["kind", "hot", "name", "io", "mem", "wakeup"]) {
    await one.selectOption("#palette", palette);
    await two.selectOption("#palette", palette);
    assert.deepEqual(await colour(one, 0.9, 2), await colour(two, 0.09, 2), palette);
  }
  const chain = await open("wait;same;-;--;same 4\n");
  await chain.selectOption("#palette", "chain");
  assert.deepEqual([await colour(chain, 0.9, 3), await colour(chain, 0.9, 4)], [[200, 200, 200], [140, 140, 140]]);
  const [red, , blue] = await colour(chain, 0.9, 2), above = await colour(chain, 0.9, 5);
  assert.ok(blue > red + 40, "blue below");
  assert.ok(Math.abs(above[1] - above[2]) <= 60 && above[1] > above[0] + 40 && above[1] > 160, `aqua above: ${above}`);
  const mixed = await open("a_[k] 1\nb_[j] 1\nc::d 1\nuser 1\n");
  const kinds = [];
  for (let i = 0; i < 4; i++) kinds.push(await colour(mixed, (i + 0.9) / 4, 1));
  const [kernel, java, cpp, user] = kinds;
  assert.ok(java[1] > java[0] && java[1] > java[2], `green: ${java}`);
  assert.ok(cpp[0] > 180 && cpp[1] > 140 && cpp[2] < 150, `yellow: ${cpp}`);
  assert.ok(kernel[0] > 220 && kernel[1] > 120 && kernel[2] < 110, `orange: ${kernel}`);
  assert.ok(user[0] > 220 && user[1] < 175, `red: ${user}`);
});

test("one recording shows the same boxes by number and by time", async () => {
  const page = await opened(recorded("ap-native-lock.jfr"));
  const said = async () => (await hover(page, 0.5, 0)).replaceAll(",", "");
  // By default, waits are measured in time.
  const [, ms] = /^all \(([\d.]+) ms 100\.00%\)$/.exec(await said());
  await page.selectOption("#measure", "samples");
  const [, samples] = /^all \((\d+) samples 100\.00%\)$/.exec(await said());
  // As the recording's own sums.
  assert.equal(Number(samples), sum("ap-native-lock.jfr"));
  assert.equal(Math.round(Number(ms) * 1e3), Math.round(sum("ap-native-lock.jfr", "--total") / 1e3));
  await page.keyboard.press("m");
  assert.match(await said(), / ms /);
});

test("keys open help and switch the theme, Escape closes help, and a narrow window does not scroll sideways", async () => {
  const page = await open(STACKS);
  await page.keyboard.press("?");
  assert.equal(await page.locator("#help").isVisible(), true);
  assert.match(await page.locator("#help").innerText(), /reverse: stacks merged from the leaf/);
  await page.keyboard.press("Escape");
  assert.equal(await page.locator("#help").isVisible(), false);
  await page.keyboard.press("d");
  assert.match(await page.evaluate(() => location.hash), /theme=dark/);
  assert.match(await page.evaluate(() => getComputedStyle(document.body).backgroundColor), /rgb\(22, 23, 27\)/);
  for (const view of ["flame", "reverse", "sandwich", "top", "tree"]) {
    await page.setViewportSize({ width: 360, height: 640 });
    await page.click(`#views [data-view=${view}]`);
    const [wide, height] = await page.evaluate(() => [document.documentElement.scrollWidth, document.querySelector("main").clientHeight]);
    assert.ok(wide <= 360, `${view}: ${wide} wide`);
    assert.ok(height > 300, `${view}: ${height} left for the picture`);
  }
  assert.deepEqual(page.errors, []);
});

test("a printed page has the graph in the light theme without buttons", async () => {
  const page = await open(STACKS, [], "dark");
  await page.emulateMedia({ media: "print" });
  await page.evaluate(() => window.dispatchEvent(new Event("beforeprint")));
  await settled(page);
  assert.equal(await page.locator("#bar").isVisible(), false);
  assert.equal(await page.locator("#canvas").isVisible(), true);
  assert.equal(await page.evaluate(() => getComputedStyle(document.body).backgroundColor), "rgb(255, 255, 255)");
  const all = await page.evaluate(() => document.getElementById("canvas").clientHeight);
  assert.ok(all >= 17 * 5 - 2, `${all} px high`);
  await page.evaluate(() => window.dispatchEvent(new Event("afterprint")));
  assert.equal(await page.evaluate(() => document.documentElement.classList.contains("dark")), true);
});

test("neighbours can be sorted by width in every view by list, key and address", async () => {
  const file = drawn(STACKS + "main;z;a 25\n"), page = await opened(file);
  // By name: f 50, g 10, z 25 on main 85, which is behind idle.
  assert.equal(await hover(page, 0.1, 1), "Function: idle (40 samples, 32.00%)");
  await page.selectOption("#order", "width");
  assert.match(await page.evaluate(() => location.hash), /order=width/);
  const levels = async (canvas, level, places, down = false) => {
    const told = [];
    for (const x of places) told.push(/^Function: (\S+) /.exec(await hover(page, x, level, { canvas, down }))[1]);
    return told;
  };
  assert.deepEqual(await levels("#canvas", 1, [0.1, 0.67, 0.9]), ["main", "main", "idle"]);
  assert.deepEqual(await levels("#canvas", 2, [0.1, 0.39, 0.42, 0.59, 0.61, 0.67]), ["f", "f", "z", "z", "g", "g"]);
  // n goes from left to right, zoomed or not, and boxes do not change.
  await search(page, "^g$|^a$");
  await page.focus("#scroller");
  const steps = [];
  for (let i = 0; i < 3; i++) {
    await page.keyboard.press("n");
    steps.push(await details(page));
  }
  assert.deepEqual(steps, ["Function: g (20 samples, 16.00%)", "Function: a (25 samples, 20.00%)", "Function: g (10 samples, 8.00%)"]);
  assert.equal(await page.locator("#matched").textContent(), "Matched: 44.00% (55 samples, 2 functions) · 3 / 3");
  await search(page, "");
  await click(page, 0.5, 2); // z
  assert.deepEqual(await levels("#canvas", 2, [0.02, 0.98]), ["z", "z"]);
  const again = await opened(file, "light", await page.evaluate(() => location.hash));
  assert.match(await hover(again, 0.98, 2), /^Function: z /);
  await page.keyboard.press("0");
  await page.keyboard.press("r");
  // Leaves: idle 40, g 30, h 30, a 25.
  assert.deepEqual(await levels("#canvas", 1, [0.1, 0.4, 0.7, 0.9], true), ["idle", "g", "h", "a"]);
  await page.keyboard.press("w");
  assert.deepEqual(await levels("#canvas", 1, [0.1, 0.3, 0.6, 0.9], true), ["a", "g", "h", "idle"]);
  await page.keyboard.press("w");
  await click(page, 0.7, 2, DOWN); // f, under h
  await page.keyboard.press("s");
  assert.deepEqual(await levels("#callees canvas", 1, [0.1, 0.9], true), ["h", "f"]);
  assert.equal(await page.locator("#middle").textContent(), "f");
  // The tree has an order of its own: the heaviest first, by name on request.
  await page.keyboard.press("e");
  const order = async () => (await rows(page, "#outline")).filter(([, , , , level]) => !level).map(([, , , name]) => name.replace(/[▸▾] ?/, ""));
  await page.keyboard.press("Home");
  await page.keyboard.press("ArrowLeft");
  assert.deepEqual(await order(), ["main", "idle"]);
  assert.equal(await page.locator("#order").inputValue(), "width");
  await page.selectOption("#order", "name");
  assert.deepEqual(await order(), ["idle", "main"]);
  await page.keyboard.press("?");
  assert.match(await page.locator("#help").innerText(), /by width or by name/);
  assert.deepEqual([...page.errors, ...again.errors], []);
});

test("a name or a stack is copied by key or by a box's menu, which also searches for it", async () => {
  const page = await open(STACKS);
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  const pasted = async () => {
    await page.fill("#search", "");
    await page.focus("#search");
    await page.keyboard.press("Control+V");
    const text = await page.inputValue("#search");
    await page.fill("#search", "");
    await page.focus("#scroller");
    return text;
  };
  await click(page, 0.5, 2); // f
  await page.keyboard.press("c");
  await page.waitForFunction(() => document.getElementById("details").textContent === "Copied: f");
  assert.equal(await pasted(), "f");
  await page.keyboard.press("0");
  const box = await page.locator("#canvas").boundingBox(), ask = () => page.mouse.click(box.x + 0.5 * box.width, box.y + box.height - 3.5 * 17, { button: "right" });
  await ask(); // f on f
  assert.equal(await page.locator("#menu").isVisible(), true);
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.getElementById("details").textContent === "Copied: main;f;f");
  assert.equal(await page.locator("#menu").isVisible(), false);
  assert.equal(await pasted(), "main;f;f");
  await ask();
  await page.keyboard.press("Escape");
  assert.equal(await page.locator("#menu").isVisible(), false);
  assert.equal(await page.evaluate(() => document.activeElement.id), "scroller");
  await ask();
  await page.getByRole("menuitem", { name: "Search for it" }).click();
  assert.equal(await page.locator("#matched").textContent(), "Matched: 50.00% (50 samples, 1 function)");
  // Merged from the leaf on, a stack is still shown from the root on.
  await page.keyboard.press("r");
  await click(page, 0.1, 2, DOWN); // f, on g
  await page.keyboard.press("Shift+C");
  await page.waitForFunction(() => document.getElementById("details").textContent === "Copied: f;g");
  assert.deepEqual(page.errors, []);
});

test("a page opens at its roots, or where stacks diverge if their common part fills half of the window", async () => {
  const one = await open(`${DEEP} 5\n`), two = await open(`${DEEP};a 5\n${DEEP};b 5\n`);
  assert.equal(await hover(one, 0.5, 0), "all (5 samples, 100.00%)");
  const tall = await open(`main;run;${DEEP} 5\nmain;run;b 5\n`);
  assert.equal(await hover(tall, 0.5, 0), "all (10 samples, 100.00%)");
  const box = await two.locator("#canvas").boundingBox();
  await two.mouse.move(box.x + 0.2 * box.width, box.y + 0.5 * 17);
  assert.match(await details(two), /^Function: a \(5 samples/);
});
