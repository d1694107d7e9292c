// The page of the profiling service with a mock service that has no clock: its requests, its display and its
// messages. Run by run.sh.
import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { leave } from "./page.mjs";
import { NOW, run, Service, target } from "./service_mock.mjs";
import { complaints, files, html, picture, rows, visible } from "./service_page.mjs";

let service;
beforeEach(async () => { service = await new Service().start(); });
afterEach(async () => {
  await leave();
  service.stop();
});

const names = (page) => page.locator("#targets .name").allTextContents();
const focused = (page) => page.evaluate(() => document.activeElement.id || document.activeElement.tagName);

test("the target list shows live targets first with state, PID and labels, and a click selects", async () => {
  service.targets = [
    target("worker-10", { pid: 10 }), target("worker-9", { pid: 9, run: "r" }), target("api", { state: "GONE", gone: "killed by signal 9" }),
    target("redis-server", { labels: { service: "cart", zone: "eu" }, host: "db7" }),
  ];
  const page = await service.open();
  await visible(page, "redis-server").waitFor();
  assert.deepEqual(await names(page), ["redis-server", "worker-9", "worker-10", "api"]);
  assert.equal(await page.locator("#count-words").textContent(), "3 live targets, 1 gone");
  assert.equal(await visible(page, "redis-server").locator(".under").textContent(), "db7 · cart · eu");
  assert.equal(await visible(page, "worker-9").locator(".busy").textContent(), "recording");
  assert.match(await visible(page, "api").getAttribute("title"), /gone: killed by signal 9/);
  await visible(page, "redis-server").click();
  assert.equal(await page.locator("#about-title").textContent(), "redis-server");
  assert.match(await page.locator("#about-facts").textContent(), /^pid 4711 · on db7 · since .* · up 60 min$/);
  assert.equal(await page.evaluate(() => location.hash), "#target=redis-server");
  await page.locator("#none", { hasText: "No runs yet." }).waitFor();
  await visible(page, "api").click();
  assert.equal(await page.locator("#about-state").textContent(), "gone: killed by signal 9");
  assert.equal(await page.locator("#profile").getAttribute("aria-disabled"), "true");
  assert.equal(await page.locator("#profile-words").textContent(), "The target has ended.");
  assert.deepEqual(complaints(page), []);
});

test("targets can be searched by name, host, label and state, grouped, and selected by group", async () => {
  for (let i = 0; i < 6; i++) service.targets.push(target(`app-${i}`, { pid: i + 1, host: `h${i % 2}`, labels: i < 4 ? { service: i < 2 ? "cart" : "pay" } : {}, state: i === 3 ? "GONE" : "LIVE" }));
  const page = await service.open();
  await visible(page, "app-0").waitFor();
  for (const [text, found] of [["app-2", ["app-2"]], ["h1", ["app-1", "app-5", "app-3"]], ["service=pay live", ["app-2"]], ["gone", ["app-3"]], ["CART h0", ["app-0"]], ["nothing", []]]) {
    await page.fill("#search", text);
    assert.deepEqual(await names(page), found, text);
  }
  assert.equal(await page.locator("#count-words").textContent(), "0 of 6 targets");
  await page.fill("#search", "");
  await page.selectOption("#group-by", "label:service");
  assert.deepEqual(await page.locator(".group-head .title").allTextContents(), ["cart", "pay", "no service"]);
  assert.deepEqual(await names(page), ["app-0", "app-1", "app-2", "app-3", "app-4", "app-5"]);
  await page.locator(".group-head", { hasText: "cart" }).getByRole("button").click();
  assert.equal(await page.locator("#about-title").textContent(), "2 targets");
  // Both are in the address, so a copied link shows the same.
  const hash = await page.evaluate(() => location.hash);
  const other = await service.open(hash);
  await other.locator(".group-head", { hasText: "pay" }).waitFor();
  assert.equal(await other.locator("#about-title").textContent(), "2 targets");
});

