// The page of the profiling service: flame graphs of runs, their files, links to them, comparisons, and
// moments of continuous recordings. Run by run.sh.
import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { drawn } from "./flame.mjs";
import { fetched, leave } from "./page.mjs";
import { NOW, run, Service, target } from "./service_mock.mjs";
import { complaints, files, html, picture, rows, visible } from "./service_page.mjs";

let service;
beforeEach(async () => { service = await new Service().start(); });
afterEach(async () => {
  await leave();
  service.stop();
});

test("the flame graph opens in a sandboxed frame, and each file has its format", async () => {
  service.targets = [target("redis-server")];
  service.token = "s3cret";
  service.runs = [run("one", "redis-server"), run("two", "redis-server", { triggerTime: NOW - 1, mode: "WALL", engines: ["lock@1ms"], events: ["io", "wall", "lock", "jdk.ThreadStart"] })];
  Object.assign(service.bytes, files());
  const page = await service.open("#target=redis-server");
  await page.fill("#token", "s3cret");
  await page.keyboard.press("Enter");
  await rows(page).first().waitFor();
  for (const [format, name, magic] of [["html", /\.html$/, /^<!DOCTYPE html>/], ["jfr", /\.jfr$/, /^FLR\0/], ["folded", /\.txt$/, /^\S.* \d+\n/], ["pprof", /\.pb\.gz$/, /^\x1f\x8b/], ["otlp", /\.pb$/, /^\n/]]) {
    const [download] = await Promise.all([page.waitForEvent("download"), rows(page).first().locator(`[data-format=${format}]`).click()]);
    assert.match(download.suggestedFilename(), name);
    assert.match(await fetched(download), magic, format);
  }
  await rows(page).first().getByRole("link", { name: /^View/ }).click();
  const frame = await picture(page);
  // The cookie is sent with the request, but the frame has an opaque origin: it can access neither the page
  // nor the service.
  assert.equal(await frame.locator("body").evaluate(() => window.origin), "null");
  assert.equal(await frame.locator("body").evaluate(() => { try { return window.parent.document.title; } catch (error) { return error.name; } }), "SecurityError");
  assert.equal(await page.locator("iframe").getAttribute("sandbox"), "allow-scripts");
  assert.equal(await page.evaluate(() => location.hash), "#target=redis-server&run=one");
  assert.ok(await page.locator("#viewer-events").isHidden(), "only one kind of events");
  await page.goBack();
  await page.locator("#viewer").waitFor({ state: "hidden" });
  await page.goForward();
  await picture(page);
  await page.click("#viewer-close");
  await page.locator("#viewer").waitFor({ state: "hidden" });
  // Several kinds of events: one at a time.
  await rows(page).nth(1).getByRole("link", { name: /^View/ }).click();
  await picture(page);
  assert.deepEqual(await page.locator("#viewer-events button").allTextContents(), ["wall", "io", "lock"]);
  await page.locator("#viewer-events [data-event=lock]").click();
  await picture(page);
  assert.equal(await page.locator("#viewer-events [aria-pressed=true]").textContent(), "lock");
  assert.equal(service.requests.filter(({ query }) => query === "?view=1&event=lock").length, 1);
  assert.match(await page.locator("#viewer-links [data-format=folded]").getAttribute("href"), /\/two\/files\/folded\?event=lock$/);
  assert.equal(await page.evaluate(() => location.hash), "#target=redis-server&run=two&event=lock");
  assert.ok(page.requests.every((url) => url.startsWith(service.url) || url.startsWith("data:")), String(page.requests));
  assert.deepEqual(complaints(page), []);
});

