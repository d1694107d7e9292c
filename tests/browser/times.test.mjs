// Times in the page of a flame graph: the heat map, its brushes by mouse and keys, threads. Counts are those of `flightline fold --from
// --to` and of the recording. Run by run.sh.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import vm from "node:vm";
import { details, drawn, drawnOf, hover, opened, recorded, search, settled, sum } from "./flame.mjs";
import { flightline, folder, visit } from "./page.mjs";

const RECORDING = "ap-java-cpu.jfr", map = "#heat-map";
const samples = (text) => Number(/\((?:[\d,.]+ → )?([\d,]+) samples?/.exec(text)[1].replaceAll(",", ""));
/** The total of the page at the moment, from the line about all of it. */
async function told(page) {
  await page.evaluate(() => { document.getElementById("scroller").scrollTop = 1e6; });
  await settled(page);
  return hover(page, 0.5, 0);
}
const all = async (page) => samples(await told(page));
const hash = (page) => page.evaluate(() => location.hash);

test("the heat map counts each sample once, in its second and its 20 ms", async () => {
  const page = await opened(recorded(RECORDING));
  await page.keyboard.press("h");
  assert.equal(await page.locator("#heat").isVisible(), true);
  assert.match(await page.locator("#heat-title").textContent(), /^Column: 1 s; cell: 20 ms, up to \d+ samples?$/);
  // The vertical axis: its title, and its limits, which are those of a column.
  assert.deepEqual(await page.locator("#heat-axis > *").allTextContents(), ["time within a column", "1 s", "500 ms", "0 s"]);
  const [side, map] = await Promise.all(["#heat-axis", "#heat-map"].map((id) => page.locator(id).boundingBox()));
  assert.ok(Math.abs(side.y - map.y) < 1 && Math.abs(side.x + side.width - map.x) < 1 && map.height - side.height === 15, `${JSON.stringify([side, map])}`);
  // The values of all cells, read by keys, add up to the recording.
  await page.focus("#heat-scroll");
  await page.keyboard.press("Home");
  const cells = await page.evaluate(() => {
    const count = [];
    const press = (key) => document.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
    for (let last = ""; ;) {
      const text = document.getElementById("details").textContent;
      if (text === last) return count;
      count.push(Number(/: ([\d,]+) samples?/.exec(text)[1].replaceAll(",", "")));
      last = text;
      press("ArrowUp");
    }
  });
  assert.equal(cells.reduce((a, b) => a + b), sum(RECORDING));
  // A cell with samples has the colour of their number; one without has the background's.
  const colourOf = (cell) => page.evaluate(([cell, count]) => {
    document.activeElement.blur();
    const canvas = document.getElementById("heat-map"), width = canvas.width / (count / 50), ratio = devicePixelRatio;
    const [red, green] = canvas.getContext("2d").getImageData((Math.floor(cell / 50) + 0.4) * width, (49.5 - cell % 50) * 3 * ratio, 1, 1).data;
    return red - green;
  }, [cell, cells.length]);
  const most = cells.indexOf(Math.max(...cells)), none = cells.indexOf(0);
  assert.ok(await colourOf(most) > 100, `cell ${most}`);
  if (none >= 0) assert.ok(Math.abs(await colourOf(none)) < 8, `cell ${none}`);
  assert.deepEqual(page.errors, []);
});

test("a range of the heat map filters all views and is in the address; a second range compares", async () => {
  const file = recorded(RECORDING), page = await opened(file);
  await page.click("#heat-open");
  const box = await page.locator(map).boundingBox(), columns = Math.round(box.width / await page.evaluate(() => {
    return document.getElementById("heat-map").clientWidth / Math.ceil(JSON.parse(document.getElementById("profile").textContent).times.last
      * JSON.parse(document.getElementById("profile").textContent).times.tick / 1e9);
  })), wide = box.width / columns;
  const drag = async (from, to, key) => {
    if (key) await page.keyboard.down(key);
    await page.mouse.move(box.x + (from + 0.5) * wide, box.y + 149);
    await page.mouse.down();
    await page.mouse.move(box.x + (to + 0.5) * wide, box.y + 1, { steps: 3 });
    await settled(page);
    await page.mouse.up();
    if (key) await page.keyboard.up(key);
    await settled(page);
  };
  await drag(1, 1);
  assert.match(await hash(page), /time=1000-2000/);
  const brushed = await all(page), counted = sum(RECORDING, "--from", "1", "--to", "1.999999");
  // Ticks of 100 µs are truncated, not rounded, so that a sample at the edge stays on its side.
  assert.equal(brushed, counted);
  assert.ok(brushed > 0 && brushed < sum(RECORDING));
  assert.match(await page.locator("#heat-chosen").textContent(), /1\.00 s to 2\.00 s/);
  await page.keyboard.press("t");
  const selves = await page.locator("#table .row .self .amount").allTextContents();
  assert.ok(selves.reduce((a, text) => a + Number(text.replaceAll(",", "")), 0) <= brushed);
  await page.keyboard.press("f");
  await drag(0, 0, "Control");
  assert.match(await hash(page), /than=0-1000/);
  assert.equal((await page.locator(map).boundingBox()).y, box.y, "the map stays where it is");
  const before = sum(RECORDING, "--from", "0", "--to", "0.999999");
  // Scaled to the samples of the range.
  assert.match(await told(page), new RegExp(`^all \\(${counted} → ${counted} samples, \\+0;`));
  assert.match(await page.locator("#legend").innerText(), /more/);
  await page.keyboard.press("t");
  assert.match(await page.locator("#table-head").innerText(), /Before[^]*After[^]*Change/);
  const again = await opened(file, "light", await hash(page));
  assert.equal(await again.locator("#table .row").first().innerText(), await page.locator("#table .row").first().innerText());
  await page.locator(".chip", { hasText: "compared" }).click();
  await page.locator(".chip").click();
  await page.keyboard.press("f");
  assert.equal((await page.locator(map).boundingBox()).y, box.y, "the map stays where it is");
  assert.equal(await all(page), sum(RECORDING));
  assert.ok(before > 0);
  assert.deepEqual([...page.errors, ...again.errors], []);
});

test("the keyboard selects a range, a column or everything; selected threads are summed", async () => {
  const page = await opened(recorded(RECORDING));
  await page.keyboard.press("h");
  await page.keyboard.press("Home");
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("Shift+ArrowUp");
  await page.keyboard.press("Shift+ArrowUp");
  assert.match(await hash(page), /time=1000-1060/);
  assert.match(await details(page), /^1\.04 s to 1\.06 s: \d+ samples?$/);
  await page.keyboard.press("Enter");
  assert.match(await hash(page), /time=1000-2000/);
  await page.keyboard.press("Control+Enter");
  await settled(page);
  assert.match(await hash(page), /than=1000-2000/);
  assert.match(await told(page), /\+0; 100\.00% → 100\.00%, \+0\.00 points/);
  await page.focus("#heat-scroll");
  await page.keyboard.press("Escape");
  assert.doesNotMatch(await hash(page), /time|than/);
  await page.keyboard.press("-");
  assert.match(await page.locator("#heat-title").textContent(), /^Column: 10 s; cell: 200 ms/);
  assert.deepEqual(await page.locator("#heat-axis span").allTextContents(), ["10 s", "5 s", "0 s"]);
  await page.click("#threads summary");
  const labels = await page.locator("#thread-list label").allTextContents();
  const counts = labels.map((text) => Number(/\(([\d,]+)\)$/.exec(text)[1].replaceAll(",", "")));
  assert.equal(counts.reduce((a, b) => a + b), sum(RECORDING));
  await page.locator("#thread-list input").first().check();
  await page.click("#threads summary");
  assert.equal(await all(page), counts[0]);
  assert.match(await hash(page), /thread=/);
  await page.click("#undo");
  assert.equal(await all(page), sum(RECORDING));
  assert.deepEqual(page.errors, []);
});

test("search matches are on the heat map; folded text and --no-time have no heat map", async () => {
  const page = await opened(recorded(RECORDING));
  await page.keyboard.press("h");
  await search(page, "GC|Thread");
  await page.focus("#heat-scroll");
  await page.keyboard.press("Home");
  assert.match(await details(page), /samples?, \d+ matched$/);
  for (const args of [[drawn("a;b 3\n")], [recorded(RECORDING, "--no-time")]]) {
    const other = await opened(args[0]);
    assert.equal(await other.locator("#heat-open").isVisible(), false);
    await other.keyboard.press("h");
    assert.match(await details(other), /has no timestamps/);
    assert.deepEqual(other.errors, []);
  }
});

test("the flame chart has one lane per thread in time order, with each sample once", async () => {
  const file = recorded(RECORDING), page = await opened(file);
  await page.keyboard.press("a");
  // The thread with most samples comes first; its stacks are compared with the speedscope export.
  const speedscope = JSON.parse(execFileSync(flightline, ["convert", join(process.env.RECORDINGS, RECORDING), "--format", "speedscope", "-o", "-"], { encoding: "utf8", maxBuffer: 1 << 28 }));
  const stacks = speedscope.profiles.map(({ samples }) => samples).sort((a, b) => b.length - a.length)[0];
  await page.focus("#chart-scroll");
  // At the highest level that all of its stacks reach: runs of the same callers.
  const level = Math.min(...stacks.map(({ length }) => length)) - 1, path = (stack) => stack.length > level ? stack.slice(0, level + 1).join() : "";
  let runs = 0, high = 0;
  stacks.forEach((stack, i) => {
    if (path(stack)) high++;
    if (path(stack) && (i === 0 || path(stacks[i - 1]) !== path(stack))) runs++;
  });
  await page.keyboard.press("ArrowDown");
  const boxes = await page.evaluate((level) => {
    const press = (key) => document.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true })), told = [];
    const text = () => document.getElementById("details").textContent;
    for (let i = 0; i < level; i++) press("ArrowDown");
    for (let last = ""; text() !== last; press("ArrowRight")) told.push(last = text());
    return told;
  }, level);
  const parsed = boxes.map((text) => {
    const [, name, from, to, count] = /^Function: (.*) \(([\d.]+) s to ([\d.]+) s, .*, ([\d,]+) samples?\) in \[/.exec(text) || assert.fail(text);
    return { name, from: Number(from), to: Number(to), count: Number(count.replaceAll(",", "")) };
  });
  assert.equal(high, stacks.length, "all stacks of the thread reach this level");
  assert.equal(parsed.reduce((all, { count }) => all + count, 0), stacks.length);
  assert.ok(parsed.length >= runs && runs > 1, `${parsed.length} boxes of ${runs} runs`);
  for (let i = 1; i < parsed.length; i++) assert.ok(parsed[i].from >= parsed[i - 1].to - 0.01, `${boxes[i - 1]}, then ${boxes[i]}`);
  // Enter zooms to the box: its colour from edge to edge, in its row. The address has it, and 0 resets it.
  await page.keyboard.press("Enter");
  assert.match(await hash(page), /view=chart/);
  assert.match(await hash(page), /at=[\d.]+-[\d.]+/);
  await settled(page);
  const row = await page.evaluate((level) => {
    document.activeElement.blur();
    const canvas = document.getElementById("chart-canvas"), ratio = devicePixelRatio, y = (18 + (1 + level) * 17 + 3) * ratio - document.getElementById("chart-scroll").scrollTop * ratio;
    const { data } = canvas.getContext("2d").getImageData(0, y, canvas.width, 1), seen = new Map();
    for (let i = 0; i < data.length; i += 4) seen.set(data.slice(i, i + 4).join(), (seen.get(data.slice(i, i + 4).join()) || 0) + 1);
    return Math.max(...seen.values()) / canvas.width;
  }, level);
  assert.ok(row > 0.97, `${row} of the row are of one colour`);
  const zoomed = await hash(page);
  await page.keyboard.press("0");
  assert.doesNotMatch(await hash(page), /at=/);
  // Each can be undone and redone.
  await page.keyboard.press("u");
  assert.equal(await hash(page), zoomed);
  await page.keyboard.press("u");
  assert.doesNotMatch(await hash(page), /at=/);
  assert.match(await hash(page), /view=chart/);
  await page.keyboard.press("U");
  assert.equal(await hash(page), zoomed);
  await page.keyboard.press("0");
  // Plus, and Shift with arrows: half of the time, then later. A brushed range limits it.
  await page.focus("#chart-scroll");
  await page.keyboard.press("+");
  const [from, to] = /at=([\d.]+)-([\d.]+)/.exec(await hash(page)).slice(1).map(Number);
  await page.keyboard.press("Shift+ArrowLeft");
  const [left] = /at=([\d.]+)-/.exec(await hash(page)).slice(1).map(Number);
  assert.ok(Math.abs(from - left - (to - from) / 4) < 0.01, `${from} ${to} ${left}`);
  const again = await opened(file, "dark", "#view=chart&time=0-1000&q=run");
  assert.equal(await again.locator("#views [data-view=chart]").getAttribute("aria-selected"), "true");
  assert.deepEqual([...page.errors, ...again.errors], []);
});