test("of a thousand targets only the visible ones have elements, and an unchanged list changes none", async () => {
  for (let i = 0; i < 1000; i++) service.targets.push(target(`app-${i}`, { pid: i + 1, host: `host-${i % 40}`, labels: { service: `s${i % 25}`, version: "1.4" } }));
  const page = await service.open("#target=app-500");
  await visible(page, "app-500").waitFor();
  const count = () => page.locator("#targets *").count();
  assert.ok(await count() < 400, `${await count()} elements`);
  await page.locator("#targets").focus();
  await page.keyboard.press("End");
  assert.equal((await names(page)).at(-1), "app-999");
  await page.keyboard.press("Home");
  await page.keyboard.press("PageDown");
  assert.ok(await count() < 400, `${await count()} elements`);
  await service.told(page);
  // A list without changes neither creates, moves nor rewrites elements.
  await page.evaluate(() => {
    window.changes = [];
    new MutationObserver((all) => window.changes.push(...all.map(({ type, target, attributeName }) => `${type} ${target.id || target.className} ${attributeName}`)))
      .observe(document.getElementById("split"), { subtree: true, childList: true, attributes: true, characterData: true });
  });
  await service.told(page);
  const changes = await page.evaluate(() => window.changes);
  assert.deepEqual(changes.filter((each) => !each.includes(" duration ") && !each.includes(" duration-words ")), []);
  assert.ok(changes.length > 0, "the longest duration was another one");
  const asked = service.requests.length;
  await page.locator("#search").pressSequentially("app-99");
  assert.equal(service.requests.length, asked, "what is searched for is not asked of the service");
  assert.equal(await page.locator("#count-words").textContent(), "11 of 1,000 targets");
  assert.deepEqual(complaints(page), []);
});

test("a run shows its state, progress, message and files, and polling preserves the user's input", async () => {
  service.targets = [target("redis-server", {}, { ALLOC: "was started without libflightline.so", LIVE: "was started without libflightline.so" })];
  const page = await service.open("#target=redis-server");
  await page.locator("#none", { hasText: "No runs yet." }).waitFor();
  assert.equal(await page.inputValue("#mode"), "ITIMER");
  assert.equal(await page.inputValue("#duration"), "30");
  await page.selectOption("#mode", "WALL");
  assert.match(await page.locator("#mode-words").textContent(), /^Samples all threads, running or waiting/);
  assert.equal(await page.locator("#mode option[value=ALLOC]").textContent(), "ALLOC – was started without libflightline.so");
  assert.ok(await page.locator("#mode option[value=ALLOC]").isDisabled());
  assert.equal(await page.locator("#mode-reasons").textContent(), "Not available: ALLOC, LIVE – was started without libflightline.so");
  // Steps of 30, from 1 on too.
  await page.focus("#duration");
  for (const [key, value] of [["ArrowUp", "60"], ["ArrowDown", "30"], ["ArrowDown", "1"], ["ArrowDown", "1"], ["ArrowUp", "30"]]) {
    await page.keyboard.press(key);
    assert.equal(await page.inputValue("#duration"), value);
  }
  await page.click("#more-open");
  await page.fill("#engines", "alloc@512k, lock@1ms");
  await page.fill("#labels", "release=1.4, cause=slow=very");
  await page.fill("#interval", "10m");
  await page.focus("#interval");
  await page.keyboard.press("End");
  service.targets.push(target("nginx"));
  await service.told(page);
  await page.keyboard.type("s");
  await service.told(page);
  assert.equal(await page.inputValue("#interval"), "10ms");
  assert.equal(await focused(page), "interval");
  assert.equal(await page.inputValue("#mode"), "WALL");
  assert.equal(await page.inputValue("#engines"), "alloc@512k, lock@1ms");

  let go;
  service.fault = ({ method }) => method === "POST" ? new Promise((done) => { go = () => done(null); }) : null;
  await page.click("#profile");
  await page.locator("#profile[aria-busy=true]", { hasText: "Starting…" }).waitFor();
  await page.keyboard.press("Enter");
  go();
  await rows(page).first().waitFor();
  service.fault = () => null;
  assert.equal(await focused(page), "profile");
  const posts = service.sent("POST");
  assert.deepEqual(posts.map(({ path, body }) => ({ path, body })), [{
    path: "/v1/targets/redis-server/runs",
    body: { mode: "WALL", duration: 30, interval: "10ms", engines: ["alloc@512k", "lock@1ms"], labels: { release: "1.4", cause: "slow=very" } },
  }], "one press, one run");
  const [made] = service.runs, row = rows(page).first();
  assert.equal(await page.locator("#profile-words").textContent(), "The target is being profiled.");
  await row.evaluate((element) => { element.kept = true; });
  await row.getByRole("button", { name: "Cancel" }).focus();
  Object.assign(made, { elapsed: 12_400, effectiveMode: "WALL (sampled)", message: "threads are read from outside" });
  await service.told(page);
  assert.equal(await row.locator(".length").innerText(), "12 of 30 s");
  const meter = row.getByRole("progressbar");
  assert.deepEqual([await meter.getAttribute("aria-valuenow"), await meter.getAttribute("aria-valuemax")], ["12", "30"]);
  assert.equal(await row.locator(".bar").evaluate((bar) => bar.style.width), `${100 * 12.4 / 30}%`.replace(/(\.\d{4})\d*/, "$1"));
  assert.equal(await row.locator(".truth").textContent(), "as WALL (sampled)");
  assert.equal(await row.locator(".message").textContent(), "threads are read from outside");
  service.end(made.id);
  await service.told(page);
  assert.equal(await row.locator(".status").textContent(), "Finished");
  assert.deepEqual(await row.locator(".links a").allTextContents(), ["HTML", "JFR", "folded", "pprof", "OTLP"]);
  assert.equal(await row.locator(".tags").textContent(), "release=1.4 · cause=slow=very");
  assert.ok(await row.evaluate((element) => element.kept && element.contains(document.activeElement)), "the row and its focus stayed");
  assert.equal(await page.locator("#profile").getAttribute("aria-disabled"), "false");
  assert.deepEqual(complaints(page), []);
});

