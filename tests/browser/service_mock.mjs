// A profiling service without a clock: the test controls its answers and its failures. It serves the files
// that page.rs names.
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { dirname, join } from "node:path";
import { go } from "./page.mjs";

const source = readFileSync(process.env.SERVICE_PAGE, "utf8");
const scripts = /const SCRIPT: &str = "([^"]+)"/.exec(source)[1];
const files = new Map([...source.matchAll(/\("(\/[^"]*)", (SCRIPT|"[^"]+"), include_str!\("([^"]+)"\)\)/g)].map(([, path, type, file]) =>
  [path, { type: type === "SCRIPT" ? scripts : type.slice(1, -1), body: readFileSync(join(dirname(process.env.SERVICE_PAGE), file)) }]));
const policy = /pub const POLICY: &str =\s*"([^"]+)"/.exec(source)[1].replace(/\\\n\s*/g, "");

export const NOW = Date.UTC(2026, 10, 23, 8, 0, 0);
const MODES = ["ITIMER", "CPU", "WALL", "ALLOC", "LOCK", "IO", "LIVE", "THROW", "OFF_CPU"];
const FORMATS = ["html", "jfr", "folded", "pprof", "otlp"];
const TYPES = { html: "text/html; charset=utf-8", jfr: "application/octet-stream", folded: "text/plain; charset=utf-8" };

/** A target; `impossible` are reasons by mode. */
export const target = (id, more = {}, impossible = {}) => ({
  id, name: id, host: "db1", pid: 4711, startTime: NOW - 3_600_000, joinedTime: NOW - 60_000, lastSeen: NOW, state: "LIVE", gone: "", labels: {}, run: null, continuous: null,
  modes: MODES.map((mode) => impossible[mode] ? { mode, available: false, reason: impossible[mode] } : { mode, available: true }), ...more,
});

export const run = (id, of, more = {}) => ({
  id, group: null, target: of, targetName: of, status: "FINISHED", mode: "ITIMER", effectiveMode: "", interval: "", engines: [], triggerTime: NOW, finishedTime: NOW + 30_000,
  duration: 30, elapsed: 30_000, message: "Profiling Successful", outputFile: `${id}.html`, bytes: 123_456, labels: {}, files: FORMATS, events: [], ...more,
});

export class Service {
  constructor() {
    Object.assign(this, {
      targets: [], runs: [], profiling: true, token: null, processes: null, adopted: [], windows: {}, bytes: {}, requests: [], next: 1,
      /** The answers of a store: `whole`, `values(query)`, `told`, `top`, `share`; null: there is none. */
      store: null,
      limits: { maxDurationSeconds: 300, historySize: 10, historyBytes: 1 << 30, maxConcurrent: 8, heartbeatSeconds: 5 },
      /** A fault instead of the answer: a status and sentences, "drop" (the connection ends), or a promise
       * to wait for first. */
      fault: () => null,
    });
    this.server = createServer((request, response) => this.serve(request, response).catch((error) => {
      // The browser cancels the requests of a closed page.
      if (error.code !== "ECONNRESET") throw error;
    }));
  }
  async start() {
    await new Promise((done) => this.server.listen(0, "127.0.0.1", done));
    this.url = `http://127.0.0.1:${this.server.address().port}/`;
    return this;
  }
  stop() {
    this.server.close();
    this.server.closeAllConnections();
  }
  open(hash = "", more = {}) { return go(this.url + hash, more); }
  /** Lets the page query now, and waits until it shows the answer. The longest duration is a new value
   * each time. */
  async told(page) {
    const most = ++this.limits.maxDurationSeconds;
    await page.evaluate(() => document.dispatchEvent(new Event("visibilitychange")));
    await page.locator(`#duration[max="${most}"]`).waitFor({ state: "attached" });
  }
  sent(method) { return this.requests.filter((each) => each.method === method); }
  find(id) { return this.targets.find((each) => each.id === id); }