test("the CPU use drawn behind a thread's name is half of a processor if it ran half of the time", async () => {
  // Samples of 10 ms each: worker-7 ran from 0 to 30 and from 40 to 60 ms, worker-8 from 150 to 170 ms and later; each bar is 100 ms.
  const recording = join(folder, "cpu.jfr");
  execFileSync(process.env.TEST_PROGRAMS, ["trace_recording", recording, "4"]);
  const printed = JSON.parse(execFileSync(flightline, ["print", recording, "--events", "ExecutionSample", "--json"], { encoding: "utf8" }));
  const ended = (thread) => printed.recording.events.map(({ values }) => values).filter(({ sampledThread }) => sampledThread.osThreadId === thread)
    .map(({ startTime }) => Math.round((Date.parse(startTime.slice(0, 23) + "Z") - 1.7e12)));
  const share = (thread, from) => ended(thread).reduce((sum, end) => sum + Math.max(0, Math.min(end, from + 100) - Math.max(end - 10, from)), 0);
  assert.equal(share(7, 0), 50);
  const page = await opened(drawnOf(recording), "light", "#view=chart");
  await page.evaluate(() => document.activeElement.blur());
  await settled(page);
  const canvas = await page.locator("#chart-canvas").boundingBox();
  const end = await page.evaluate(() => { const { times } = JSON.parse(document.getElementById("profile").textContent); return (times.last + 1) * times.tick / 1e6; });
  const length = Math.max(end, 400), at = async (ms, row) => {
    await page.mouse.move(canvas.x + ms / length * canvas.width, canvas.y + 18 + (row + 0.5) * 17);
    return details(page);
  };
  // The lane with most samples is the first one.
  assert.match(await at(50, 0), /^CPU use: 50 % of one processor \(0\.0000 s to 0\.1000 s\) in \[worker-7 /);
  assert.match(await page.locator("#tip").textContent(), /^CPU use: 50 %/);
  assert.match(await at(150, 0), new RegExp(`^CPU use: ${share(7, 100)} % of one processor \\(0\\.1000 s to 0\\.2000 s\\) in \\[worker-7 `));
  // The bar's height is the share: at the bottom of the row, and not above its middle. The name is drawn over
  // it.
  const filled = (from, to, above) => page.evaluate(([x0, x1, y]) => {
    const ratio = devicePixelRatio, { data } = document.getElementById("chart-canvas").getContext("2d").getImageData(x0 * ratio, y * ratio, (x1 - x0) * ratio, 1);
    let blue = 0;
    for (let i = 0; i < data.length; i += 4) if (data[i + 3] > 0 && data[i + 2] - data[i] > 20) blue++;
    return blue / (data.length / 4);
  }, [from / length * canvas.width, to / length * canvas.width, 18 + 17 - 1 - above]);
  assert.ok(await filled(5, 95, 1) > 0.9, "at the bottom");
  assert.ok(await filled(5, 95, 6) > 0.5, "below the middle");
  assert.ok(await filled(5, 95, 11) < 0.1, "above the middle");
  assert.ok(await filled(105, 195, 1) < 0.1 === (share(7, 100) < 5), "where the thread did not run");
  assert.ok((await page.locator("#legend").innerText()).includes("CPU use of a thread"));
  assert.deepEqual(page.errors, []);
});

test("duration events are above the stacks of a thread: nested spans, and pauses on their own lane", async () => {
  const recording = join(folder, "spans.jfr"), file = (input, ...args) => drawnOf(input, args);
  execFileSync(process.env.TEST_PROGRAMS, ["trace_recording", recording, "4"]);
  const page = await opened(file(recording), "light", "#view=chart"), text = () => details(page);
  await page.focus("#chart-scroll");
  const press = async (...keys) => {
    for (const key of keys) await page.keyboard.press(key);
    return text();
  };
  // Along the first row, then into the second, to the stacks, and back.
  assert.match(await press("ArrowDown"), /^Span: GET \/cart \(0\.0000 s to 0\.1000 s, 100(\.0*)? ms\) in \[worker-7 /);
  assert.match(await press("ArrowRight"), /^Span: 0*3 \(not ended\) \(0\.3000 s to 0\.4000 s, 100(\.0*)? ms\) in \[worker-7 /);
  await press("ArrowLeft");
  assert.match(await press("ArrowDown"), /^Span: hop \(0\.0400 s to 0\.0800 s, 40(\.0*)? ms\) in \[worker-7 /);
  assert.match(await press("ArrowDown"), /^Function: main \(/);
  assert.match(await press("ArrowUp"), /^Span: hop /);
  // The box is at its time, in its colour, and not in the next row. The pointer shows the same.
  const canvas = await page.locator("#chart-canvas").boundingBox(), middle = (row) => 18 + (row + 0.5) * 17;
  const colourAt = (ms, row) => page.evaluate(([x, y]) =>
    document.getElementById("chart-canvas").getContext("2d").getImageData(x * devicePixelRatio, y * devicePixelRatio, 1, 1).data.join(), [ms / 400 * canvas.width, 18 + row * 17 + 1]);
  await page.evaluate(() => document.activeElement.blur());
  await settled(page);
  const span = "120,205,190,255";
  assert.deepEqual([await colourAt(39, 2), await colourAt(42, 2), await colourAt(78, 2), await colourAt(82, 2)].map((is) => is === span), [false, true, true, false]);
  assert.equal(await colourAt(60, 1), span);
  await page.mouse.move(canvas.x + 60 / 400 * canvas.width, canvas.y + middle(2));
  assert.match(await text(), /^Span: hop /);
  assert.match(await page.locator("#tip").textContent(), /^Span: hop \(0\.0400 s to 0\.0800 s/);
  // A search finds them by name, although no function has that name; a click zooms to them.
  assert.equal(await search(page, "^hop$"), "Matched: 0.00% (0 samples, 0 functions) · 2 events");
  await settled(page);
  assert.equal(await colourAt(60, 2), "230,0,230,255");
  assert.notEqual(await colourAt(60, 1), span);
  await page.mouse.click(canvas.x + 60 / 400 * canvas.width, canvas.y + middle(2));
  assert.match(await hash(page), /at=40-80/);
  // n and N go from event to event, lane by lane, and show the position and the number of events.
  await page.keyboard.press("0");
  await search(page, "^hop$|^GET /cart$");
  await page.focus("#chart-scroll");
  const steps = [];
  for (const key of ["n", "n", "n", "N"]) steps.push([/^Span: (.*?) \(/.exec(await press(key))[1], /· (\S+ \/ \S+)$/.exec(await page.locator("#matched").textContent())[1]]);
  const of = Number(/(\d+) events/.exec(await page.locator("#matched").textContent())[1]), [first] = steps[0][1].split(" ").map(Number);
  const nth = (by) => `${(first - 1 + by) % of + 1} / ${of}`;
  assert.ok(of > 2);
  assert.deepEqual(steps.map(([, told]) => told), [nth(0), nth(1), nth(2), nth(1)]);
  assert.ok(steps.every(([name]) => name === "hop" || name === "GET /cart"));
  assert.equal(steps[1][0], steps[3][0]);
  // The legend explains the colours above the stacks.
  assert.match(await page.locator("#legend").textContent(), /Span/);
  await page.keyboard.press("f");
  assert.doesNotMatch(await page.locator("#legend").textContent(), /Span/);
  // Events of a JDK: pauses, waits, files; their number is that of the recording.
  const jdk = join(process.env.RECORDINGS, "jdk25.jfr"), other = await opened(file(jdk), "light", "#view=chart");
  const { threads, sets, events: told } = await other.evaluate(() => JSON.parse(document.getElementById("profile").textContent).times);
  const count = told.lanes.reduce((all, events) => all + events, 0);
  const events = (name) => JSON.parse(execFileSync(flightline, ["print", "--json", "--events", name, jdk], { encoding: "utf8", maxBuffer: 1 << 28 })).recording.events.length;
  const names = ["jdk.GCPhasePause", "jdk.GarbageCollection", "jdk.FileRead", "jdk.FileWrite", "jdk.SocketRead", "jdk.SocketWrite", "jdk.JavaMonitorEnter", "jdk.JavaMonitorWait", "jdk.ThreadPark"];
  assert.equal(count, names.reduce((all, name) => all + events(name), 0));
  // A thread without samples.
  const machine = threads.findIndex(({ name }) => /VM Thread/.test(name));
  assert.equal(told.lanes[machine], events("jdk.GCPhasePause") + events("jdk.GarbageCollection"));
  assert.ok(sets.filter(Boolean).every(({ lanes }) => lanes.every(([thread]) => thread !== machine)));
  assert.equal(await other.locator("#chart-note").isVisible(), false);
  // Without times, there is no heat map.
  for (const without of [recorded(RECORDING), file(recording, "--no-time")]) {
    const { times } = JSON.parse(/id="profile">([^<]*)</.exec(readFileSync(without, "utf8"))[1]);
    assert.equal(times?.events, undefined);
  }
  assert.deepEqual([...page.errors, ...other.errors], []);
});

test("a sample of a rarely sampled thread is not longer than the interval between samples of all threads", () => {
  const { Covered, usualGap } = vm.runInNewContext(readFileSync(join(process.env.RENDER, "profile/chart.js"), "utf8") + "\n({ Covered, usualGap })");
  // Ticks of 1 ms: one thread every 10 ms, one twice, 8 s apart, as in a recording of a JVM's idle thread.
  const busy = { at: Uint32Array.from({ length: 900 }, (_, i) => 1000 + i * 10), weights: [] }, rare = { at: Uint32Array.from([1500, 9500]), weights: [] };
  const times = { tick: 1, usualGap: usualGap([busy.at, rare.at]) };
  assert.equal(times.usualGap, 10);
  const { starts, ends } = new Covered(times, rare, -1);
  for (let i = 0; i < 2; i++) {
    assert.ok(ends[i] - starts[i] <= 11, `${starts[i]} to ${ends[i]}`);
    assert.ok(starts[i] <= rare.at[i] && ends[i] >= rare.at[i], `${starts[i]} to ${ends[i]}`);
  }
  // A thread that is sampled all the time has no gaps.
  const all = new Covered(times, busy, -1);
  for (let i = 1; i < 900; i++) assert.equal(all.starts[i], all.ends[i - 1]);
});

test("lanes of one process are named by thread, lanes of several by thread and process", async () => {
  const titles = async (inputs) => {
    const output = join(folder, `lanes-${inputs.length}.html`);
    execFileSync(flightline, ["flame", ...inputs, "-o", output]);
    const page = await visit(output, "light", "#view=chart", {
      prepare: (page) => page.addInitScript(() => {
        window.written = [];
        const { fillText } = CanvasRenderingContext2D.prototype;
        CanvasRenderingContext2D.prototype.fillText = function (text, ...place) { window.written.push(text); return fillText.call(this, text, ...place); };
      }),
    });
    await page.waitForFunction(() => "ready" in document.documentElement.dataset);
    await settled(page);
    const all = await page.evaluate(() => window.written);
    assert.deepEqual(page.errors, []);
    return all.filter((text) => / tid=\d+\]/.test(text));
  };
  const [native, java] = ["flightline.jfr", "jdk25.jfr"].map((name) => join(process.env.RECORDINGS, name));
  const one = await titles([java]), two = await titles([java, native]);
  assert.ok(one.includes("[cpu-1 tid=18969]") && one.every((text) => !text.includes(" · ")), one.join("\n"));
  assert.ok(two.length > 0 && two.every((text) => / · (java|burn)$/.test(text)), two.join("\n"));
});