test("the service's error message is shown until it is dismissed", async () => {
  service.targets = [target("redis-server")];
  const page = await service.open("#target=redis-server");
  const toasts = page.locator(".toast");
  await page.locator("#profile[aria-disabled=false]").waitFor();
  const refuse = async (status, sentence) => {
    service.fault = ({ method }) => method === "POST" ? [status, { errors: [sentence] }] : null;
    await page.click("#profile");
    await toasts.filter({ hasText: sentence }).waitFor();
  };
  await refuse(409, "redis-server is still under profiling.");
  await refuse(429, "2 runs are going on, which is all that are allowed at once: wait for one of them.");
  await refuse(409, "redis-server is still under profiling.");
  assert.equal(await toasts.count(), 2, "the same again takes its own place");
  service.fault = () => null;
  await page.fill("#duration", "0");
  await page.click("#profile");
  await toasts.filter({ hasText: "`duration` must be set between (0s, 300s]." }).waitFor();
  await page.fill("#duration", "");
  await page.click("#profile");
  await page.waitForFunction(() => document.getElementById("profile").getAttribute("aria-busy") === "false");
  assert.equal(service.sent("POST").at(-1).body.duration, "", "what was typed is what is sent");
  await service.told(page);
  await service.told(page);
  assert.equal(await toasts.count(), 3, "polling takes none away");
  assert.equal(await toasts.first().getAttribute("role"), "alert");
  await toasts.first().getByRole("button", { name: "Dismiss" }).click();
  assert.equal(await toasts.count(), 2);
  await page.locator("#main").focus();
  await page.keyboard.press("Escape");
  assert.equal(await toasts.count(), 1);
  assert.equal(await page.inputValue("#duration"), "");
});

