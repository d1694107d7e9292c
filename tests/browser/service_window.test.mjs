// Continuous recordings on the page: live, frozen, saved, shared; targets of a label together; the target
// that got busier. Run by run.sh.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { afterEach, beforeEach, test } from "node:test";
import { drawn } from "./flame.mjs";
import { leave } from "./page.mjs";
import { NOW, Service, target } from "./service_mock.mjs";
import { complaints, picture, visible } from "./service_page.mjs";

let service;
beforeEach(async () => { service = await new Service().start(); });
afterEach(async () => {
  await leave();
  service.stop();
});
/** Ten-second chunks up to `to`; the last 5 minutes are kept. */
function keep(id, to) {
  const chunks = Array.from({ length: 30 }, (_, i) => ({ from: to - (30 - i) * 10_000, to: to - (29 - i) * 10_000, bytes: 1000 }));
  const told = { from: to - 300_000, to, bytes: 30_000, chunks };
  service.windows[id] = told;
  const of = service.find(id);
  if (of) of.continuous = { from: told.from, to: told.to, bytes: told.bytes };
}
const asked = () => service.requests.filter(({ path, query }) => path.endsWith("/window/files/html") && query.includes("view=1")).map(({ query }) => {
  const parts = new URLSearchParams(query);
  return [Number(parts.get("from")) - NOW, Number(parts.get("to")) - NOW];
});
/** Ten seconds later, and the page has been notified. */
async function later(page, id, to) {
  keep(id, to);
  await page.evaluate(() => { const now = Date.now; Date.now = () => now() + 10_000; });
  await service.told(page);
}
/** The present graph has the focus: a browser may lose a key press while one replaces another. */
const keyboard = async (page) => (await picture(page)).locator("html").evaluate(() => new Promise((done) => {
  const look = () => document.hasFocus() ? done() : requestAnimationFrame(look);
  look();
}));
const html = (text) => readFileSync(drawn(text));
const frames = (page) => page.locator("#viewer-frame iframe:not(.coming)");

// Moves the pointer until the page notices: Chromium sends no event to a frame that was just inserted.
async function pointIntoFrame(page) {
  for (let move = 0; move < 100 && await page.locator("#live[data-waits=true]").count() === 0; move++) {
    await page.mouse.move(500 + move % 2, 400);
    await page.waitForTimeout(50);
  }
  await page.locator("#live[data-waits=true]").waitFor();
}

