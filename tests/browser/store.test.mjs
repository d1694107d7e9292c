// The page of a store with a mock service: selection, queries, display and addresses to share. Run by run.sh.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { afterEach, beforeEach, test } from "node:test";
import { drawn } from "./flame.mjs";
import { leave } from "./page.mjs";
import { Service } from "./service_mock.mjs";
import { complaints, picture } from "./service_page.mjs";

const DAY = Date.UTC(2026, 10, 23), HOSTILE = "<img src=x onerror=alert(1)>' OR 1=1 --";
let service;
beforeEach(async () => {
  service = await new Service().start();
  service.bytes.html = readFileSync(drawn("main;work 60\nmain;rest 40\n"));
  const offer = (value, samples) => ({ value, samples });
  service.store = {
    told: ["1,000 samples; pruned 12.5 %: 7 boxes narrower than 1 %; 3 files read, 9 passed over"], top: "100 samples\n 60 60.00% work\n",
    share: "begin,label_version,of_function,total,percent\n1795420800,1,10,100,10.0000\n1795424400,1,20,100,20.0000\n1795420800,\"a,\"\"b\"\"\",5,50,10.0000\n",
    whole: { services: [offer("api", 900), offer("shop", 100)], days: [offer("2026-11-23", 400), offer("2026-11-22", 600)], labels: ["host", "version"] },
    values: (query) => ({
      samples: query.has("label") ? 60 : 400, days: [offer("2026-11-23", 400), offer("2026-11-22", 500)], events: [offer("jdk.ExecutionSample", 390), offer("jdk.JavaMonitorEnter", 10)],
      labels: [{ key: "host", values: [offer("h1", 300), offer(HOSTILE, 60), offer(null, 40)], more: true }, { key: "version", values: [offer("1", 200), offer("2", 200)], more: false }],
    }),
  };
});
afterEach(async () => {
  await leave();
  service.stop();
});

const open = (hash = "", more) => service.open("store.html" + hash, more);
/** The queries of a path, oldest first: the text after the `?`. */
const asked = (what) => service.requests.filter(({ path }) => path === `/v1/store/${what}`).map(({ query }) => query.slice(1));
const told = (page, text) => page.locator("#told", { hasText: text }).waitFor();
const option = (page, list, text) => page.locator(`${list} option`, { hasText: text }).waitFor({ state: "attached" });
const hash = (page) => page.evaluate(() => location.hash);

test("the link to the store is shown if the service has one", async () => {
  const page = await service.open();
  await page.click("#store-open");
  await page.locator("#a-service").waitFor();
  service.store = null;
  await page.goBack();
  await service.told(page);
  assert.ok(await page.locator("#store-open").isHidden());
  await page.goto(`${service.url}store.html`);
  await told(page, "The service has no profile store; start it with --store DIR.");
  assert.deepEqual(complaints(page), []);
});