test("if the service fails, the lists stay, a line shows since when, and the page recovers", async () => {
  service.targets = [target("redis-server")];
  service.runs = [run("one", "redis-server")];
  const page = await service.open("#target=redis-server");
  await rows(page).first().waitFor();
  const ask = () => page.evaluate(() => document.dispatchEvent(new Event("visibilitychange")));
  const state = (words) => page.locator("#state", { hasText: words }).waitFor({ state: "attached" });
  const kept = async () => {
    assert.deepEqual(await names(page), ["redis-server"]);
    assert.equal(await rows(page).count(), 1);
    assert.ok(await page.locator("#banner").isHidden(), "an error is not taken for being switched off");
  };
  let failed = 0;
  service.fault = ({ path }) => path === "/v1/targets" && failed++ === 0 ? [500, { errors: ["The disk is full."] }] : null;
  await ask();
  await state(/^The service has returned errors since \d\d:\d\d:\d\d – retrying$/);
  assert.equal(await page.locator("#state").getAttribute("title"), "The disk is full.");
  await kept();
  await state(/^$/);
  // A browser retries a request once by itself if the connection ends, so all of these end.
  service.fault = () => "drop";
  await ask();
  await state(/^The service has been unreachable since \d\d:\d\d:\d\d – retrying$/);
  await kept();
  service.fault = () => null;
  await state(/^$/);
  await kept();
  assert.equal(await page.locator(".toast").count(), 0);
  assert.deepEqual(complaints(page), []);
});

test("polling takes one second during a run, five otherwise, backs off on errors and stops while hidden", async () => {
  service.targets = [target("redis-server")];
  const page = await service.open("#target=redis-server", { prepare: (page) => page.clock.install({ time: NOW }) });
  await page.locator("#none", { hasText: "No runs yet." }).waitFor();
  // The clock is stopped from here on.
  await page.clock.pauseAt(NOW + 3_600_000);
  await page.evaluate(() => {
    const ask = window.fetch, set = window.setTimeout;
    window.counted = { asked: 0, timers: 0 };
    window.fetch = (path, ...more) => { window.counted.asked += /^v1\/targets(\?|$)/.test(path); return ask(path, ...more); };
    window.setTimeout = (...of) => { window.counted.timers++; return set(...of); };
  });
  /** Runs `work`, and returns how often the service was queried. Each answer has been handled when the
   * next query is due. */
  const askedBy = async (work) => {
    const before = await page.evaluate(() => ({ ...window.counted }));
    await work();
    const times = await page.evaluate(() => window.counted.asked) - before.asked;
    await page.waitForFunction((timers) => window.counted.timers >= timers, before.timers + times);
    return times;
  };
  const asked = (ms) => askedBy(() => page.clock.runFor(ms));
  const hide = (hidden) => page.evaluate((hidden) => {
    Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
  }, hidden);
  // A query that is under way by itself is cancelled.
  assert.equal(await askedBy(() => hide(false)), 1);
  assert.equal(await asked(4900), 0);
  assert.equal(await asked(200), 1);
  service.targets[0].run = "r";
  assert.equal(await asked(5000), 1);
  assert.equal(await asked(1000), 1);
  assert.equal(await asked(1000), 1);
  await hide(true);
  assert.equal(await asked(600_000), 0);
  assert.equal(await askedBy(() => hide(false)), 1, "at once when it is looked at again");
  service.fault = () => [500, { errors: ["no"] }];
  assert.equal(await asked(1000), 1);
  for (const wait of [1000, 2000, 4000, 8000, 15_000, 15_000]) {
    assert.equal(await asked(wait - 100), 0, `${wait} ms`);
    assert.equal(await asked(100), 1, `${wait} ms`);
  }
  service.fault = () => null;
  assert.equal(await asked(15_000), 1);
  assert.equal(await page.locator("#state").textContent(), "");
  assert.equal(await asked(1000), 1, "as often as before");
});

test("without --profiling a banner shows how to enable it, and the rest of the page works", async () => {
  service.targets = [target("redis-server")];
  service.profiling = false;
  const page = await service.open("#target=redis-server");
  const words = "Profiling on demand is off. To enable it, start the service with flightline serve --profiling.";
  await page.locator("#banner").waitFor();
  assert.equal(await page.locator("#banner").innerText(), words);
  assert.deepEqual(await names(page), ["redis-server"]);
  assert.equal(await page.locator("#profile").getAttribute("aria-disabled"), "true");
  // A service without that path means the same.
  service.fault = () => [404, { errors: ["Profiling on demand is off."] }];
  const other = await service.open();
  await other.locator("#banner").waitFor();
  assert.ok(await other.locator("#search").isVisible());
  service.fault = () => null;
  service.profiling = true;
  await service.told(other);
  assert.ok(await other.locator("#banner").isHidden(), "it is seen when it has been turned on");
});

