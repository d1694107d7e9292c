// The contents of boxes by their pixels: names stay inside, and colours are those of the palette; and the
// flame graph without scripts. Run by run.sh.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { ROW, colour, drawn, open, opened, settled } from "./flame.mjs";
import { flightline, folder, visit } from "./page.mjs";

/** For each column of pixels in a row of the graph, from the bottom: the least and the greatest alpha, and
 * the number of pixels as dark as letters. */
const columns = (page, level) => page.evaluate(([level, row]) => {
  const canvas = document.getElementById("canvas"), ratio = devicePixelRatio, height = (row - 1) * ratio, top = canvas.height - (level + 1) * row * ratio;
  const { data, width } = canvas.getContext("2d").getImageData(0, top, canvas.width, height);
  return Array.from({ length: width }, (_, x) => {
    let most = 0, dark = 0;
    for (let y = 0; y < height; y++) {
      const at = 4 * (y * width + x);
      most = Math.max(most, data[at + 3]);
      if (data[at + 3] > 200 && data[at] + data[at + 1] + data[at + 2] < 200) dark++;
    }
    return { most, dark };
  });
}, [level, ROW]);

/** The red, green and blue of this many boxes of one width above the root. */
const boxes = (page, count) => page.evaluate(([count, row]) => {
  const canvas = document.getElementById("canvas"), { width, height } = canvas, { data } = canvas.getContext("2d").getImageData(0, height - 1.5 * row * devicePixelRatio, width, 1);
  return Array.from({ length: count }, (_, i) => [...data.slice(4 * Math.floor((i + 0.9) / count * width)).slice(0, 3)]);
}, [count, ROW]);

test("long names are cut or omitted so that they fit their boxes", async () => {
  // Each box is a pixel wider than the previous one; the last one gets the rest of the width.
  const names = [], lines = [];
  const page = await open("x 1\n"), size = { width: 1800, height: 300 };
  await page.setViewportSize(size);
  await settled(page);
  const room = await page.evaluate(() => document.getElementById("canvas").clientWidth);
  let left = room;
  for (let width = 4; left > width + 4; width++) {
    const name = `${String(width).padStart(2, "0")}ijijij`;
    names.push({ name, width, from: room - left });
    lines.push(`${name} ${width}`);
    left -= width;
  }
  lines.push(`~ ${left}`);
  for (const scheme of ["light", "dark"]) {
    const all = await open(lines.join("\n") + "\n", [], scheme);
    await all.setViewportSize(size);
    await all.selectOption("#palette", "hot");
    await settled(all);
    const row = await columns(all, 1);
    assert.equal(row.length, room);
    let [none, some] = [0, 0];
    const inks = [];
    for (const { name, width, from } of names) {
      // The column between two boxes has no pixel of either.
      assert.equal(row[from + width - 1].most, 0, `${name} of ${width} px ends within its box`);
      const ink = row.slice(from, from + width - 1).map(({ dark }) => dark), first = ink.findIndex((dark) => dark > 0), last = ink.findLastIndex((dark) => dark > 0);
      inks.push(last - first + 1);
      if (first < 0) none = Math.max(none, width);
      else some = some || width;
      if (first >= 0) assert.ok(first >= 2 && last <= width - 3, `${name} of ${width} px: letters from ${first} to ${last}`);
    }
    assert.ok(some > 14 && some === none + 1, `${none} px have no name, ${some} px have one`);
    // From the first width that fits, the name has its full length.
    const fitted = await all.evaluate(() => {
      const context = document.createElement("canvas").getContext("2d");
      context.font = "12px system-ui, 'DejaVu Sans', sans-serif";
      return context.measureText("00ijijij").width;
    });
    const whole = names.filter(({ width }) => width >= fitted + 8);
    assert.ok(whole.length > 3 && names.filter(({ width }) => width >= some && width < fitted + 7).length > 3, `some of ${names.length} are whole, some cut`);
    for (const { name, width } of whole) assert.ok(Math.abs(inks[names.findIndex((of) => of.name === name)] - fitted) <= 4, `${name} of ${width} px is whole`);
    assert.deepEqual(all.errors, []);
  }
});

test("each palette has the hue of its name, and waker frames are aqua", async () => {
  const COUNT = 40, page = await opened(drawn(Array.from({ length: COUNT }, (_, i) => `function_${i} 1\n`).join("")));
  const within = { hot: [[205, 255], [0, 230], [0, 55]], io: [[80, 160], [80, 200], [190, 255]], mem: [[0, 90], [175, 240], [0, 210]], wakeup: [[50, 110], [165, 220], [165, 220]] };
  within.chain = within.io;
  for (const [palette, ranges] of Object.entries(within)) {
    await page.selectOption("#palette", palette);
    const seen = new Set();
    await settled(page);
    for (const found of await boxes(page, COUNT)) {
      seen.add(found.join());
      found.forEach((part, channel) => assert.ok(part >= ranges[channel][0] && part <= ranges[channel][1], `${palette}: ${found}`));
      // The greatest of the three.
      const [red, green, blue] = found, most = { hot: red > green && green >= blue, mem: green > red && green > blue, wakeup: green > red + 40 && blue > red + 40 }[palette];
      assert.ok(most ?? (blue > red + 30 && blue > green), `${palette}: ${found}`);
    }
    assert.ok(seen.size > COUNT / 2, `${palette}: neighbours can be told apart, ${seen.size} colours`);
  }
  const wakers = await open("waits;in_kernel;--;wakes_[w];deeper_[w] 1\n");
  await wakers.selectOption("#palette", "chain");
  for (const level of [4, 5]) {
    const [red, green, blue] = await colour(wakers, 0.9, level);
    assert.ok(green > red + 40 && blue > red + 40 && green >= 165, `aqua: ${[red, green, blue]}`);
  }
  assert.deepEqual([...page.errors, ...wakers.errors], []);
});

test("an SVG without scripts shows names, numbers and widths inside the boxes", async () => {
  const input = join(folder, "static.txt"), file = join(folder, "static.svg");
  writeFileSync(input, "main;wide_function;leaf 60\nmain;other 39\nthin_one_with_a_long_name 1\n");
  execFileSync(flightline, ["flame", input, "-o", file, "--width", "1000"]);
  const page = await visit(file, "light", "", { javaScriptEnabled: false });
  // Reads the graph without running the file's script.
  const found = await page.evaluate(() => [...document.querySelectorAll("#frames g")].map((box) => {
    const rect = box.querySelector("rect").getBoundingClientRect(), text = box.querySelector("text"), letters = text.getBoundingClientRect();
    return { title: box.querySelector("title").textContent, width: rect.width, top: rect.top, text: text.textContent, over: text.textContent ? letters.right - rect.right : 0, seen: getComputedStyle(text).display !== "none" };
  }));
  const of = (name) => found.find(({ title }) => title.startsWith(name + " "));
  assert.match(of("wide_function").title, /^wide_function \(60 samples, 60\.00%\)$/);
  assert.equal(of("wide_function").text, "wide_function");
  assert.ok(of("wide_function").seen && of("all").width > 900);
  assert.ok(Math.abs(of("wide_function").width / of("all").width - 0.6) < 0.005 && Math.abs(of("other").width / of("all").width - 0.39) < 0.005);
  assert.ok(of("leaf").top < of("wide_function").top && of("wide_function").top < of("main").top && of("main").top < of("all").top);
  assert.equal(of("thin_one_with_a_long_name").text, "", "no room, no name");
  for (const { title, over } of found) assert.ok(over <= 0.5, `${title}: ${over} px over its box`);
  assert.deepEqual(page.errors, []);
});