test("a link opens a finished run, a running one, a deleted one, and one whose graph fails", async () => {
  service.targets = [target("redis-server", { run: "busy" })];
  service.runs = [run("busy", "redis-server", { status: "RUNNING", files: [], elapsed: 7_100 }), run("one", "redis-server"), run("other", "nginx", { targetName: "nginx" })];
  service.bytes.html = html();
  const one = await service.open("#target=redis-server&run=one");
  await picture(one);
  assert.match(await one.locator("#viewer-title").textContent(), /^redis-server · 4711 on db1 · ITIMER · .* · 30 s$/);
  // It is not one of the target's runs, but it exists.
  await picture(await service.open("#target=redis-server&run=other"));
  const busy = await service.open("#target=redis-server&run=busy");
  await busy.locator("#viewer-words", { hasText: "7 of 30 s. The flame graph appears when the run ends." }).waitFor();
  service.end("busy");
  await service.told(busy);
  await picture(busy);
  const none = await service.open("#target=redis-server&run=gone");
  await none.locator("#viewer-words", { hasText: "Run gone not found" }).waitFor();
  service.fault = ({ path }) => path.endsWith("/files/html") ? [507, { errors: ["The disk is full: delete runs."] }] : null;
  const full = await service.open("#target=redis-server&run=one");
  await full.locator("#viewer-words", { hasText: "The disk is full: delete runs." }).waitFor();
  assert.equal(await full.locator("iframe").count(), 0, "no JSON in a frame");
  for (const page of [one, busy, none, full]) assert.deepEqual(complaints(page), []);
});

test("two runs of any targets can be compared, and the comparison has an address", async () => {
  service.targets = [target("redis-server"), target("nginx")];
  service.runs = [run("one", "redis-server"), run("two", "nginx"), run("three", "nginx", { status: "FAILED", files: [] })];
  service.bytes.html = html();
  const page = await service.open("#target=redis-server");
  await rows(page).first().waitFor();
  await page.keyboard.press("r");
  await page.keyboard.press("a");
  assert.match(await page.locator("#basket-before").textContent(), /^A {2}redis-server · 4711 on db1 · ITIMER · /);
  assert.equal(await page.locator("#basket-open").getAttribute("aria-disabled"), "true");
  await visible(page, "nginx").click();
  await rows(page).nth(1).waitFor();
  await page.locator("[data-status=FINISHED]").getByRole("button", { name: /^Compare as B/ }).click();
  assert.equal(await page.locator("[data-status=FINISHED]").getByRole("button", { name: /^Compare as B/ }).getAttribute("aria-pressed"), "true");
  assert.equal(await page.locator("[data-status=FAILED]").getByRole("button", { name: /^Compare as/ }).count(), 0);
  await page.locator("#main").focus();
  await page.keyboard.press("=");
  await picture(page);
  assert.deepEqual(service.requests.filter(({ path }) => path === "/v1/compare/html").map(({ query }) => query), ["?before=run%3Aone&after=run%3Atwo"]);
  assert.match(await page.locator("#viewer-title").textContent(), /^redis-server · .* → nginx · /);
  const other = await service.open(await page.evaluate(() => location.hash));
  await picture(other);
  await other.locator("#viewer-title", { hasText: /^redis-server · .* → nginx · / }).waitFor();
  await page.keyboard.press("Escape");
  await page.locator("#viewer").waitFor({ state: "hidden" });
  await page.click("#basket-clear");
  assert.ok(await page.locator("#basket").isHidden());
});