test("the page asks for the token, reports a wrong one, and loads after the right one", async () => {
  service.token = "s3cret";
  service.targets = [target("redis-server")];
  const page = await service.open("#target=redis-server");
  await page.locator("#session[open]").waitFor();
  assert.equal(await focused(page), "token");
  await page.keyboard.type("wrong");
  await page.keyboard.press("Enter");
  await page.locator("#session-words", { hasText: "This is not the token" }).waitFor();
  await page.keyboard.press("Escape");
  assert.ok(await page.locator("#session").isVisible(), "there is nothing behind it yet");
  await page.fill("#token", "s3cret");
  await page.keyboard.press("Enter");
  await visible(page, "redis-server").waitFor();
  assert.ok(await page.locator("#session").isHidden());
  assert.deepEqual(service.sent("POST").map(({ path, body }) => [path, body]), [["/v1/session", { token: "wrong" }], ["/v1/session", { token: "s3cret" }]]);
  assert.equal(await page.evaluate(() => document.cookie + JSON.stringify(localStorage) + location.href).then((all) => all.includes("s3cret")), false);
});

test("the printed link logs in, and the token is removed from the address", async () => {
  service.token = "s3cret";
  service.targets = [target("redis-server"), target("api")];
  const page = await service.open("#token=s3cret&target=api");
  await visible(page, "redis-server").waitFor();
  assert.ok(await page.locator("#session").isHidden());
  assert.equal(await page.locator("#about-title").textContent(), "api");
  assert.equal(await page.evaluate(() => location.hash), "#target=api");
  assert.deepEqual(service.sent("POST").map(({ body }) => body), [{ token: "s3cret" }]);
  const wrong = await service.open("#token=wrong");
  assert.equal(await wrong.evaluate(() => location.href.includes("wrong")), false);
});

test("a cancelled run stays in the list, and deletion is confirmed in place", async () => {
  service.targets = [target("redis-server", { run: "two" })];
  service.runs = [run("two", "redis-server", { status: "RUNNING", files: [], elapsed: 9_000, triggerTime: NOW + 1 }), run("one", "redis-server")];
  const page = await service.open("#target=redis-server");
  await rows(page).first().waitFor();
  await page.keyboard.press("c");
  await page.locator("[data-status=CANCELLED]").waitFor();
  assert.equal(service.sent("POST")[0].path, "/v1/runs/two/cancel");
  const row = page.locator("[data-status=CANCELLED]"), end = row.locator(".acts .quiet").last();
  assert.equal(await row.locator(".length").innerText(), "9 of 30 s");
  await end.focus();
  await page.keyboard.press("Enter");
  assert.equal(await end.textContent(), "Delete permanently?");
  await page.keyboard.press("Escape");
  assert.equal(await end.textContent(), "Delete");
  await page.keyboard.press("Enter");
  await page.keyboard.press("Enter");
  await row.waitFor({ state: "detached" });
  assert.deepEqual(service.sent("DELETE").map(({ path }) => path), ["/v1/runs/two"]);
  assert.equal(await rows(page).count(), 1);
  assert.ok(await rows(page).first().evaluate((row) => row === document.activeElement), "the next row has the focus");
  // A failure of the service is shown, and the row stays.
  service.fault = ({ method }) => method === "DELETE" ? [500, { errors: ["The file cannot be removed: look at the disk."] }] : null;
  await rows(page).first().locator(".acts .quiet").last().click();
  await rows(page).first().locator(".acts .quiet").last().click();
  await page.locator(".toast", { hasText: "look at the disk" }).waitFor();
  assert.equal(await rows(page).count(), 1);
  assert.equal(await page.locator("#profile-words").textContent(), "");
});

