// Measures the CPU time of the browser's main thread for opening and using a flame graph, in ms: node bench/flame_page.mjs FILE
// flightline|other. Each action is repeated. The output has the largest value (mostly the first, before the code is compiled) and the
// median. bench/flame.py runs this script.
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { dirname, join, resolve } from "node:path";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const { chromium } = createRequire(join(root, "target/browser/package.json"))("playwright-core");
const [, , file, kind] = process.argv;
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM || "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu"] });
const page = await browser.newPage({ viewport: { width: 1600, height: 1000 } });
page.setDefaultTimeout(120000);
const cdp = await page.context().newCDPSession(page);
await cdp.send("Performance.enable", { timeDomain: "threadTicks" });
const metric = async (name) => (await cdp.send("Performance.getMetrics")).metrics.find((m) => m.name === name).value;
const frames = () => page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
// Scripts, styles and layout, by the thread's CPU clock.
const spent = async () => (await metric("TaskDuration")) * 1000;
const result = {};
async function cost(name, times, ...actions) {
  const all = [];
  for (let i = 0; i < times; i++) {
    for (const action of actions.slice(0, -1)) { await action(); await frames(); }
    const before = await spent();
    await actions.at(-1)();
    await frames();
    all.push(+((await spent()) - before).toFixed(1));
  }
  all.sort((a, b) => b - a);
  result[name] = times > 1 ? [all[0], all[times >> 1]] : all[0];
}
await page.goto("about:blank");
const before = await spent();
await page.goto("file://" + resolve(file));
if (kind === "flightline") await page.waitForFunction(() => "ready" in document.documentElement.dataset);
await frames();
result.open = +((await spent()) - before).toFixed(1);
if (kind === "flightline") {
  const press = (key) => () => page.evaluate((key) => { document.activeElement.blur(); document.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true })); }, key);
  const type = (text) => () => page.evaluate((text) => {
    const field = document.getElementById("search");
    field.value = text;
    field.dispatchEvent(new Event("input"));
  }, text);
  const pointer = (kind, x, level) => () => page.evaluate(([kind, x, level]) => {
    const canvas = document.getElementById("canvas"), box = canvas.getBoundingClientRect();
    canvas.dispatchEvent(new MouseEvent(kind, { clientX: box.left + x * box.width, clientY: box.bottom - (level + 0.5) * 17, bubbles: true }));
  }, [kind, x, level]);
  await cost("nothing", 3, () => page.evaluate(() => {}));
  await cost("zoom", 5, press("0"), pointer("click", 0.5, 5));
  await cost("reset", 5, pointer("click", 0.5, 5), press("0"));
  await cost("hover", 5, pointer("mousemove", 0.3, 3), pointer("mousemove", 0.6, 4));
  await cost("icicle", 5, press("f"), press("i"));
  await press("f")();
  // Switches between the orders by width and by name.
  await cost("order", 4, press("w"));
  await cost("search", 5, type(""), type("decode"));
  await cost("next", 3, press("n"));
  await cost("keep", 3, type("decode"), press("k"));
  for (let i = 0; i < 3; i++) await press("u")();
  await type("")();
  await page.goto("file://" + resolve(file) + "#");
  await page.reload();
  await page.waitForFunction(() => "ready" in document.documentElement.dataset);
  await frames();
  await cost("first reverse", 1, press("r"));
  // Later frames draw the rest.
  await cost("rest of reverse", 1, async () => { for (let i = 0; i < 20; i++) await frames(); });
  await cost("reverse again", 3, press("f"), press("r"));
  await cost("first top", 1, press("t"));
  await cost("first sandwich", 1, press("s"));
  await cost("tree", 1, press("e"));
}
result.heap = +((await metric("JSHeapUsedSize")) / 1e6).toFixed(1);
console.log(JSON.stringify(result));
await browser.close();