test("a selection is queried, shown with its diagnostics and SQL, and stored in the address", async () => {
  const page = await open();
  // The latest day. The page has only queried what the store contains.
  await page.locator("#side-a .side-words", { hasText: "400 samples selected" }).waitFor();
  assert.equal(await page.locator("#a-day").inputValue(), "2026-11-23");
  assert.deepEqual(asked("flame"), []);
  await told(page, "Select samples, then press Show.");
  await page.selectOption("#a-service", "api");
  await page.selectOption("#a-label-version", "=2");
  await page.selectOption("#event", "jdk.ExecutionSample");
  await page.fill("#min", "1");
  await page.fill("#a-where", "thread LIKE 'w%' -- and");
  await page.keyboard.press("Enter");
  const frame = await picture(page);
  assert.match(await frame.locator("#details").textContent(), /^all \(100 samples/);
  assert.match(await page.locator("#told").textContent(), /pruned 12\.5 %.*3 files read, 9 passed over/);
  const question = `service=api&from=${DAY}&to=${DAY + 86_400_000}&where=thread+LIKE+%27w%25%27+--+and&label=version%3D2&event=jdk.ExecutionSample&min=1`;
  assert.deepEqual(asked("flame"), [`${question}&told=1`, question]);
  assert.deepEqual(asked("sql"), [question]);
  assert.equal(await page.locator("#sql").textContent(), "SELECT 'datafusion', 'version=2'\n");
  assert.equal(await page.locator("#as-sql-words").textContent(), "");
  assert.match(await page.locator("#viewer-title").textContent(), /^api · version=2 · 2026-11-23 – 2026-11-24 · thread LIKE 'w%' -- and$/);
  // Another browser shows the same, with the selection in the form.
  const other = await open(await hash(page));
  await picture(other);
  assert.equal(asked("flame").at(-1), question);
  assert.deepEqual(await Promise.all(["#a-service", "#a-label-version", "#event", "#min", "#a-where"].map((field) => other.locator(field).inputValue())),
    ["api", "=2", "jdk.ExecutionSample", "1", "thread LIKE 'w%' -- and"]);
  // Back leads to the previous view.
  await page.selectOption("#a-label-version", "=1");
  await page.click("#ask");
  await page.locator("#viewer-title", { hasText: "version=1" }).waitFor();
  await page.goBack();
  await page.locator("#viewer-title", { hasText: "version=2" }).waitFor();
  assert.equal(await page.locator("#a-label-version").inputValue(), "=2");
  assert.ok([...page.requests, ...other.requests].every((url) => url.startsWith(service.url) || url.startsWith("data:")));
  assert.deepEqual([...complaints(page), ...complaints(other)], []);
});

test("label values that contain markup are shown as text, and a missing label can be selected", async () => {
  const page = await open();
  await option(page, "#a-label-host", "OR 1=1");
  assert.equal(await page.locator("#a-label-host option", { hasText: "OR 1=1" }).textContent(), `${HOSTILE} (60)`);
  await page.selectOption("#a-label-host", `=${HOSTILE}`);
  await page.locator("#side-a .side-words", { hasText: "60 samples selected" }).waitFor();
  await page.click("#ask");
  await picture(page);
  assert.equal(new URLSearchParams(asked("flame")[0]).get("label"), `host=${HOSTILE}`);
  assert.equal(await page.locator("img").count(), 0);
  await page.selectOption("#a-label-host", "-");
  await page.click("#ask");
  await page.locator("#viewer-title", { hasText: "no host" }).waitFor();
  assert.equal(new URLSearchParams(asked("flame").at(-1)).get("unset"), "host");
  // A value that no longer exists stays selected, and is shown as having no samples.
  const other = await open("#view=top&service=gone&label=zone%3Deu");
  await option(other, "#a-service", "gone (0)");
  assert.equal(await other.locator("#a-label-zone").inputValue(), "=eu");
  await other.locator("#rows pre", { hasText: "60.00% work" }).waitFor();
  assert.deepEqual([...complaints(page), ...complaints(other)], []);
});

test("times are UTC in every time zone", async () => {
  const page = await open("", { timezoneId: "Pacific/Auckland" });
  await option(page, "#a-day", "2026-11-22 (500)");
  await page.selectOption("#a-day", "2026-11-22");
  assert.equal(await page.locator("#a-from").inputValue(), "2026-11-22T00:00");
  await page.fill("#a-from", "2026-11-22T10:00:05");
  assert.equal(await page.locator("#a-day").inputValue(), "other");
  await page.click("#ask");
  await picture(page);
  const first = new URLSearchParams(asked("flame")[0]);
  assert.deepEqual([first.get("from"), first.get("to")], [String(Date.UTC(2026, 10, 22, 10, 0, 5)), String(DAY)]);
  await page.fill("#a-from", "2026-11-24T00:00");
  await page.locator("#side-a .side-words", { hasText: "The end is before the start." }).waitFor();
});

test("two selections can be compared, and B starts as a copy of A", async () => {
  const page = await open();
  await page.selectOption("#a-service", "api");
  await option(page, "#a-label-version", "1 (200)");
  await page.selectOption("#a-label-version", "=1");
  await page.locator("#views button", { hasText: "Compare" }).click();
  await page.locator("#side-b .side-words", { hasText: "60 samples selected" }).waitFor();
  assert.deepEqual(await Promise.all(["#b-service", "#b-label-version", "#b-day"].map((field) => page.locator(field).inputValue())), ["api", "=1", "2026-11-23"]);
  await page.selectOption("#b-label-version", "=2");
  await page.click("#ask");
  await picture(page);
  const question = new URLSearchParams(asked("diff")[0]);
  assert.deepEqual([question.get("label"), question.get("b.label"), question.get("b.service"), question.get("min")], ["version=1", "version=2", "api", null]);
  assert.match(await page.locator("#sql").textContent(), /^-- A\nSELECT 'datafusion', 'version=1';\n\n-- B\nSELECT 'datafusion', 'version=2';\n$/);
  assert.match(await page.locator("#viewer-title").textContent(), /version=1 .* → api · version=2/);
  const other = await open(await hash(page));
  await picture(other);
  assert.equal(await other.locator("#b-label-version").inputValue(), "=2");
  // After a change to another view and back, B is kept.
  await page.locator("#views button", { hasText: "Functions" }).click();
  await page.locator("#views button", { hasText: "Compare" }).click();
  assert.equal(await page.locator("#b-label-version").inputValue(), "=2");
});

test("the share over time has a line per group and a table", async () => {
  const page = await open();
  await page.locator("#views button", { hasText: "Over time" }).click();
  await page.click("#ask");
  await page.locator("#ask-words", { hasText: "Enter a regular expression for the functions." }).waitFor();
  assert.deepEqual(asked("share"), []);
  await option(page, "#by", "version");
  await page.fill("#function", "^work$");
  await page.selectOption("#by", "label:version");
  await page.selectOption("#every", "60");
  await page.click("#ask");
  await page.locator(".chart").waitFor();
  const question = new URLSearchParams(asked("share")[0]);
  assert.deepEqual(["function", "by", "every"].map((key) => question.get(key)), ["^work$", "label:version", "60"]);
  assert.equal(await page.locator(".chart polyline").count(), 2);
  assert.deepEqual(await page.locator(".legend li").allTextContents(), ["1", 'a,"b"']);
  assert.deepEqual(await page.locator(".shares tbody tr").last().locator("td").allTextContents(), ["2026-11-23 09:00:00", "1", "20", "100", "20.00 %"]);
  // Later points are further right, larger shares higher.
  const [[x1, y1], [x2, y2]] = (await page.locator(".chart polyline").first().getAttribute("points")).split(" ").map((point) => point.split(",").map(Number));
  assert.ok(x2 > x1 && y2 < y1);
  // Letters have their usual size, even with little space.
  const small = await open(await hash(page), { viewport: { width: 400, height: 700 } });
  const scale = await small.locator(".chart").evaluate((chart) => chart.getBoundingClientRect().width / chart.viewBox.baseVal.width);
  assert.ok(scale > 0.8 && scale < 1.25, String(scale));
  assert.deepEqual(complaints(page), []);
});

test("the store's error is shown, and the next query is sent", async () => {
  const page = await open("#view=flame&service=api");
  await picture(page);
  for (const [status, sentence] of [[503, "The store is busy with other queries; retry later."], [422, "The query failed: no sample is one where x."], [504, "The query did not finish within 60 s."]]) {
    service.fault = ({ path }) => path === "/v1/store/flame" ? [status, { errors: [sentence] }] : null;
    await page.click("#ask");
    await told(page, sentence);
    assert.ok(await page.locator("#viewer").isHidden(), "no picture of something else");
    assert.equal(await page.locator("#told").getAttribute("class"), "failed");
  }
  service.fault = () => null;
  await page.click("#ask");
  await picture(page);
  assert.equal(await page.locator("#told").getAttribute("class"), null);
  // A slow query is cancelled: the service notices the closed connection.
  let begun, gone = new Promise((done) => { begun = done; });
  service.fault = ({ path, query }) => path === "/v1/store/flame" && query.includes("told=1") ? new Promise(() => { begun(); }) : null;
  await page.click("#ask");
  await gone;
  await page.click("#stop");
  await told(page, "Stopped.");
  service.fault = () => null;
  await page.click("#ask");
  await told(page, "pruned 12.5 %");
  assert.deepEqual(complaints(page), []);
});

test("the token is requested once", async () => {
  service.token = "a-token-of-many-letters";
  const page = await open("#view=flame&service=api");
  await page.fill("#token", service.token);
  await page.click("#session-go");
  await picture(page);
  assert.ok(await page.locator("#session").isHidden());
});

test("the SQL follows the selected engine and can be copied", async () => {
  const page = await open("#view=flame&service=api&label=version%3D1");
  await picture(page);
  const flames = asked("flame").length;
  await page.selectOption("#engine", "spark");
  await page.locator("#sql", { hasText: "SELECT 'spark', 'version=1'" }).waitFor();
  assert.equal(asked("flame").length, flames, "the picture stays");
  assert.match(await hash(page), /engine=spark/);
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await page.click("#copy");
  await page.locator(".toast", { hasText: "SQL copied." }).waitFor();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), "SELECT 'spark', 'version=1'\n");
});

test("the store page works by keyboard, in the full window and on a narrow screen", async () => {
  const page = await open("#view=flame&service=api", { viewport: { width: 400, height: 700 }, colorScheme: "dark" });
  await picture(page);
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
  await page.locator("#told").click();
  await page.keyboard.press("W");
  await page.locator("body.whole").waitFor();
  const box = await page.locator("#viewer").boundingBox();
  assert.deepEqual([box.width, box.height], [400, 700]);
  await page.keyboard.press("Escape");
  await page.locator("body:not(.whole)").waitFor();
  // Keys that the graph does not use reach the page.
  await page.locator("#viewer-frame iframe").focus();
  await page.keyboard.press("W");
  await page.locator("body.whole").waitFor();
  await page.click("#viewer-close");
  await page.locator("body:not(.whole)").waitFor();
  // All fields have names.
  const nameless = await page.evaluate(() => [...document.querySelectorAll("input, select, button")].filter((each) => !each.labels?.length && !each.ariaLabel && !each.textContent.trim()).map(({ id }) => id));
  assert.deepEqual(nameless, []);
  assert.deepEqual(complaints(page), []);
});