test("a run of several targets has a run and an error message for each", async () => {
  service.targets = ["a", "b", "c"].map((id, i) => target(id, { pid: i + 1 }, id === "b" ? { LOCK: "no libc that it knows" } : {}));
  service.targets.push(target("dead", { state: "GONE", gone: "killed by signal 9" }));
  const page = await service.open();
  await visible(page, "dead").waitFor();
  await page.locator("#targets").focus();
  for (const key of ["x", "j", "x", "j", "j", "x"]) await page.keyboard.press(key);
  assert.equal(await page.locator("#about-title").textContent(), "3 targets");
  assert.deepEqual(await page.locator("#targets [aria-selected=true] .name").allTextContents(), ["a", "b", "dead"]);
  assert.equal(await page.locator("#mode option[value=LOCK]").textContent(), "LOCK – on 2 of 3");
  await page.keyboard.press("p");
  await rows(page).nth(2).waitFor();
  assert.deepEqual(service.sent("POST").map(({ path, body }) => ({ path, body })), [{ path: "/v1/runs", body: { targets: ["a", "b", "dead"], mode: "ITIMER", duration: 30 } }]);
  assert.deepEqual(await rows(page).locator("td.of").allInnerTexts(), ["dead\n4711 on db1", "b\n2 on db1", "a\n1 on db1"]);
  assert.equal(await rows(page).first().locator(".message").textContent(), "It is gone: killed by signal 9.");
  assert.equal(await page.getByRole("button", { name: "Cancel 2 running" }).isVisible(), true);
  // The group has a page of its own.
  await rows(page).first().getByRole("link", { name: "group" }).click();
  assert.equal(await page.locator("#about-title").textContent(), "Group run");
  await rows(page).nth(2).waitFor();
  await page.getByRole("button", { name: "Cancel 2 running" }).click();
  await page.locator("[data-status=CANCELLED]").nth(1).waitFor();
  await page.goBack();
  assert.equal(await page.locator("#about-title").textContent(), "3 targets");
  // A range with Shift, one more with Ctrl, one alone without.
  await page.locator("#targets .target").first().click();
  await page.locator("#targets .target").nth(2).click({ modifiers: ["Shift"] });
  assert.equal(await page.locator("#about-title").textContent(), "3 targets");
  await page.locator("#targets .target").nth(1).click({ modifiers: ["Control"] });
  assert.equal(await page.locator("#about-title").textContent(), "2 targets");
  // If there is room for one side only, check boxes select and a click on a name opens.
  const narrow = await service.open("", { viewport: { width: 400, height: 700 } });
  for (const at of [0, 1]) await narrow.locator("#targets .box").nth(at).click();
  assert.ok(await narrow.locator("#side").isVisible());
  await narrow.getByRole("button", { name: "Show 2 selected" }).click();
  assert.ok(await narrow.locator("#profile").isVisible());
  await narrow.locator("#back").click();
  await narrow.locator("#targets .name").first().click();
  assert.ok(await narrow.locator("#profile").isVisible());
  assert.deepEqual(complaints(page), []);
});

