// The page with the real service: real answers, flame graphs and headers, and a restart of the service. Run
// by run.sh.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, test } from "node:test";
import { fetched, folder, go, leave } from "./page.mjs";
import { Agent, serve } from "./service_agent.mjs";
import { complaints, picture, visible } from "./service_page.mjs";

afterEach(leave);
const recording = (name) => readFileSync(join(process.env.RECORDINGS, name));
const rows = (page) => page.locator("#runs-body tr");
const history = () => mkdtempSync(join(folder, "history-"));

test("a process that joins can be profiled from the page, which shows its functions", async () => {
  const service = await serve("--profiling", "--listen", "127.0.0.1:0", "--dir", history());
  const redis = await Agent.join(service.url, "redis-server", { labels: { service: "cart" } }, { ALLOC: "was started without libflightline.so" });
  const nginx = await Agent.join(service.url, "nginx", { pid: 80 });
  const page = await go(service.url);
  await visible(page, "redis-server").click();
  await page.locator("#none", { hasText: "No runs yet." }).waitFor();
  assert.ok(await page.locator("#mode option[value=ALLOC]").isDisabled());
  assert.ok(await page.locator("#banner").isHidden());

  // The service's error, word for word.
  await page.fill("#duration", "0");
  await page.click("#profile");
  await page.locator(".toast", { hasText: "`duration` must be set between (0s, 300s]." }).waitFor();
  await page.locator(".toast button").click();
  await page.fill("#duration", "30");
  await page.selectOption("#mode", "WALL");
  await page.click("#more-open");
  await page.fill("#labels", "release=1.4");
  await page.click("#profile");
  await rows(page).first().waitFor();
  const start = await redis.told();
  assert.deepEqual({ ...start, run: "", number: 0 }, { number: 0, command: "start", run: "", mode: "WALL", duration: 30, interval: null, engines: [] });
  await redis.progress(start.run, { state: "started", effectiveMode: "WALL (from outside)", message: "threads are read from outside" });
  await rows(page).first().locator(".truth", { hasText: "as WALL (from outside)" }).waitFor();
  assert.equal(await page.locator("#profile-words").textContent(), "The target is being profiled.");
  assert.equal(await rows(page).first().locator(".tags").textContent(), "release=1.4");
  await redis.deliver(start.run, recording("ap-native-wall.jfr"), "");
  await page.locator("[data-status=FINISHED]").waitFor();

  for (const [format, magic] of [["html", /^<!DOCTYPE html>/], ["jfr", /^FLR\0/], ["folded", /^\S.* \d+\n/], ["pprof", /^\x1f\x8b/], ["otlp", /^\n/]]) {
    const [download] = await Promise.all([page.waitForEvent("download"), rows(page).first().locator(`[data-format=${format}]`).click()]);
    assert.match(await fetched(download), magic, format);
  }
  await rows(page).first().getByRole("link", { name: /^View/ }).click();
  const frame = await picture(page);
  assert.equal(await frame.locator("body").evaluate(() => window.origin), "null");
  assert.match(await frame.locator("#details").textContent(), /^all \([\d,]+ samples, 100\.00%\)$/);
  await page.keyboard.press("Escape");
  await page.locator("#viewer").waitFor({ state: "hidden" });

  // Another one is ended early, by key; its data so far is kept.
  await page.locator("#main").focus();
  await page.keyboard.press("p");
  await rows(page).nth(1).waitFor();
  const second = await redis.told();
  await redis.progress(second.run, { state: "started", effectiveMode: "", message: "" });
  await page.keyboard.press("c");
  assert.deepEqual(await redis.told().then(({ command, run }) => [command, run]), ["stop", second.run]);
  await redis.deliver(second.run, recording("ap-native-wall.jfr"), "");
  await page.locator("[data-status=CANCELLED]").waitFor();

  // Both, side by side.
  await rows(page).nth(1).getByRole("button", { name: /^Compare as A/ }).click();
  await rows(page).first().getByRole("button", { name: /^Compare as B/ }).click();
  await page.click("#basket-open");
  const both = await picture(page);
  assert.ok(await both.locator("body.compared").isVisible());
  await page.keyboard.press("Escape");
  await page.locator("#viewer").waitFor({ state: "hidden" });

  // Several at once; one of them fails at once, and one stops answering.
  await page.locator("#targets").focus();
  for (const key of ["Home", "x"]) await page.keyboard.press(key);
  assert.equal(await page.locator("#about-title").textContent(), "2 targets");
  await page.keyboard.press("p");
  const [one, other] = await Promise.all([redis.told(), nginx.told()]);
  await nginx.progress(other.run, { state: "failed", message: "No access to perf events: give it CAP_PERFMON." });
  await page.locator("[data-status=FAILED] .message", { hasText: "No access to perf events" }).waitFor();
  await redis.gone("killed by signal 9");
  await page.locator(`[data-status=FAILED]`, { hasText: "killed by signal 9" }).waitFor();
  await visible(page, "redis-server").click();
  await page.locator("#about-state", { hasText: "gone: killed by signal 9" }).waitFor();
  assert.equal(one.command, "start");

  const doomed = page.locator("[data-status=CANCELLED]");
  await doomed.getByRole("button", { name: "Delete" }).click();
  await doomed.getByRole("button", { name: "Delete permanently?" }).click();
  await doomed.waitFor({ state: "detached" });
  assert.ok(page.requests.every((url) => url.startsWith(service.url) || url.startsWith("data:")), String(page.requests));
  assert.deepEqual(complaints(page), []);
  await Promise.all([redis.vanish(), nginx.vanish()]);
  await service.stop();
});