  async serve(request, response) {
    const url = new URL(request.url, this.url), path = url.pathname.replace(/^(?!\/v1\/)\/(targets|runs|processes|window|compare|session)/, "/v1/$1");
    let text = "";
    for await (const part of request) text += part;
    const body = text ? JSON.parse(text) : null, seen = { method: request.method, path, query: url.search, body, headers: request.headers };
    this.requests.push(seen);
    const file = files.get(path);
    if (file) {
      response.writeHead(200, { "Content-Type": file.type, "Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Cache-Control": "no-cache" });
      return response.end(file.body);
    }
    const fault = await this.fault(seen);
    if (fault === "drop") return request.socket.destroy();
    const [status, answer, headers = {}] = fault || this.answer(seen, url.searchParams);
    response.writeHead(status, { "Content-Type": "application/json", "Cache-Control": "no-store", ...headers });
    response.end(answer === null ? undefined : Buffer.isBuffer(answer) || typeof answer === "string" ? answer : JSON.stringify(answer));
  }
  answer({ method, path, body, headers }, query) {
    const no = (status, sentence) => [status, { errors: [sentence] }];
    if (method === "POST" && path === "/v1/session") {
      if (body.token !== this.token) return no(401, "This is not the token that the service was started with.");
      return [204, null, { "Set-Cookie": `flightline=${encodeURIComponent(this.token)}; HttpOnly; SameSite=Strict; Path=/` }];
    }
    if (this.token && !(headers.cookie || "").includes(`flightline=${this.token}`)) return no(401, "A token is needed: send it as Authorization: Bearer TOKEN.");
    if (!this.profiling && path !== "/v1/targets") return no(404, "Profiling on demand is off.");
    const [, , kind, id, what, which] = path.split("/").map(decodeURIComponent);
    if (kind === "targets" && !id && method === "GET") return [200, { profiling: this.profiling, local: !!this.processes, store: !!this.store, limits: this.limits, targets: this.targets }];
    if (kind === "targets" && !id && method === "POST") { this.adopted.push(body.pid); return [202, {}]; }
    if (kind === "processes") return this.processes ? [200, { processes: this.processes }] : no(404, "Start the service with --local to watch processes of this machine.");
    if (kind === "targets") return what === "window" ? this.window(id, which, path.split("/")[6], query, no) : this.ofTarget(id, what, method, body, no);
    if (kind === "runs" && !id) return method === "GET" ? this.allRuns(query.get("group")) : this.group(body);
    if (kind === "runs") return this.ofRun(id, what, which, method, query, no);
    if (kind === "window") return this.file(query.get("label"), what, query);
    if (kind === "store") return this.store ? this.ofStore(id, query, no) : no(404, "The service has no profile store; start it with --store DIR.");
    if (kind === "compare") return [200, this.bytes.html, { "Content-Type": TYPES.html, "Content-Security-Policy": "sandbox allow-scripts; frame-ancestors 'self'" }];
    return no(404, "There is no such path.");
  }
  ofStore(what, query, no) {
    const { store } = this, page = { "Content-Type": TYPES.html, "Content-Security-Policy": "sandbox allow-scripts; frame-ancestors 'self'" };
    if (!what) return [200, store.whole];
    if (what === "values") return [200, store.values(query)];
    if (!["flame", "diff", "top", "share", "sql"].includes(what)) return no(404, "File not found.");
    if (query.get("told") === "1") return [200, { told: store.told, bytes: 1 }];
    if (what === "sql") return [200, `SELECT '${query.get("engine") || "datafusion"}', '${query.getAll("label")}'\n`, { "Content-Type": TYPES.folded }];
    return what === "flame" || what === "diff" ? [200, this.bytes.html, page] : [200, store[what], { "Content-Type": TYPES.folded }];
  }
  window(id, files, format, query, no) {
    const kept = this.windows[id];
    if (!kept) return no(404, `Nothing is kept of ${id}.`);
    if (files !== "files") return [200, kept];
    if (!(Number(query.get("from")) < Number(query.get("to")))) return no(400, "Say from and to in UTC ms.");
    return this.file(id, format, query);
  }
  file(id, format, query) {
    const inline = query.get("view") === "1";
    return [200, this.bytes[format] || `${format} of ${id}`, {
      "Content-Type": TYPES[format] || "application/octet-stream", ...(inline ? {} : { "Content-Disposition": `attachment; filename="${id}.${format}"` }),
      ...(format === "html" ? { "Content-Security-Policy": "sandbox allow-scripts; frame-ancestors 'self'" } : {}),
    }];
  }
  ofTarget(id, what, method, body, no) {
    const of = this.find(id);
    if (!of) return no(404, `There is no such target as ${id}: list the targets to see which there are.`);
    if (method === "DELETE") {
      this.targets = this.targets.filter((each) => each !== of);
      return [204, null];
    }
    if (what !== "runs") return [200, of];
    if (method === "GET") return [200, { profilingList: this.runs.filter((each) => each.target === id) }];
    return this.begin(of, body, no);
  }
  begin(of, body, no, group = null) {
    if (!Number.isInteger(body.duration) || body.duration < 1 || body.duration > 300) return no(400, "`duration` must be set between (0s, 300s].");
    if (of.run) return no(409, `${of.id} is still under profiling.`);
    const made = run(`run-${this.next++}`, of.id, {
      group, targetName: of.name, status: "RUNNING", mode: body.mode, duration: body.duration, interval: body.interval || "", engines: body.engines || [], labels: body.labels || {},
      elapsed: 0, finishedTime: 0, message: "", outputFile: "", bytes: 0, files: [], triggerTime: NOW + this.next * 1000,
    });
    of.run = made.id;
    this.runs.unshift(made);
    return [202, made];
  }
  group(body) {
    const id = `group-${this.next++}`;
    const runs = body.targets.map((each) => {
      const of = this.find(each), [status, made] = of.state === "GONE" ? [410, { errors: ["It is gone: killed by signal 9."] }] : this.begin(of, body, (code, text) => [code, { errors: [text] }], id);
      if (status === 202) return made;
      const failed = run(`run-${this.next++}`, each, { group: id, targetName: of.name, status: "FAILED", message: made.errors[0], files: [], bytes: 0, triggerTime: NOW + this.next * 1000 });
      this.runs.unshift(failed);
      return failed;
    });
    return [202, { group: id, runs }];
  }
  allRuns(group) {
    const runs = group === null ? this.runs : this.runs.filter((each) => each.group === group);
    return [200, group === null ? { runs } : { group, runs }];
  }
  /** A run ends, with its data so far. */
  end(id, status = "FINISHED", more = {}) {
    const one = this.runs.find((each) => each.id === id), of = this.find(one.target);
    if (of?.run === id) of.run = null;
    return Object.assign(one, { status, files: status === "FAILED" ? [] : FORMATS, elapsed: status === "FINISHED" ? one.duration * 1000 : one.elapsed, bytes: 54_321 }, more);
  }
  ofRun(id, what, format, method, query, no) {
    const one = this.runs.find((each) => each.id === id);
    if (!one) return no(404, `Run ${id} not found: it may have been deleted, or removed to make room for later runs.`);
    if (method === "POST" && what === "cancel") return one.status === "RUNNING" ? [202, this.end(id, "CANCELLED")] : no(409, "This run has ended.");
    if (method === "DELETE") {
      this.runs = this.runs.filter((each) => each !== one);
      return [204, null];
    }
    if (what !== "files") return [200, one];
    if (!one.files.includes(format)) return no(404, "File not found.");
    const inline = query.get("view") === "1", name = `${one.targetName}_${one.mode}_${id}.${{ folded: "txt", pprof: "pb.gz", otlp: "pb" }[format] || format}`.replace(/[^\w.-]/g, "_");
    return [200, this.bytes[format] || Buffer.from(`${format} of ${id}\n`), {
      "Content-Type": TYPES[format] || "application/octet-stream", "X-Content-Type-Options": "nosniff",
      ...(inline ? {} : { "Content-Disposition": `attachment; filename="${name}"` }), ...(format === "html" ? { "Content-Security-Policy": "sandbox allow-scripts; frame-ancestors 'self'" } : {}),
    }];
  }
}