test("the live view pauses while the user inspects it, and keeps zoom, search and position", async () => {
  service.targets = [target("redis-server")];
  keep("redis-server", NOW);
  service.bytes.html = html("main;work;deep 60\nmain;rest 40\n");
  const page = await service.open("#target=redis-server", { timezoneId: "UTC", permissions: ["clipboard-read", "clipboard-write"] });
  await page.locator("#window").waitFor();
  await page.locator("#main").focus();
  await page.keyboard.press("l");
  await picture(page);
  await page.mouse.move(500, 10);
  assert.equal(await page.evaluate(() => location.hash), "#target=redis-server&live=300");
  assert.deepEqual(asked(), [[-300_000, 0]]);
  assert.equal(await page.locator("#live-words").textContent(), "Live");
  const first = await frames(page).elementHandle();

  // Without the pointer in it, the graph is updated. The old frame stays until the new one is drawn.
  await later(page, "redis-server", NOW + 10_000);
  await page.waitForFunction((frame) => !frame.isConnected, first);
  assert.deepEqual(asked().at(-1), [-290_000, 10_000]);
  assert.match(await page.locator("#viewer-title").textContent(), /08:00:10$/);
  assert.equal(await page.locator("#viewer-frame iframe").count(), 1);

  // With the pointer in it, the graph is frozen.
  await pointIntoFrame(page);
  const read = await frames(page).elementHandle();
  await later(page, "redis-server", NOW + 20_000);
  await page.locator("#live-newest", { hasText: "1 newer chunk: show" }).waitFor();
  assert.equal(await page.locator("#live-words").textContent(), "Paused while you inspect");
  assert.ok(await read.evaluate((frame) => frame.isConnected));
  assert.equal(asked().length, 2);

  // The same after a search. The newer graph has the search term, other widths and the same order.
  let frame = await picture(page);
  await frame.locator("body").press("/");
  await page.keyboard.type("work");
  await frame.locator("#matched", { hasText: "60.00%" }).waitFor();
  await page.keyboard.press("Enter");
  await frame.locator("#scroller").press("ArrowUp");
  const current = (in_) => in_.locator("#details").textContent();
  assert.match(await current(frame), /^Function: deep \(60 samples/);
  await page.mouse.move(500, 10);
  await page.locator("#live[data-waits=true]").waitFor();
  service.bytes.html = html("main;work;deep 30\nmain;rest 70\nmain;new 100\n");
  await later(page, "redis-server", NOW + 30_000);
  await page.locator("#live-newest", { hasText: "2 newer chunks: show" }).waitFor();
  assert.ok(await read.evaluate((frame) => frame.isConnected));
  const where = await frame.locator("html").evaluate(() => location.hash);
  assert.equal(where, "#q=work");
  await page.keyboard.press("l");
  await page.waitForFunction((frame) => !frame.isConnected, read);
  frame = await picture(page);
  await frame.locator("#matched", { hasText: "15.00%" }).waitFor();
  assert.match(await current(frame), /^Function: deep \(30 samples/);
  assert.deepEqual(asked().at(-1), [-270_000, 30_000]);
  await page.locator("#live-newest").waitFor({ state: "hidden" });

  // Shared: the same interval at any later time, and the position in it.
  await keyboard(page);
  await page.keyboard.press("y");
  await page.locator(".toast", { hasText: "copied" }).waitFor();
  const link = await page.evaluate(() => navigator.clipboard.readText());
  assert.equal(new URL(link).hash.replace(/&look=.*/, ""), `#target=redis-server&window=${NOW - 270_000}-${NOW + 30_000}`);
  const other = await service.open(new URL(link).hash, { timezoneId: "UTC" });
  await (await picture(other)).locator("#matched", { hasText: "15.00%" }).waitFor();
  assert.ok(await other.locator("#live").isHidden());

  // Saved: the shown interval, not the newest one.
  for (const [key, format] of [["S", "html"], ["J", "jfr"], ["F", "folded"]]) {
    const [download] = await Promise.all([page.waitForEvent("download"), page.keyboard.press(key)]);
    assert.match(download.url(), new RegExp(`/window/files/${format}\\?from=${NOW - 270_000}&to=${NOW + 30_000}$`));
  }
  assert.deepEqual(complaints(page), []);
});

test("a frozen live view stays until it is resumed, and a failed update keeps the current graph", async () => {
  service.targets = [target("redis-server")];
  keep("redis-server", NOW);
  service.bytes.html = html("main;work 60\n");
  const page = await service.open("#target=redis-server&live=60", { timezoneId: "UTC" });
  await picture(page);
  await page.mouse.move(500, 10);
  const first = await frames(page).elementHandle();
  await page.keyboard.press("z");
  await page.locator("#live-words", { hasText: "Frozen" }).waitFor();
  await later(page, "redis-server", NOW + 10_000);
  await page.locator("#live-newest", { hasText: "1 newer chunk: show" }).waitFor();
  assert.ok(await first.evaluate((frame) => frame.isConnected));
  // The next one is refused: the graph and its title stay.
  service.fault = ({ path }) => path.endsWith("/window/files/html") ? [422, { errors: ["There is nothing to draw."] }] : null;
  await page.keyboard.press("z");
  await page.locator("#live-words", { hasText: "Live" }).waitFor();
  await page.locator("#viewer-frame iframe.coming").waitFor({ state: "detached" });
  assert.ok(await first.evaluate((frame) => frame.isConnected));
  assert.match(await page.locator("#viewer-title").textContent(), /07:59:00 – .*08:00:00$/);
  service.fault = () => null;
  await later(page, "redis-server", NOW + 20_000);
  await page.waitForFunction((frame) => !frame.isConnected, first);
  assert.match(await page.locator("#viewer-title").textContent(), /08:00:20$/);
  // Without a clipboard the address is there to be copied.
  await keyboard(page);
  await page.evaluate(() => Object.defineProperty(navigator, "clipboard", { value: undefined }));
  await page.keyboard.press("y");
  await page.locator("#share").waitFor();
  assert.match(await page.inputValue("#share"), new RegExp(`#target=redis-server&window=${NOW - 40_000}-${NOW + 20_000}$`));
  assert.equal(await page.evaluate(() => document.activeElement.id), "share");
  await page.keyboard.press("Escape");
  await page.keyboard.press("Escape");
  await page.locator("#viewer").waitFor({ state: "hidden" });
  // Keys of the help are keys of the page.
  await page.keyboard.press("?");
  for (const words of ["stop or resume live updates", "save this view", "share: copy a link", "live: show the last minutes"]) await page.locator("#keys dd", { hasText: words }).waitFor();
});

test("a target with risen load is marked with its start and can be compared with the time before", async () => {
  const from = NOW - 600_000, load = (value) => ({ from, step: 10_000, samples: Array.from({ length: 60 }, (_, i) => i < 20 ? null : value(i)) });
  service.targets = [
    target("busier", { load: load((i) => 20 + i % 5 + (i >= 48 ? 60 : 0)) }), target("same", { load: load((i) => 20 + i % 7) }), target("short", { load: load((i) => i >= 59 ? 900 : 20) }), target("none"),
  ];
  for (const { id } of service.targets) if (id !== "none") keep(id, NOW);
  service.bytes.html = html("main;work 60\n");
  const page = await service.open("", { timezoneId: "UTC" });
  await visible(page, "busier").waitFor();
  assert.deepEqual(await page.locator(".target.risen .name").allTextContents(), ["busier"]);
  assert.equal(await visible(page, "busier").locator(".busy").textContent(), "↑ 3.8×");
  assert.match(await visible(page, "busier").getAttribute("title"), /CPU time 3\.8× since .*07:58:00/);
  assert.ok(await visible(page, "none").locator(".spark").isHidden());
  assert.equal((await visible(page, "same").locator(".spark path").getAttribute("d")).match(/M/g).length, 40, "nothing where nothing is known");
  await page.fill("#search", "risen");
  assert.deepEqual(await page.locator("#targets .name").allTextContents(), ["busier"]);
  await visible(page, "busier").click();
  await page.locator("#window-risen").waitFor();
  assert.match(await page.locator("#risen-words").textContent(), /^CPU time 3\.8× since .*07:58:00$/);
  await page.click("#risen-open");
  await picture(page);
  assert.deepEqual(service.requests.filter(({ path }) => path === "/v1/compare/html").map(({ query }) => decodeURIComponent(query)), [
    `?before=window:busier:${NOW - 240_000}:${NOW - 120_000}&after=window:busier:${NOW - 120_000}:${NOW}`,
  ]);
  await page.click("#viewer-close");
  // The load of targets is not queried each time.
  const before = service.requests.filter(({ path, query }) => path === "/v1/targets" && query === "?load=1").length;
  await service.told(page);
  assert.equal(service.requests.filter(({ path, query }) => path === "/v1/targets" && query === "?load=1").length, before);
  assert.ok(await page.locator(".target.risen").isVisible());
});

test("two versions are compared by their latest data, and a group is shown as one graph", async () => {
  const HOSTILE = "1.2\u202e<img src=x onerror=alert(1)>";
  service.targets = [
    target("a", { labels: { version: "1.1", service: "cart" } }), target("b", { labels: { version: "1.1" } }), target("c", { labels: { version: HOSTILE } }), target("d", { labels: { other: "x" } }),
  ];
  for (const id of ["a", "b"]) keep(id, NOW - 60_000);
  keep("c", NOW);
  service.bytes.html = html("main;work 60\n");
  const page = await service.open("", { timezoneId: "UTC" });
  await page.locator("#versions").waitFor();
  // The labels of continuous recordings; those with several values come first.
  assert.deepEqual(await page.locator("#versions-key option").allTextContents(), ["version", "service"]);
  assert.deepEqual((await page.locator("#versions-a option").allTextContents())[0], "1.1 (2 targets)");
  assert.match(await page.locator("#versions-words").textContent(), /^version=1\.1 .*07:54:00 – .*07:59:00, version=1\.2\\u\{202e\}<img.* .*07:55:00 – .*08:00:00; by share of samples\.$/);
  await page.click("#versions-compare");
  await picture(page);
  assert.deepEqual(service.requests.filter(({ path }) => path === "/v1/compare/html").map(({ query }) => Object.fromEntries(new URLSearchParams(query))), [
    { before: `windows:version=1.1:${NOW - 360_000}:${NOW - 60_000}`, after: `windows:version=${HOSTILE}:${NOW - 300_000}:${NOW}` },
  ]);
  assert.match(await page.locator("#viewer-title").textContent(), /^version=1\.1 · .* → version=1\.2\\u\{202e\}<img/);
  await page.keyboard.press("Escape");
  await page.selectOption("#versions-length", "60");
  await page.click("#versions-view-b");
  await picture(page);
  const { path, query } = service.requests.filter(({ path }) => path === "/v1/window/files/html").at(-1);
  assert.deepEqual([path, Object.fromEntries(new URLSearchParams(query))], ["/v1/window/files/html", { label: `version=${HOSTILE}`, from: String(NOW - 60_000), to: String(NOW), view: "1" }]);
  // It has an address.
  const hash = await page.evaluate(() => location.hash), again = await service.open(hash, { timezoneId: "UTC" });
  await picture(again);
  assert.equal(await again.locator("#viewer-title").textContent(), await page.locator("#viewer-title").textContent());
  await page.keyboard.press("Escape");
  await page.selectOption("#versions-b", "1.1");
  assert.ok(await page.locator("#versions-compare").isDisabled());
  await visible(page, "a").first().click();
  assert.ok(await page.locator("#versions").isHidden(), "one target has its own time line");
  assert.deepEqual(complaints(page), []);
});

test("keys of the service's page have no other meaning in the flame graph", async () => {
  const keys = (of) => of.locator("#keys").evaluate((all) => [...all.querySelectorAll("section")].map((section) => [section.querySelector("h2, h3").textContent, [...section.querySelectorAll("kbd")].map((key) => key.textContent)]));
  service.targets = [target("redis-server")];
  keep("redis-server", NOW);
  service.bytes.html = html("main;work 60\nmain;rest 40\n");
  const page = await service.open("#target=redis-server", { timezoneId: "UTC" });
  await page.keyboard.press("?");
  const ofPicture = (await keys(page)).find(([title]) => title === "Picture")[1];
  assert.ok(ofPicture.length > 5, ofPicture.join());
  await page.keyboard.press("Escape");
  await page.locator("#main").focus();
  await page.keyboard.press("l");
  const frame = await picture(page);
  await frame.locator("body").press("?");
  const within = (await keys(frame)).flatMap(([, all]) => all);
  assert.ok(within.length > 20, within.join());
  assert.deepEqual(["l", ...ofPicture].filter((key) => within.includes(key)), []);
});