test("a continuous profile is selected by time and compared with a run", async () => {
  const service = await serve("--profiling", "--listen", "127.0.0.1:0", "--dir", history());
  const agent = await Agent.join(service.url, "redis-server");
  await agent.ask("POST", `v1/agents/${agent.id}/chunks`, recording("ap-native-cpu.jfr"));
  const page = await go(`${service.url}#target=${agent.id}`);
  await page.locator("#window").waitFor();
  assert.match(await page.locator("#window-words").textContent(), / – .* · up to [\d.]+ samples per second · \d+ kB$/);
  await page.click("#window-all");
  await page.click("#window-view");
  const frame = await picture(page);
  const [, samples] = /^all \(([\d,]+) samples, 100\.00%\)$/.exec(await frame.locator("#details").textContent());
  assert.ok(Number(samples.replaceAll(",", "")) > 10, samples);
  await page.click("#viewer-close");
  await page.locator("#window-a").click();
  await page.click("#profile");
  const { run } = await agent.told();
  await agent.deliver(run, recording("ap-native-ctimer.jfr"));
  await page.locator("[data-status=FINISHED]").getByRole("button", { name: /^Compare as B/ }).click();
  await page.click("#basket-open");
  assert.ok(await (await picture(page)).locator("body.compared").isVisible());
  assert.deepEqual(complaints(page), []);
  await agent.vanish();
  await service.stop();
});

test("the page waits for a killed service and shows the history after its restart", async () => {
  const directory = history(), service = await serve("--profiling", "--listen", "127.0.0.1:0", "--dir", directory);
  const agent = await Agent.join(service.url, "redis-server");
  await fetch(`${service.url}v1/targets/${agent.id}/runs`, { method: "POST", body: JSON.stringify({ mode: "CPU", duration: 30 }) });
  const { run } = await agent.told();
  await agent.deliver(run, recording("ap-native-cpu.jfr"));
  const page = await go(`${service.url}#target=${agent.id}`);
  await page.locator("[data-status=FINISHED]").waitFor();
  await agent.vanish();
  await service.stop("SIGKILL");
  await page.locator("#state", { hasText: /^The service has been unreachable since \d\d:\d\d:\d\d – retrying$/ }).waitFor();
  assert.equal(await rows(page).count(), 1);
  const again = await serve("--profiling", "--listen", new URL(service.url).host, "--dir", directory);
  await page.locator("#state", { hasText: /^$/ }).waitFor({ state: "attached" });
  assert.equal(await page.locator("[data-status=FINISHED]").count(), 1);
  await rows(page).first().getByRole("link", { name: /^View/ }).click();
  await picture(page);
  await again.stop();
});

