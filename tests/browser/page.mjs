// A page in a browser; its requests and errors are collected.
import { mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before } from "node:test";
import { chromium } from "playwright-core";

export const flightline = process.env.FLIGHTLINE;
export const folder = mkdtempSync(join(tmpdir(), "pages-"));
let contexts = [];
let server, browser;

async function launch() {
  server = await chromium.launchServer({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox", "--disable-gpu"] });
  browser = await chromium.connect(server.wsEndpoint());
}
before(launch);
after(async () => { if (!await within(10_000, server.close())) await server.kill(); });

/** The result of a promise, or undefined after a time-out. */
async function within(ms, promise) {
  let timer;
  const late = new Promise((done) => { timer = setTimeout(done, ms, null); });
  return Promise.race([promise.then((value) => value ?? true), late]).finally(() => clearTimeout(timer));
}

/** Opens a new page. If the browser has stopped answering, which Chromium does once in some hundred runs,
 * it is restarted with a message. */
async function fresh(options) {
  const made = async () => {
    const context = await browser.newContext(options);
    return { context, page: await context.newPage() };
  };
  const first = await within(60_000, made());
  if (first) return first;
  console.error("*** Chromium has not made a page for a minute; another one was started ***");
  await server.kill();
  contexts = [];
  await launch();
  return made();
}

/** Closes all pages, because pages that poll must not continue during the next test. */
export const leave = () => within(30_000, Promise.all(contexts.splice(0).map((context) => context.close())));

/** The downloaded data, each byte as a letter. */
export async function fetched(download) {
  const file = join(mkdtempSync(join(folder, "fetched-")), "file");
  await download.saveAs(file);
  return readFileSync(file, "latin1");
}

/** Opens a file. `requests` (other than for the page itself) and `errors` are collected. */
export const visit = (file, colorScheme = "light", hash = "", more = {}) => go("file://" + file + hash, { colorScheme, ...more });

/** Opens any address; `prepare(page)` runs before it. */
export async function go(url, { prepare = () => {}, colorScheme = "light", ...more } = {}) {
  const { context, page } = await fresh({ viewport: { width: 1000, height: 700 }, colorScheme, ...more });
  contexts.push(context);
  page.requests = [];
  page.errors = [];
  page.on("request", (request) => page.requests.push(request.url()));
  page.on("pageerror", (error) => page.errors.push(String(error)));
  page.on("console", (message) => message.type() === "error" && page.errors.push(message.text()));
  await prepare(page);
  await page.goto(url);
  return page;
}
