// The page of a trace in a real browser: its numbers compared with `--json`, positions, keys, the address,
// and names with harmful markup. Run by run.sh, which sets FLIGHTLINE, CHROMIUM and TEST_PROGRAMS.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { test } from "node:test";
import { flightline, folder, visit } from "./page.mjs";

const TRACE = "0000000000000000" + "0000000000004bf9";
const HARM = "</script><img src=x onerror=\"document.title='harmed'\">{{script}}";

/** The page of a trace of this many spans, and the same as JSON. */
function made(spans) {
  const recording = join(folder, `${spans}.jfr`), page = join(folder, `${spans}.html`);
  execFileSync(process.env.TEST_PROGRAMS, ["trace_recording", recording, String(spans)]);
  const options = { maxBuffer: 1 << 30, stdio: ["ignore", "pipe", "inherit"] };
  const told = execFileSync(flightline, ["spans", recording, "--trace", TRACE, "--json", "-o", page], options);
  return { page, json: JSON.parse(told) };
}
const frame = (page) => page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
/** The table of the selected span: its cells by the name of the row. */
const facts = (page) => page.evaluate(() => Object.fromEntries([...document.querySelectorAll("#facts tr")]
  .map((row) => [...row.children].map((cell) => cell.textContent)).map(([name, ...cells]) => [name, cells])));
const heading = (page) => page.locator("#facts h2").textContent();
const ms = (nanos) => nanos / 1e6 < 10 ? (nanos / 1e6).toFixed(2) + " ms" : nanos / 1e6 < 100 ? (nanos / 1e6).toFixed(1) + " ms" : (nanos / 1e6).toFixed(0) + " ms";

test("spans, sums and threads equal those of --json, with any names", async () => {
  const { page: file, json } = made(20);
  const page = await visit(file, "light", "#span=0000000000000002");
  assert.equal(json.spans.length, 20);
  for (const span of json.spans.filter(({ span }) => parseInt(span, 16) <= 4)) {
    await page.evaluate((id) => { location.hash = "span=" + id; }, span.span);
    await page.waitForFunction((id) => document.getElementById("facts").textContent.includes(id), span.span);
    assert.equal(await heading(page), span.name ?? "[span without a name]");
    const told = await facts(page);
    const cpu = span.spent.cpuNanos, wait = span.spent.offCpuNanos;
    assert.equal((told["CPU time"] ?? ["0"])[0], cpu ? ms(cpu) : told["CPU time"] ? "0 ns" : "0", JSON.stringify(told));
    if (wait) assert.equal(told["waiting (off CPU)"][0], ms(wait));
    assert.deepEqual(told.samples[0], String(span.spent.samples));
  }
  // The samples within a span: 40 ms of CPU time in the two activations of the span itself.
  await page.evaluate(() => { location.hash = "span=0000000000000002"; });
  await page.waitForFunction(() => document.querySelector("#facts h2").textContent === "hop");
  const hop = await facts(page);
  assert.deepEqual(hop["CPU time"], ["40.0 ms", "40.0 ms"]);
  assert.deepEqual(hop.samples, ["4", "13"]);
  assert.match(hop.threads[0], /worker-7 .* 7, worker-8 .* 8$/);
  // Its flame graph has its own samples and those of the span within it, each once.
  const options = await page.locator("#measure option").allTextContents();
  assert.deepEqual(options, ["wall-clock time", "CPU time", "waiting (off CPU)", "samples"]);
  await page.selectOption("#measure", "cpu");
  const box = await page.locator("#canvas").boundingBox();
  await page.mouse.move(box.x + box.width / 2, box.y + box.height - 8);
  assert.match(await page.locator("#details").textContent(), /^all \(40\.000 ms, 100\.00%\)/);
  // Names are text, not markup.
  await page.evaluate(() => { location.hash = "span=0000000000000004"; });
  await page.waitForFunction((name) => document.querySelector("#facts h2").textContent === name, HARM);
  assert.equal((await facts(page)).tenant[0], HARM);
  assert.equal(await page.locator("img").count(), 0);
  assert.notEqual(await page.title(), "harmed");
  assert.deepEqual(page.errors, []);
  assert.deepEqual(page.requests.filter((url) => !url.startsWith("data:")).length, 1, String(page.requests));
  // Injected scripts do not run.
  await page.evaluate(() => {
    const script = document.createElement("script");
    script.textContent = "document.title = 'harmed'";
    document.body.append(script);
    document.body.insertAdjacentHTML("beforeend", "<b style='color:red' onclick='document.title=\"harmed\"' id='bad'>x</b>");
    document.getElementById("bad").click();
  });
  assert.notEqual(await page.title(), "harmed");
  assert.ok(page.errors.length >= 2 && page.errors.every((error) => /Content Security Policy/.test(error)), String(page.errors));
});

