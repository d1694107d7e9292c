// Events of a recording on one page: headline, totals, heat map, chart and threads of each. Numbers are those of `flightline fold`.
// Run by run.sh.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { test } from "node:test";
import { details, hover, opened, recorded, search, settled, sum } from "./flame.mjs";
import { flightline } from "./page.mjs";

/** Events of a type in `ap-java-multichunk.jfr`. */
function written(type) {
  const printed = execFileSync(flightline, ["print", "--json", "--events", type, join(process.env.RECORDINGS, "ap-java-multichunk.jfr")], { encoding: "utf8", maxBuffer: 1 << 28 });
  return JSON.parse(printed).recording.events.length;
}
const hash = (page) => page.evaluate(() => location.hash);
const subtitle = (page) => page.locator("#subtitle").textContent();
/** The numbers of samples in the list of threads. */
const threads = async (page) => (await page.locator("#thread-list label").allTextContents()).map((text) => Number(/\(([\d,]+)\)$/.exec(text)[1].replaceAll(",", "")));
const added = (numbers) => numbers.reduce((all, number) => all + number, 0);
/** The samples of all cells of the heat map, as read by keys. */
async function cells(page) {
  await page.focus("#heat-scroll");
  await page.keyboard.press("Home");
  return page.evaluate(() => {
    let all = 0;
    for (let last = ""; ;) {
      const text = document.getElementById("details").textContent;
      if (text === last) return all;
      all += Number(/: ([\d,]+) samples?/.exec(text)[1].replaceAll(",", ""));
      last = text;
      document.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowUp", bubbles: true }));
    }
  });
}

test("the page of a JDK recording shows program, machine, event and range, and switches events", async () => {
  const file = recorded("jdk25.jfr"), page = await opened(file), cpu = sum("jdk25.jfr");
  const about = "Work (18948) · OpenJDK 25.0.3+9-LTS · ", range = " · 2026-11-20T23:30:39Z, 1.60 s";
  assert.equal(await subtitle(page), `${about}cpu: ${cpu} samples, ${sum("jdk25.jfr", "--total") / 1e9} s${range} · 4.4 % lost`);
  const listed = await page.locator("#event option").evaluateAll((all) => all.map(({ value }) => value));
  assert.equal(listed[0], "cpu");
  for (const name of ["alloc", "throw", "lock", "io", "jdk.ExecutionSample", "fixture.Step"]) assert.ok(listed.includes(name), name);
  assert.equal(await details(page), `all (${cpu} samples, 100.00%)`);
  // Updated at once, without moving the pointer.
  await page.selectOption("#event", "alloc");
  const bytes = sum("jdk25.jfr", "-e", "alloc", "--total"), mebibytes = (bytes / 1048576).toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
  assert.equal(await details(page), `all (${mebibytes} MiB, 100.00%)`);
  const count = sum("jdk25.jfr", "-e", "alloc");
  assert.equal(await subtitle(page), `${about}alloc: 9.3 GiB, ${count} samples${range}`);
  await page.keyboard.press("m");
  assert.equal(await details(page), `all (${count} samples, 100.00%)`);
  // The heat map and the threads are those of the event.
  await page.keyboard.press("h");
  assert.equal(await cells(page), count);
  assert.equal(added(await threads(page)), count);
  await page.selectOption("#event", "lock");
  await page.selectOption("#measure", "samples");
  const locks = sum("jdk25.jfr", "-e", "lock");
  assert.notEqual(locks, count);
  assert.equal(await cells(page), locks);
  assert.equal(added(await threads(page)), locks);
  // The address opens the same event.
  assert.match(await hash(page), /event=lock/);
  const again = await opened(file, "light", await hash(page));
  assert.equal(await subtitle(again), await subtitle(page));
  assert.equal(await hover(again, 0.5, 0), `all (${locks} samples, 100.00%)`);
  // The last event is followed by the first.
  await page.selectOption("#event", listed.at(-1));
  await page.keyboard.press("v");
  assert.equal(await page.locator("#event").inputValue(), "cpu");
  assert.deepEqual([...page.errors, ...again.errors], []);
});

test("a search counts the functions of the selected event", async () => {
  const page = await opened(recorded("jdk25.jfr"));
  const matched = await search(page, "^Work\\.");
  await page.selectOption("#event", "io");
  const io = await page.locator("#matched").textContent();
  const functions = (text) => Number(/, (\d+) functions?\)/.exec(text)[1]);
  assert.ok(functions(io) > 0 && functions(io) < functions(matched), `${matched}; ${io}`);
  assert.deepEqual(page.errors, []);
});