test("the page works with profiling disabled, and with a token", async () => {
  const off = await serve("--listen", "127.0.0.1:0", "--dir", history());
  const agent = await Agent.join(off.url, "redis-server");
  const page = await go(off.url);
  await page.locator("#banner").waitFor();
  assert.match(await page.locator("#banner").innerText(), /start the service with flightline serve --profiling/);
  await visible(page, "redis-server").click();
  assert.equal(await page.locator("#profile").getAttribute("aria-disabled"), "true");
  await agent.vanish();
  await off.stop();

  const token = join(folder, "token");
  writeFileSync(token, "quite-a-secret-token\n", { mode: 0o600 });
  const closed = await serve("--profiling", "--listen", "127.0.0.1:0", "--dir", history(), "--token-file", token);
  const other = await Agent.join(closed.url, "nginx", {}, {}, "quite-a-secret-token");
  await fetch(`${closed.url}v1/targets/${other.id}/runs`, { method: "POST", body: JSON.stringify({ mode: "CPU", duration: 30 }), headers: { Authorization: "Bearer quite-a-secret-token" } });
  const { run } = await other.told();
  await other.deliver(run, recording("ap-native-cpu.jfr"));
  const guest = await go(`${closed.url}#target=${other.id}&run=${run}`);
  await guest.locator("#session[open]").waitFor();
  await guest.keyboard.type("wrong");
  await guest.keyboard.press("Enter");
  await guest.locator("#session-words", { hasText: /\S/ }).waitFor();
  await guest.fill("#token", "quite-a-secret-token");
  await guest.keyboard.press("Enter");
  await picture(guest);
  await guest.locator("#viewer-close").click();
  // The cookie also authorises changes.
  await guest.locator("[data-status=FINISHED]").getByRole("button", { name: "Delete" }).click();
  await guest.locator("[data-status=FINISHED]").getByRole("button", { name: "Delete permanently?" }).click();
  await guest.locator("#none", { hasText: "No runs yet." }).waitFor();
  assert.deepEqual(complaints(guest), []);
  await other.vanish();
  await closed.stop();
});

test("a local process added from the page is profiled by a real agent, and its flame graph shows its functions", async () => {
  const victim = spawn(process.execPath, ["-e", "function spin() { let sum = 0; for (;;) sum += Math.sqrt(sum + 1); } spin()"], { stdio: "ignore" });
  const service = await serve("--profiling", "--local", "--listen", "127.0.0.1:0", "--dir", history());
  const page = await go(service.url);
  await page.locator("#adopt-open").click();
  await page.locator("#adopt[open]").waitFor();
  await page.keyboard.type(String(victim.pid));
  assert.equal(await page.locator(".process", { hasText: String(victim.pid) }).count(), 1);
  await page.keyboard.press("Enter");
  await page.locator("#adopt").waitFor({ state: "hidden" });
  await visible(page, String(victim.pid)).click();
  assert.equal(await page.inputValue("#mode"), "CPU", "what is first of all that is possible from outside");
  assert.match(await page.locator("#mode-reasons").textContent(), /^Not available: .*ITIMER/);
  await page.fill("#duration", "1");
  await page.keyboard.press("Enter");
  await page.locator("[data-status=FINISHED]").waitFor();
  await rows(page).first().getByRole("link", { name: /^View/ }).click();
  const frame = await picture(page);
  assert.match(await frame.locator("#details").textContent(), /^all \([\d,]+ samples, 100\.00%\)$/);
  await page.click("#viewer-close");
  victim.kill("SIGKILL");
  await page.locator("#about-state", { hasText: /^gone/ }).waitFor();
  assert.deepEqual(complaints(page), []);
  await service.stop();
});