test("an interval of a continuous profile stays fixed while time passes, moves earlier and later, and can be compared", async () => {
  // From 07:30 to 08:00, more in its last third.
  const chunks = Array.from({ length: 30 }, (_, i) => ({ from: NOW - (30 - i) * 60_000, to: NOW - (29 - i) * 60_000, bytes: i < 20 ? 1000 : 4000 }));
  const told = { from: NOW - 1_800_000, to: NOW, bytes: 60_000, chunks };
  service.targets = [target("redis-server", { continuous: { from: told.from, to: told.to, bytes: told.bytes } }), target("nginx")];
  service.runs = [run("one", "nginx")];
  service.windows["redis-server"] = told;
  service.bytes.html = html();
  const page = await service.open("#target=nginx", { timezoneId: "UTC" });
  await rows(page).first().waitFor();
  assert.ok(await page.locator("#window").isHidden());
  await rows(page).first().getByRole("button", { name: /^Compare as A/ }).click();
  await visible(page, "redis-server").click();
  await page.locator("#window").waitFor();
  assert.match(await page.locator("#window-words").textContent(), /07:30:00 – .*08:00:00 · 30 min · 60 kB$/);
  assert.deepEqual([await page.inputValue("#window-from"), await page.inputValue("#window-to")], ["07:59:00", "08:00:00"]);
  // The graph of 07:45.
  await page.fill("#window-from", "7:45");
  await page.fill("#window-to", "7:44");
  await page.locator("#window-to").press("Tab");
  assert.equal(await page.locator("#window [aria-invalid]").count(), 2, "it ends before it begins");
  await page.fill("#window-to", "07:46:30");
  await page.locator("#window-to").press("Tab");
  assert.equal(await page.locator("#window [aria-invalid]").count(), 0);
  assert.equal(await page.locator("#window-chosen").textContent(), "90 s");
  const at = (time) => Date.UTC(2026, 10, 23, ...time.split(":").map(Number));
  const asked = () => service.requests.filter(({ path }) => path.endsWith("/window/files/html")).map(({ query }) => query);
  await page.click("#window-view");
  await picture(page);
  assert.deepEqual(asked(), [`?from=${at("7:45")}&to=${at("7:46:30")}&view=1`]);
  assert.match(await page.locator("#viewer-title").textContent(), /^redis-server · 4711 on db1 · .*07:45:00 – .*07:46:30$/);
  assert.equal(await page.evaluate(() => location.hash), `#target=redis-server&window=${at("7:45")}-${at("7:46:30")}`);
  await page.locator("iframe").evaluate((frame) => { frame.kept = true; });
  // The graph does not move as time passes.
  Object.assign(told, { from: told.from + 60_000, to: told.to + 60_000, chunks: chunks.slice(1) });
  await page.evaluate(() => { const now = Date.now; Date.now = () => now() + 60_000; });
  await service.told(page);
  assert.ok(await page.locator("iframe").evaluate((frame) => frame.kept));
  await page.getByRole("button", { name: "Later ›" }).click();
  await picture(page);
  await page.getByRole("button", { name: "Latest" }).click();
  await picture(page);
  assert.deepEqual(asked().slice(1), [`?from=${at("7:46:30")}&to=${at("7:48")}&view=1`, `?from=${at("7:59:30")}&to=${at("8:01")}&view=1`]);
  assert.equal(await page.getByRole("button", { name: "Latest" }).getAttribute("aria-disabled"), "true");
  await page.click("#viewer-close");
  // By the pointer: from a third to two thirds.
  const box = await page.locator("#window-strip").boundingBox();
  await page.mouse.move(box.x + box.width / 3, box.y + 20);
  await page.mouse.down();
  await page.mouse.move(box.x + 2 * box.width / 3, box.y + 20, { steps: 3 });
  await page.mouse.up();
  assert.deepEqual([await page.inputValue("#window-from"), await page.inputValue("#window-to")].map((time) => time.slice(0, 5)), ["07:41", "07:51"]);
  // By keys alone.
  await page.locator("#window-strip").focus();
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("Shift+ArrowLeft");
  assert.deepEqual([await page.inputValue("#window-from"), await page.inputValue("#window-to")].map((time) => time.slice(0, 5)), ["07:43", "07:53"]);
  await page.click("#window-minute");
  await page.getByRole("button", { name: "Compare this interval as B" }).click();
  await page.click("#basket-open");
  await picture(page);
  assert.deepEqual(service.requests.filter(({ path }) => path === "/v1/compare/html").map(({ query }) => decodeURIComponent(query)), [`?before=run:one&after=window:redis-server:${at("8:00")}:${at("8:01")}`]);
  assert.match(await page.locator("#viewer-title").textContent(), /^nginx · .* → redis-server · 4711 on db1 · .*08:00:00 – .*08:01:00$/);
  assert.deepEqual(complaints(page), []);
  // The link shows the same to others.
  const other = await service.open(`#target=redis-server&window=${at("7:45")}-${at("7:46:30")}`, { timezoneId: "UTC" });
  await picture(other);
  await other.click("#viewer-close");
  await other.locator("#window").waitFor();
  assert.deepEqual([await other.inputValue("#window-from"), await other.inputValue("#window-to")], ["07:45:00", "07:46:30"]);
});
