// Opens and uses a graph of stacks in a headless Chromium: node bench/pictures_page.mjs KIND ADDRESS PLAYWRIGHT_FOLDER TIMES
// KIND selects how the page is controlled: flightline, svg, async-profiler, d3, speedscope. Prints JSON: ms of CPU of the page's main thread
// (the first action, and the median of TIMES further ones), and properties of the page. bench/pictures.py runs this script.
import { createRequire } from "node:module";
import { join } from "node:path";

const [, , kind, address, folder, times = "3"] = process.argv;
const { chromium } = createRequire(join(folder, "package.json"))("playwright-core");
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM || "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu"] });
const TERM = "decode";

const frames = (page) => page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
const settled = async (page) => { await frames(page); await page.waitForTimeout(kind === "speedscope" || kind === "d3" ? 400 : 50); await frames(page); };

/** Sends a mouse event to the canvas, at a fraction of its width and in a row counted from the root. */
const pointed = ([type, x, row, height, down]) => {
  const canvas = document.getElementById("canvas"), box = canvas.getBoundingClientRect();
  const y = down ? box.top + (row + 0.5) * height : box.bottom - (row + 0.5) * height;
  canvas.dispatchEvent(new MouseEvent(type, { clientX: box.left + x * box.width, clientY: y, bubbles: true }));
};

/** Returns the box in the middle, `row` rows above the root, of an SVG or of d3-flame-graph. */
const boxed = (row) => {
  const rects = [...document.querySelectorAll("#frames g rect, g.func_g rect, svg.d3-flame-graph g.frame rect, #frames rect")];
  const seen = rects.map((rect) => ({ rect, box: rect.getBoundingClientRect() })).filter(({ box }) => box.width > 0);
  const tops = [...new Set(seen.map(({ box }) => Math.round(box.top)))].sort((a, b) => b - a);
  const middle = innerWidth / 2;
  const found = seen.find(({ box }) => Math.round(box.top) === tops[row] && box.left <= middle && box.right >= middle);
  return (found ?? seen.reduce((a, b) => (a.box.width * a.box.height >= b.box.width ? a : b))).rect;
};

const drivers = {
  flightline: {
    ready: (page) => page.waitForFunction(() => "ready" in document.documentElement.dataset),
    zoom: (page) => page.evaluate(pointed, ["click", 0.5, 5, 17, false]),
    reset: (page) => page.evaluate(() => document.dispatchEvent(new KeyboardEvent("keydown", { key: "0", bubbles: true }))),
    hover: (page, x) => page.evaluate(pointed, ["mousemove", x, 4, 17, false]),
    search: (page, term) => page.evaluate((term) => {
      const field = document.getElementById("search");
      field.value = term;
      field.dispatchEvent(new Event("input"));
    }, term),
    matched: () => document.getElementById("matched").textContent,
  },
  svg: {
    ready: (page) => page.waitForFunction(() => document.querySelector("rect")),
    prepare: (page) => page.evaluate(`void (window.chosen = (${boxed})(5))`),
    zoom: (page) => page.evaluate(() => window.chosen.dispatchEvent(new MouseEvent("click", { bubbles: true }))),
    reset: (page) => page.evaluate(() => window.unzoom()),
    hover: (page) => page.evaluate(() => window.chosen.dispatchEvent(new MouseEvent("mouseover", { bubbles: true }))),
    search: (page, term) => page.evaluate((term) => {
      if (!term) return window.reset_search();
      if (window.search.length) return window.search(term);
      window.currentSearchTerm = term;
      window.search();
    }, term),
    matched: () => document.getElementById("matched")?.textContent ?? "",
  },
  "async-profiler": {
    ready: (page) => page.waitForFunction(() => document.getElementById("canvas")?.height > 0),
    zoom: async (page) => {
      await page.evaluate(pointed, ["mousemove", 0.5, 5, 16, false]);
      await page.evaluate(pointed, ["click", 0.5, 5, 16, false]);
    },
    reset: (page) => page.evaluate(() => window.render()),
    hover: (page, x) => page.evaluate(pointed, ["mousemove", x, 4, 16, false]),
    search: (page, term) => page.evaluate((term) => window.search(term || false), term),
    matched: () => document.getElementById("matchval").textContent,
  },
  d3: {
    ready: (page) => page.waitForFunction(() => window.drawn),
    prepare: (page) => page.evaluate(`void (window.chosen = d3.select((${boxed})(5).parentNode).datum())`),
    zoom: (page) => page.evaluate(() => { window.chart.zoomTo(window.chosen); }),
    reset: (page) => page.evaluate(() => { window.chart.resetZoom(); }),
    search: (page, term) => page.evaluate((term) => { if (term) window.chart.search(term); else window.chart.clear(); }, term),
    matched: () => window.matched ?? "",
  },
  speedscope: {
    ready: (page) => page.waitForFunction(() => document.querySelector("canvas") && /Left Heavy/.test(document.body.innerText)),
    zoom: (page) => page.mouse.dblclick(800, 400),
    reset: (page) => page.keyboard.press("0"),
    hover: (page, x) => page.mouse.move(1600 * x, 400),
    search: async (page, term) => {
      await page.keyboard.press("Escape");
      if (!term) return;
      await page.keyboard.press("Control+f");
      await page.keyboard.type(term);
    },
    matched: () => "",
  },
};

