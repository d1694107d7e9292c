// Pages of off-CPU time: palettes, thread states by colour with a legend, times in words. Run by run.sh.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { test } from "node:test";
import { colour, hover, opened } from "./flame.mjs";
import { flightline, folder } from "./page.mjs";

const recording = join(process.env.RECORDINGS, "..", "off-cpu", "off_cpu.jfr");
const drawn = (graph, ...args) => {
  const file = join(folder, `${graph}.html`);
  execFileSync(flightline, [graph, recording, "-o", file, ...args], { stdio: "ignore" });
  return file;
};

test("off-CPU graphs open in their palettes, light and dark, and show times", async () => {
  for (const [graph, palette] of Object.entries({ offcpu: "io", wakeup: "wakeup", offwake: "chain", chain: "chain", threadtime: "doing" })) {
    for (const scheme of ["light", "dark"]) {
      const page = await opened(drawn(graph, "-d"), scheme);
      assert.equal(await page.locator("#palette").inputValue(), palette);
      assert.match(await hover(page, 0.5, 1), /\d(\.\d+)? (s|ms)\b.*%/);
      assert.deepEqual(page.errors, []);
      await page.context().close();
    }
  }
});

test("blocked frames are blue, delimiters grey, waker frames aqua", async () => {
  const page = await opened(drawn("offwake", "-U", "--only-thread", "^.waits "));
  const stack = execFileSync(flightline, ["offwake", recording, "-U", "--only-thread", "^.waits "], { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });
  const frames = stack.split("\n")[0].replace(/ \d+$/, "").split(";"), woken = frames.indexOf("--");
  const [sleeper, delimiter, waker] = [await colour(page, 0.9, 1), await colour(page, 0.9, woken + 1), await colour(page, 0.9, woken + 2)];
  assert.ok(sleeper[2] > sleeper[0] + 30 && sleeper[2] > sleeper[1], `blue: ${sleeper}`);
  assert.ok(Math.max(...delimiter) - Math.min(...delimiter) < 3 && delimiter[0] < 170, `grey: ${delimiter}`);
  assert.ok(waker[1] > waker[0] + 40 && waker[2] > waker[0] + 40, `aqua: ${waker}`);
});

test("thread states have colours, and the legend lists the states present", async () => {
  const page = await opened(drawn("threadtime", "--only-thread", "^.(waits|reads|sleeper) "));
  const legend = await page.locator("#legend").textContent();
  for (const what of ["runnable", "blocked: lock", "blocked: pipe", "blocked: sleep"]) assert.ok(legend.includes(what), legend);
  assert.ok(!legend.includes("network"), legend);
  // The second boxes of three threads: a pipe, waiting for a processor, a lock.
  const seen = [];
  for (const x of [0.1, 0.5, 0.9]) {
    assert.match(await hover(page, x, 2), / \[(blocked: \w+|runnable)\]/);
    seen.push((await colour(page, x, 2)).join());
  }
  assert.equal(new Set(seen).size, 3, seen.join(" "));
});

test("thread time is grouped by span, and span names are shown as text", async () => {
  const made = join(folder, "spans.jfr"), file = join(folder, "spans.html");
  execFileSync(process.env.TEST_PROGRAMS, ["trace_recording", made, "4", "off-cpu"]);
  execFileSync(flightline, ["threadtime", made, "--by", "span", "-o", file], { stdio: "ignore" });
  const seen = [];
  for (const scheme of ["light", "dark"]) {
    const page = await opened(file, scheme);
    // 300 ms: 90 in the span with that name, 50 in the root, 50 in none, 60 in one without a name, 50 in hop.
    for (const [x, name] of [[0.15, "</script>"], [0.38, "GET /cart"], [0.55, "[no span]"], [0.7, "[span without a name]"], [0.95, "hop"]]) {
      const told = await hover(page, x, 1);
      assert.ok(told.includes(name) && /\(\d+\.000 ms, .*%/.test(told), `${x}: ${told}`);
    }
    assert.match(await hover(page, 0.15, 2), /worker-8/);
    assert.match(await hover(page, 0.15, 3), /\[blocked: disk\]/);
    seen.push((await colour(page, 0.15, 3)).join(), (await colour(page, 0.6, 3)).join());
    assert.match(await page.title(), /by span/);
    assert.notEqual(await page.title(), "harmed");
    assert.deepEqual(page.errors, []);
    await page.context().close();
  }
  assert.notEqual(seen[0], seen[1]);
});
