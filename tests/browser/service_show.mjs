// nginx, redis-server and a Python service run under one profiling service, and a slowdown that is planted in one is found from the page alone.
// Takes about two minutes: BROWSER_TESTS=service_show.mjs tests/browser/run.sh; SHOTS=FOLDER keeps pictures of the page.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { copyFileSync, mkdtempSync, writeFileSync } from "node:fs";
import { Agent as Connections, request } from "node:http";
import { createServer } from "node:net";
import { dirname, join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { flightline, folder, go, leave } from "./page.mjs";
import { serve } from "./service_agent.mjs";
import { picture } from "./service_page.mjs";

const ENDING = [];
after(async () => {
  await leave();
  for (const end of ENDING.reverse()) await end();
});
async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  await new Promise((done) => server.close(done));
  return port;
}
function started(program, args) {
  const child = spawn(program, args, { stdio: ["ignore", "ignore", process.env.SHOW_SAYS ? "inherit" : "ignore"] });
  ENDING.push(async () => {
    child.kill("SIGTERM");
    if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
  });
  return child;
}
const connections = new Connections({ keepAlive: true, maxSockets: 4 });
const get = (port, path) => new Promise((done, no) => {
  request({ port, host: "127.0.0.1", path, agent: connections }, (response) => { response.resume(); response.on("end", () => done(response.statusCode)); }).on("error", no).end();
});
async function until(what, is, every = 500) {
  for (;;) {
    const found = await is().catch(() => null);
    if (found) return found;
    await new Promise((done) => setTimeout(done, every));
  }
}
const say = (text) => console.log(`${new Date().toISOString().slice(11, 19)} ${text}`);
const shot = async (page, name) => { if (process.env.SHOTS) await page.screenshot({ path: join(process.env.SHOTS, `${name}.png`) }); };

test("the page shows which of three programs slowed down, since when, and in which function", async () => {
  const work = mkdtempSync(join(folder, "show-")), [redis, shop, web] = [await freePort(), await freePort(), await freePort()];
  const service = await serve("--profiling", "--listen", "127.0.0.1:0", "--dir", join(work, "history"));
  ENDING.push(() => service.stop());
  const under = (label, ...program) => started(flightline, ["agent", "--join", service.url.replace(/\/$/, ""), "--continuous=99", `--label=${label}`, "--", ...program]);
  const script = join(work, "shop.py"), conf = join(work, "nginx.conf");
  copyFileSync(join(dirname(fileURLToPath(import.meta.url)), "service_shop.py"), script);
  writeFileSync(conf, `daemon off; master_process off; error_log ${work}/error.log; pid ${work}/nginx.pid; events {}
    http { access_log off; client_body_temp_path ${work}; proxy_temp_path ${work}; fastcgi_temp_path ${work}; uwsgi_temp_path ${work}; scgi_temp_path ${work};
      server { listen 127.0.0.1:${web}; location / { proxy_pass http://127.0.0.1:${shop}; } location /static { return 200 "static"; } } }`);
  under("tier=store", "redis-server", "--port", String(redis), "--bind", "127.0.0.1", "--save", "", "--dir", work, "--set-proc-title", "no");
  // The command may be a script of a version manager.
  const python = execFileSync("python3", ["-c", "import sys; print(sys.executable)"], { encoding: "utf8" }).trim();
  under("tier=shop", python, script, String(shop), String(redis));
  under("tier=web", "nginx", "-p", work, "-c", conf);
  await until("all three", async () => await get(web, "/") === 200);
  say("all three answer");
  // The same number of requests as before, however long they take.
  let open = 0, answered = 0;
  const load = setInterval(() => {
    for (const path of ["/", "/static", "/static", "/static"]) if (open < 50) {
      open++;
      get(web, path).then(() => { answered++; }, () => {}).finally(() => { open--; });
    }
  }, 15);
  ENDING.push(() => clearInterval(load));

  const page = await go(service.url, { viewport: { width: 1280, height: 800 }, timezoneId: "UTC" });
  const row = (name) => page.locator("#targets .target", { hasText: name });
  for (const name of ["redis-server", "python", "nginx"]) await row(name).waitFor();
  const names = await page.locator("#targets .name").allTextContents();
  say(`the page lists ${names.join(", ")}`);
  await until("a minute of each", async () => {
    const { targets } = await (await fetch(`${service.url}v1/targets?load=1`)).json();
    return targets.every(({ load }) => load?.samples.filter(Number.isFinite).length >= 4);
  });
  assert.equal(await page.locator(".target.risen").count(), 0, "nothing has risen yet");
  await shot(page, "service-show-before");

  const planted = Date.now();
  assert.equal(await get(web, "/release?2"), 200);
  say("release 2 of the shop is on");

  // Finds the program: from here on, only the page gives information.
  await page.locator(".target.risen").first().waitFor({ timeout: 180_000 });
  const risen = await page.locator(".target.risen .name").allTextContents();
  say(`risen: ${risen.join(", ")}, ${await page.locator(".target.risen .busy").first().textContent()}`);
  assert.equal(risen.length, 1);
  assert.match(risen[0], /^python/);
  await row("python").click();
  // The start of the slowdown.
  await page.locator("#window-risen").waitFor();
  const words = await page.locator("#risen-words").textContent();
  const [, since] = /since (\d\d:\d\d:\d\d)$/.exec(words), at = Date.parse(`${new Date(planted).toISOString().slice(0, 10)}T${since}Z`);
  say(`${words}; planted at ${new Date(planted).toISOString().slice(11, 19)}`);
  assert.ok(Math.abs(at - planted) <= 15_000, `${since} for ${new Date(planted).toISOString()}`);
  await shot(page, "service-show-risen");
  // The function.
  await page.locator("#risen-open").click();
  const both = await picture(page);
  await both.locator("body.compared").waitFor();
  say(await page.locator("#viewer-title").textContent());
  await shot(page, "service-show-compared");
  await both.locator("body").press("t");
  const first = both.locator("#table .row").first();
  await first.waitFor();
  const lines = (await both.locator("#table .row").evaluateAll((rows) => rows.map((row) => [...row.children].map((cell) => cell.textContent).join("  ")))).slice(0, 5);
  say(`widest in the difference:\n  ${lines.join("\n  ")}`);
  await shot(page, "service-show-table");
  assert.match(lines[0], /^list_contains/);
  await page.keyboard.press("Escape");
  await page.locator("#viewer").waitFor({ state: "hidden" });

  // The same with Flink's names, for this process alone.
  const flink = `${service.url}taskmanagers/${risen[0]}/profiler`;
  const created = await (await fetch(flink, { method: "POST", body: JSON.stringify({ mode: "ITIMER", duration: 5 }) })).json();
  say(`POST /taskmanagers/${risen[0]}/profiler: ${JSON.stringify(created).slice(0, 120)}`);
  const done = await until("the run", async () => {
    const { profilingList: [run] } = await (await fetch(flink)).json();
    return run.status !== "RUNNING" && run;
  });
  say(`GET: ${done.status} ${done.outputFile} ${done.message}`);
  assert.equal(done.status, "FINISHED");
  const drawn = await fetch(`${flink}/${done.outputFile}`);
  assert.ok(drawn.status === 200 && (await drawn.text()).startsWith("<!DOCTYPE html>"));

  // Live, which continues while the page is hidden.
  await page.keyboard.press("l");
  await picture(page);
  await page.mouse.move(5, 5);
  await page.locator("#live-words", { hasText: "Live" }).waitFor();
  await shot(page, "service-show-live");
  say(`${answered} requests were answered`);
  assert.deepEqual(page.errors, []);
});
