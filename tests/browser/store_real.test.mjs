// The page of a store with the real service, flightline-sql and recordings. Runs only if FLIGHTLINE_SQL names flightline-sql: `.ci/store` builds it and runs this file.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync } from "node:fs";
import { join } from "node:path";
import { afterEach, test } from "node:test";
import { flightline, folder, go, leave } from "./page.mjs";
import { serve } from "./service_agent.mjs";
import { complaints, picture } from "./service_page.mjs";

const { FLIGHTLINE_SQL } = process.env;
// Skipped even with FLIGHTLINE_NO_SKIP: without the store's workspace there is no engine to test.
const skip = FLIGHTLINE_SQL ? false : "FLIGHTLINE_SQL is not set; .ci/store runs this test";

afterEach(leave);
const run = (...args) => execFileSync(flightline, args, { encoding: "utf8" });
const told = (page, text) => page.locator("#told", { hasText: text }).waitFor();

test("the page shows the contents of a real store", { skip }, async () => {
  assert.ok(existsSync(FLIGHTLINE_SQL), `FLIGHTLINE_SQL names no file: ${FLIGHTLINE_SQL}`);
  const store = join(mkdtempSync(join(folder, "store-")), "store"), odd = "o'shop \"<b>";
  const add = (service, recording, ...labels) => run("store", "add", "--store", store, "--service", service, ...labels.flatMap((label) => ["--label", label]), join(process.env.RECORDINGS, recording));
  add("api", "ap-java-cpu.jfr", "version=1", "host=h1");
  add("api", "ap-java-multichunk.jfr", "version=2", "host=h'2 --");
  add(odd, "flightline.jfr");
  const service = await serve("--listen", "127.0.0.1:0", "--store", store, "--dir", mkdtempSync(join(folder, "history-")));
  const count = (where) => Number(/\d+/.exec(run("sql", `SELECT sum(samples) AS n FROM samples WHERE event_type = 'jdk.ExecutionSample' AND ${where}`, "--store", store, "--format", "csv").split("\n")[1])[0]);
  const drawn = async (page) => Number(/^all \(([\d,]+) samples/.exec(await (await picture(page)).locator("#details").textContent())[1].replaceAll(",", ""));

  const page = await go(service.url);
  await page.click("#store-open");
  await page.locator("#a-service option", { hasText: odd }).waitFor({ state: "attached" });
  await page.selectOption("#a-service", "api");
  await page.selectOption("#a-day", "");
  await page.locator("#event option", { hasText: "jdk.ExecutionSample" }).waitFor({ state: "attached" });
  await page.selectOption("#event", "jdk.ExecutionSample");
  await page.fill("#min", "1");
  await page.click("#ask");
  await told(page, "pruned");
  assert.equal(await drawn(page), count("service = 'api'"));

  // A value that would end a string in SQL.
  await page.locator("#a-label-host option", { hasText: "h'2 --" }).waitFor({ state: "attached" });
  await page.selectOption("#a-label-host", "=h'2 --");
  await page.click("#ask");
  await page.locator("#viewer-title", { hasText: "host=h'2 --" }).waitFor();
  assert.equal(await drawn(page), count("label_host = 'h''2 --'"));
  const sql = await page.locator("#sql").textContent();
  assert.ok(sql.includes("label_host = 'h''2 --'"), sql);
  // The query in the box returns the boxes of the graph: none has less than a percent, and those at the root
  // have no more than the total.
  const rows = run("sql", sql, "--store", store, "--format", "ndjson").trim().split("\n").map((line) => JSON.parse(line)), all = count("label_host = 'h''2 --'");
  const roots = rows.filter(({ parent_id }) => parent_id === 0).reduce((sum, { num }) => sum + num, 0);
  assert.ok(rows.length > 10 && rows.every(({ num }) => num * 100 >= all) && roots <= all && roots > all * 0.9, `${rows.length} ${roots} ${all}`);

  await page.selectOption("#a-label-host", "");
  await page.selectOption("#a-label-version", "=1");
  await page.locator("#views button", { hasText: "Compare" }).click();
  await page.locator("#b-label-version option", { hasText: /^2 / }).waitFor({ state: "attached" });
  await page.selectOption("#b-label-version", "=2");
  await page.click("#ask");
  await page.locator("#viewer-title", { hasText: "→" }).waitFor();
  assert.ok(await (await picture(page)).locator("body.compared").isVisible());

  await page.locator("#views button", { hasText: "Over time" }).click();
  await page.selectOption("#a-label-version", "");
  await page.fill("#function", "^Work\\.");
  await page.selectOption("#by", "label:version");
  await page.selectOption("#every", "1");
  await page.click("#ask");
  await page.locator(".chart").waitFor();
  assert.deepEqual((await page.locator(".legend li").allTextContents()).sort(), ["1", "2"]);
  const sums = await page.locator(".shares tbody tr td:nth-child(4)").allTextContents();
  assert.equal(sums.reduce((sum, text) => sum + Number(text.replaceAll(",", "")), 0), count("service = 'api'"));

  await page.locator("#views button", { hasText: "Functions" }).click();
  await page.click("#ask");
  await page.locator("#rows pre", { hasText: "Work.inner" }).waitFor();

  // An invalid condition is reported in the store's words.
  await page.fill("#a-where", "label_host = = 1");
  await page.keyboard.press("Enter");
  await told(page, "is no condition of SQL");
  await page.fill("#a-where", "1 = 1) OR (1 = 1");
  await page.keyboard.press("Enter");
  await told(page, "Unbalanced brackets or quotes in `where`.");
  assert.ok(page.requests.every((url) => url.startsWith(service.url) || url.startsWith("data:")), String(page.requests));
  assert.deepEqual(complaints(page), []);
  await service.stop();
});