test("the keyboard searches, opens, profiles, cancels, views, goes back and shows help", async () => {
  service.targets = [target("nginx"), target("redis-server", { labels: { service: "cart" } })];
  service.bytes.html = html();
  const page = await service.open();
  await visible(page, "nginx").waitFor();
  await page.keyboard.press("/");
  assert.equal(await focused(page), "search");
  await page.keyboard.type("service=cart");
  await page.keyboard.press("Enter");
  await page.locator("#none", { hasText: "No runs yet." }).waitFor();
  assert.equal(await page.locator("#about-title").textContent(), "redis-server");
  assert.equal(await focused(page), "main", "the keyboard goes on at the right");
  await page.keyboard.press("m");
  assert.equal(await focused(page), "mode");
  await page.keyboard.type("WALL");
  await page.keyboard.press("p");
  assert.equal(service.sent("POST").length, 0, "a letter in a field is a letter");
  await page.keyboard.press("Escape");
  await page.selectOption("#mode", "WALL");
  await page.locator("#main").focus();
  await page.keyboard.press("p");
  await rows(page).first().waitFor();
  assert.equal(service.sent("POST")[0].body.mode, "WALL");
  await page.keyboard.press("c");
  await page.locator("[data-status=CANCELLED]").waitFor();
  await page.keyboard.press("p");
  await rows(page).nth(1).waitFor();
  service.end(service.runs[0].id);
  await service.told(page);
  await page.keyboard.press("r");
  await page.keyboard.press("j");
  assert.ok(await rows(page).nth(1).evaluate((row) => row === document.activeElement));
  await page.keyboard.press("k");
  await page.keyboard.press("Enter");
  await picture(page);
  assert.equal(await focused(page), "IFRAME", "the picture has the keyboard");
  await page.keyboard.press("i");
  await page.frameLocator("iframe").locator("body[data-view=icicle]").waitFor();
  await page.keyboard.press("Escape");
  await page.locator("#viewer").waitFor({ state: "hidden" });
  assert.ok(await rows(page).first().evaluate((row) => row === document.activeElement), "back where it was opened");
  await page.keyboard.press("?");
  assert.ok(await page.locator("#help").isVisible());
  assert.match(await page.locator("#keys").innerText(), /\/\s+search targets/);
  await page.keyboard.press("Escape");
  assert.ok(await page.locator("#help").isHidden());
  await page.keyboard.press("t");
  assert.equal(await focused(page), "targets");
  // One press of Tab leaves the list, however long it is.
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.closest("nav")), null);
  assert.deepEqual(complaints(page), []);
});

test("names, labels, reasons and messages that contain markup are shown as text", async () => {
  const nasty = "<img src=x onerror=\"document.title='hit'\">", turned = "safe\u202Egnp.exe", lines = "one\ntwo\u0000\u001b[31m";
  service.targets = [
    target(nasty, { name: nasty, host: nasty, labels: { [nasty]: "</option><script>document.title='hit'</script>", ["__proto__x"]: lines }, gone: "" }, { ALLOC: nasty }),
    target("rtl", { name: turned, labels: { service: turned } }), target("lines", { name: lines, labels: JSON.parse('{"__proto__": "x"}') }), target("empty", { name: "", host: "" }),
    target("wide", { name: "w".repeat(50_000), labels: { long: "l".repeat(50_000) } }),
  ];
  service.runs = [run("r1", nasty, { targetName: nasty, message: nasty + turned, effectiveMode: nasty, labels: { [nasty]: nasty }, engines: [nasty], files: ["html", "jfr", nasty] })];
  const page = await service.open("#by=label%3Aservice");
  await visible(page, "<img").waitFor();
  await page.selectOption("#group-by", "label:__proto__");
  await page.selectOption("#group-by", `label:${nasty}`);
  await visible(page, "<img").click();
  await rows(page).first().waitFor();
  service.fault = ({ method }) => method === "POST" ? [409, { errors: [nasty, turned] }] : null;
  await page.click("#profile");
  await page.locator(".toast").waitFor();
  await rows(page).first().getByRole("button", { name: /^Compare as A/ }).click();
  assert.match(await page.locator("#basket-before").textContent(), /<img src=x/);
  assert.equal(await page.locator("img, #targets script, #main script, .toast script").count(), 0);
  assert.match(await page.title(), /^<img/);
  const said = await page.evaluate(() => document.body.innerText + [...document.querySelectorAll("[title], [aria-label]")].map((each) => each.title + each.ariaLabel).join(""));
  assert.ok(!/[\u0000-\u0008\u001b\u202a-\u202e\u2066-\u2069]/.test(said), "nothing turns or hides what is beside it");
  assert.ok(said.includes("safe\\u{202e}gnp.exe") && said.includes("one␊two␀␛[31m"));
  assert.ok(said.length < 100_000, `${said.length} characters`);
  await page.setViewportSize({ width: 400, height: 700 });
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= 400 && document.getElementById("main").scrollWidth <= 400));
  await page.locator("#back").click();
  await visible(page, "www").click();
  assert.ok(await page.evaluate(() => document.getElementById("main").scrollWidth <= 400), "a long name wraps");
  assert.deepEqual(complaints(page), []);
});