test("the heat map, the chart and the status line follow the selected event", async () => {
  const page = await opened(recorded("ap-java-multichunk.jfr", "--measure", "cpu,wall,alloc"));
  assert.match(await subtitle(page), /^Work \(\d+\) · OpenJDK \S+ · cpu: [\d.]+ s, 1985 samples · /);
  for (const [event, unit] of [["wall", "s"], ["alloc", "MiB"], ["cpu", "s"]]) {
    await page.selectOption("#event", event);
    assert.match(await details(page), new RegExp(`^all \\([\\d,.]+ ${unit}, 100\\.00%\\)$`));
    const samples = sum("ap-java-multichunk.jfr", "-e", event);
    await page.selectOption("#measure", "samples");
    assert.equal(await details(page), `all (${samples.toLocaleString("en-US")} samples, 100.00%)`);
    await page.selectOption("#measure", unit === "MiB" ? "bytes" : "time");
    await page.keyboard.press("h");
    // A wall-clock event may represent several samples.
    assert.equal(await cells(page), event === "wall" ? written("profiler.WallClockSample") : samples, event);
    await page.keyboard.press("h");
    // A range has the samples that `fold` counts in it.
    await page.evaluate(([name]) => { location.hash = `event=${name}&measure=samples&time=1000-2000`; }, [event]);
    await settled(page);
    assert.equal(await details(page), `all (${sum("ap-java-multichunk.jfr", "-e", event, "--from", "1", "--to", "1.999999").toLocaleString("en-US")} samples, 100.00%)`);
    await page.keyboard.press("a");
    await page.focus("#chart-scroll");
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("ArrowDown");
    assert.match(await details(page), /^(Function|Lock): .* in \[/);
    await page.keyboard.press("f");
    await page.evaluate(() => { location.hash = ""; });
    await settled(page);
  }
  assert.deepEqual(page.errors, []);
});

test("a selected thread without samples of the event shows an empty graph; an unknown thread is ignored", async () => {
  const page = await opened(recorded("jdk25.jfr")), names = await page.locator("#thread-list input").evaluateAll((all) => all.map(({ value }) => value));
  const listed = async () => page.locator("#thread-list input").evaluateAll((all) => all.map(({ value }) => value));
  await page.selectOption("#event", "lock");
  const other = names.find((name) => name.includes("cpu-"));
  assert.ok(other && !(await listed()).includes(other));
  await page.evaluate((name) => { location.hash = "event=lock&" + new URLSearchParams({ thread: name }); }, other);
  await settled(page);
  assert.equal(await page.locator("#empty").isVisible(), true);
  await page.selectOption("#event", "cpu");
  assert.equal(await page.locator("#empty").isVisible(), false);
  await page.evaluate(() => { location.hash = "thread=nobody"; });
  await settled(page);
  assert.equal(await details(page), `all (${sum("jdk25.jfr")} samples, 100.00%)`);
  assert.equal(await page.locator(".chip").count(), 0);
  assert.deepEqual(page.errors, []);
});

test("an event with durations shows percentiles, and a histogram after a click", async () => {
  const recording = join(process.env.RECORDINGS, "jdk25.jfr"), run = (...args) => execFileSync(flightline, [...args, recording], { encoding: "utf8" });
  const { histograms: [reads] } = JSON.parse(run("latency", "-e", "jdk.FileRead", "--json"));
  const page = await opened(recorded("jdk25.jfr", "-e", "jdk.FileRead")), latency = page.locator("#latency");
  // As the command prints them.
  const [, figures] = run("latency", "-e", "jdk.FileRead").split("\n"), told = (name) => new RegExp(`${name} [^,]+`).exec(figures)[0];
  assert.equal(await latency.locator("summary").textContent(), ["p50", "p99", "max"].map(told).join(", "));
  assert.ok(!await page.locator("#latency-table").isVisible());
  await latency.locator("summary").click();
  assert.ok(await page.locator("#latency-table").isVisible());
  const cells = await latency.locator("tbody tr").evaluateAll((rows) => rows.map((row) => [row.cells[2].textContent, row.querySelector("meter").value]));
  assert.deepEqual(cells, reads.buckets.map(({ count }) => [String(count), count]));
  assert.match(await latency.locator("p").textContent(), /^8 events: min .*, mean .*, p90 /);
  assert.deepEqual(page.errors, []);
  await page.context().close();

  // The figures are those of the shown event; CPU samples have none.
  const all = await opened(recorded("jdk25.jfr"));
  assert.ok(!await all.locator("#latency").isVisible());
  await all.selectOption("#event", "lock");
  assert.match(await all.locator("#latency summary").textContent(), /^p50 .* ms, p99 .* ms, max .* ms$/);
  // Filters do not apply to them, and the page states that.
  const summary = () => all.locator("#latency summary").textContent();
  const whole = await summary(), count = await all.locator("#latency p").textContent();
  const thread = await all.locator("#thread-list input").first().getAttribute("value");
  for (const part of [`thread=${encodeURIComponent(thread)}`, "in=Work", "time=0-1000"]) {
    await all.evaluate((hash) => { location.hash = hash; }, `#event=lock&${part}`);
    await all.locator(".chip").first().waitFor();
    assert.equal(await summary(), `${whole} (all events: filters do not apply)`);
    assert.equal(await all.locator("#latency p").textContent(), count);
  }
  await all.evaluate(() => { location.hash = "#event=lock"; });
  await all.locator(".chip").first().waitFor({ state: "detached" });
  assert.equal(await summary(), whole);
  await all.selectOption("#event", "cpu");
  assert.ok(!await all.locator("#latency").isVisible());
  await all.context().close();
});