/** Opens a page and waits until it is ready. Returns the page and the CPU time of its main thread. */
async function opened(options = {}) {
  const context = await browser.newContext({ viewport: { width: 1600, height: 1000 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(90000);
  page.asked = [];
  page.on("request", (request) => { if (/^(https?|wss?):/.test(request.url()) && !request.url().startsWith("http://127.0.0.1")) page.asked.push(request.url()); });
  const cdp = await context.newCDPSession(page);
  await cdp.send("Performance.enable", { timeDomain: "threadTicks" });
  page.metric = async (name) => (await cdp.send("Performance.getMetrics")).metrics.find((m) => m.name === name).value;
  page.spent = async () => 1000 * await page.metric("TaskDuration");
  await page.goto("about:blank");
  const before = await page.spent(), begun = performance.now();
  await page.goto(address);
  if (options.javaScriptEnabled !== false) {
    await drivers[kind].ready(page);
    await frames(page);
  }
  return { page, context, cpu: (await page.spent()) - before, wall: performance.now() - begun };
}

const result = {};
const first = await opened();
result.open = +first.cpu.toFixed(0);
result["open wall"] = +first.wall.toFixed(0);
const { page } = first, driver = drivers[kind];
await page.waitForTimeout(300);
await driver.prepare?.(page);

async function cost(name, before, action) {
  const all = [];
  for (let i = 0; i < +times + 1; i++) {
    if (before) { await before(); await settled(page); }
    const start = await page.spent();
    await action();
    await settled(page);
    all.push((await page.spent()) - start);
  }
  const later = all.slice(1).sort((a, b) => a - b);
  result[name] = +later[later.length >> 1].toFixed(1);
  result[`first ${name}`] = +all[0].toFixed(1);
}
const tried = async (name, ...rest) => { try { await cost(name, ...rest); } catch (error) { result[name] = null; result[`why ${name}`] = String(error).slice(0, 160); } };
await tried("nothing", null, async () => {});
await tried("zoom", () => driver.reset(page), () => driver.zoom(page));
await tried("reset", () => driver.zoom(page), () => driver.reset(page));
if (driver.hover) await tried("hover", () => driver.hover(page, 0.3), () => driver.hover(page, 0.6));
await tried("search", () => driver.search(page, ""), () => driver.search(page, TERM));
result.matched = await page.evaluate(driver.matched).catch(() => "");
result.heap = +((await page.metric("JSHeapUsedSize")) / 1e6).toFixed(0);
result.requests = page.asked.length;
result.live = await page.evaluate(() => document.querySelectorAll("[aria-live], [role=status], output").length);
result.labelled = await page.evaluate(() => document.querySelectorAll("[aria-label], [role]").length);

// The number of elements that a user without a mouse can reach with Tab.
result.tabs = await page.evaluate(() => [...document.querySelectorAll("button, input, a[href], select, [tabindex], [focusable=true]")].filter((e) => e.tabIndex >= 0).length);
await first.context.close();

/** Takes a screenshot. The size of the PNG shows whether the page is empty, because an empty page compresses well. */
const shot = async (options) => {
  const { page, context } = await opened(options);
  await page.waitForTimeout(300);
  const bytes = await page.screenshot();
  const dark = await page.evaluate(() => {
    const of = getComputedStyle(document.body ?? document.documentElement).backgroundColor;
    return of;
  }).catch(() => "");
  await context.close();
  return { size: bytes.length, dark };
};
if (process.env.FEATURES) {
  result["no script, bytes of a screenshot"] = (await shot({ javaScriptEnabled: false })).size;
  const [light, dark] = [await shot({ colorScheme: "light" }), await shot({ colorScheme: "dark" })];
  result.dark = light.dark !== dark.dark;
}
console.log(JSON.stringify(result));
await browser.close();