test("bars and lanes have the positions of their times", async () => {
  const { page: file } = made(20);
  const page = await visit(file);
  await frame(page);
  const seen = await page.evaluate(() => {
    const pixel = (chart, at, y) => {
      const canvas = document.querySelector(chart + " canvas"), width = document.querySelector(chart).clientWidth, left = Math.round(Math.min(320, width * 0.3));
      const ratio = devicePixelRatio, x = left + at / 400 * (width - left);
      return [...canvas.getContext("2d").getImageData(x * ratio, y * ratio, 1, 1).data].join();
    };
    // Rows: the root, hop, the span within it.
    const hop = [60, 120, 170].map((at) => pixel("#bars", at, 20 + 20 + 10));
    return { hop, before: pixel("#bars", 20, 20 + 20 + 10), root: pixel("#bars", 50, 20 + 8) };
  });
  // Pale while the task waited for a thread, and equal on both threads.
  assert.equal(seen.hop[0], seen.hop[2]);
  assert.notEqual(seen.hop[0], seen.hop[1]);
  assert.notEqual(seen.before, seen.hop[1]);
  const told = async (chart, at, y) => {
    const bounds = await page.locator(chart + " canvas").boundingBox(), left = Math.round(Math.min(320, bounds.width * 0.3));
    await page.mouse.move(bounds.x + left + at / 400 * (bounds.width - left), bounds.y + y);
    return page.locator("#details").textContent();
  };
  assert.match(await told("#bars", 60, 50), /^hop; from 40\.0 ms for 160 ms/);
  assert.match(await told("#lanes", 20, 26), /^GET \/cart; active on worker-7 .* from 0 ns for 100 ms/);
  assert.match(await told("#lanes", 60, 39), /^hop; active on worker-7/);
  // The span that never ended.
  assert.match(await told("#lanes", 380, 26), /^\[span without a name\]; active on .*still open$/);
  await page.mouse.click(10, 20 + (await page.locator("#bars canvas").boundingBox()).y + 10);
  assert.equal(await heading(page), "GET /cart");
});

test("the keyboard selects, zooms, searches and switches measure and theme; the address restores the view", async () => {
  const { page: file } = made(20);
  const page = await visit(file, "dark");
  const hash = () => page.evaluate(() => location.hash);
  const press = async (...keys) => { for (const key of keys) await page.keyboard.press(key); };
  assert.equal(await page.evaluate(() => document.activeElement.id), "bars");
  assert.equal(await page.evaluate(() => document.documentElement.classList.contains("dark")), true);
  await press("ArrowDown", "ArrowDown", "Enter");
  assert.equal(await heading(page), "hop");
  assert.match(await hash(), /t=35200000-204800000/);
  await press("+");
  const zoomed = await hash();
  await press("ArrowRight");
  assert.notEqual(await hash(), zoomed);
  await press("0");
  assert.equal(await page.locator("#whole").isVisible(), false);
  await press("/");
  await page.keyboard.type("^step$");
  assert.equal(await page.locator("#matched").textContent(), "16 of 20 spans");
  await press("Enter");
  assert.equal(await heading(page), "step");
  const first = await hash();
  await press("n");
  assert.notEqual(await hash(), first);
  await press("m", "w", "d");
  assert.equal(await page.evaluate(() => document.documentElement.classList.contains("dark")), false);
  assert.match(await hash(), /measure=cpu.*alone=1.*q=/);
  const before = [await hash(), await heading(page), await page.locator("#facts").textContent()];
  const again = await visit(file, "dark", before[0]);
  assert.deepEqual([await hash(), await heading(again), await again.locator("#facts").textContent()], before);
  // The wheel zooms, and invalid parts of an address are ignored.
  const bounds = await again.locator("#lanes canvas").boundingBox();
  await again.mouse.move(bounds.x + 600, bounds.y + 10);
  await again.mouse.wheel(0, -100);
  await again.waitForFunction(() => location.hash.includes("t="));
  const wrong = await visit(file, "light", "#t=x-y&span=nope&measure=none&q=(");
  assert.equal(await heading(wrong), "All spans of the trace");
  assert.equal(await wrong.locator("#matched").textContent(), "not a regular expression");
  assert.deepEqual([...page.errors, ...again.errors, ...wrong.errors], []);
});

test("of a hundred thousand spans only the visible ones are drawn", async () => {
  const { page: file, json } = made(100000);
  // As text there are fewer.
  assert.equal(json.spans.length, 10000);
  const page = await visit(file);
  assert.match(await page.locator("#subtitle").textContent(), /100000 spans, 2 threads, 100013 samples$/);
  const cost = await page.evaluate(async () => {
    const frame = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    let drawn = 0;
    for (const kind of ["fillRect", "fillText", "strokeRect"]) {
      const draw = CanvasRenderingContext2D.prototype[kind];
      CanvasRenderingContext2D.prototype[kind] = function (...args) { drawn++; return draw.apply(this, args); };
    }
    const costs = async (key) => {
      drawn = 0;
      const t = performance.now();
      document.getElementById("bars").dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
      await frame();
      return { drawn, ms: Math.round(performance.now() - t) };
    };
    return { zoom: await costs("+"), last: await costs("End"), elements: document.querySelectorAll("*").length };
  });
  console.log(cost);
  // A few for each row and pixel; an element for each span would be a hundred thousand.
  for (const { drawn } of [cost.zoom, cost.last]) assert.ok(drawn > 0 && drawn < 1000 * 12, `${drawn} drawn`);
  assert.ok(cost.elements < 300, `${cost.elements} elements`);
  // The last one has no enclosing span.
  assert.equal(await heading(page), "[span without a name]");
  assert.deepEqual(page.errors, []);
});