test("the page works wide and narrow, light and dark, and with screen readers, without requests to other hosts", async () => {
  service.targets = [target("redis-server", { labels: { service: "cart" }, run: "busy" }), target("nginx")];
  service.runs = [run("busy", "redis-server", { status: "RUNNING", files: [], elapsed: 7_100, triggerTime: NOW + 1 }), run("one", "redis-server", { message: "perf events are not permitted here, so timers are used" })];
  for (const [width, colorScheme] of [[1000, "light"], [400, "dark"]]) {
    const page = await service.open("", { viewport: { width, height: 700 }, colorScheme });
    await visible(page, "redis-server").click();
    await rows(page).nth(1).waitFor();
    const [scrolled, ground] = await page.evaluate(() => [document.documentElement.scrollWidth, getComputedStyle(document.body).backgroundColor]);
    assert.ok(scrolled <= width, `${scrolled} px wide`);
    assert.equal(ground, colorScheme === "dark" ? "rgb(22, 23, 27)" : "rgb(255, 255, 255)");
    for (const part of ["#profile", "#mode", "#runs-body tr:first-child .acts button", "#runs-body tr:last-child .links a:last-child"]) {
      await page.locator(part).last().scrollIntoViewIfNeeded();
      const box = await page.locator(part).last().boundingBox();
      assert.ok(box.x >= 0 && box.x + box.width <= width, `${part} in a window of ${width}`);
    }
    assert.equal(await page.locator("#side").isVisible(), width > 760);
    assert.equal(await page.getByRole("table", { name: "Runs" }).getByRole("row").count(), width > 760 ? 3 : 2, "with the heads, where there are columns");
    assert.equal(await page.getByRole("progressbar").getAttribute("aria-valuenow"), "7");
    if (width > 760) {
      assert.equal(await page.getByRole("listbox", { name: "Targets", exact: true }).getByRole("option", { selected: true }).count(), 1);
      await page.locator("#targets").focus();
      await page.keyboard.press("j");
      const active = await page.locator("#targets").getAttribute("aria-activedescendant");
      assert.equal(await page.locator(`#${active} .name`).textContent(), await page.locator("#targets .current .name").textContent());
    }
    // Each control has a name.
    const nameless = await page.evaluate(() => [...document.querySelectorAll("button, a, input, select")].filter((each) =>
      each.offsetParent && !(each.textContent.trim() || each.ariaLabel || each.labels?.length)).map((each) => each.outerHTML));
    assert.deepEqual(nameless, []);
    assert.ok(page.requests.every((url) => url.startsWith(service.url) || url.startsWith("data:")), String(page.requests));
    assert.deepEqual(complaints(page), []);
  }
});

test("a target that ended is removed after confirmation, and local processes are added if the service allows it", async () => {
  service.targets = [target("old", { state: "GONE", gone: "it ended" })];
  const page = await service.open("#target=old");
  await page.getByRole("button", { name: "Forget" }).click();
  assert.equal(service.sent("DELETE").length, 0);
  await page.getByRole("button", { name: "Delete it and its runs permanently?" }).click();
  await page.locator("#count-words", { hasText: "No targets yet" }).waitFor();
  assert.deepEqual(service.sent("DELETE").map(({ path }) => path), ["/v1/targets/old"]);
  assert.ok(await page.locator("#adopt-open").isHidden());

  service.processes = [{ pid: 1, name: "init", command: "/sbin/init", user: "root" }, { pid: 4711, name: "redis-server", command: "redis-server *:6379", user: "redis" }];
  const other = await service.open();
  await other.locator("#adopt-open").click();
  await other.locator("#adopt[open]").waitFor();
  await other.keyboard.type("redis");
  assert.deepEqual(await other.locator(".process .name").allTextContents(), ["redis-server"]);
  await other.keyboard.press("Enter");
  await other.locator("#adopt").waitFor({ state: "hidden" });
  assert.deepEqual(service.adopted, [4711]);
});
