// A page in a browser; what it asks for and complains of is collected.
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before } from "node:test";
import { chromium } from "playwright-core";

export const flightline = process.env.FLIGHTLINE;
export const folder = mkdtempSync(join(tmpdir(), "pages-"));
const contexts = [];
let browser;

before(async () => {
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox", "--disable-gpu"] });
});
after(() => browser.close());

/** Closes all pages: those that ask again and again are not to go on behind the next test. */
export const leave = () => Promise.all(contexts.splice(0).map((context) => context.close()));

/** Opens a file: `requests` other than for the page itself and `errors` are collected. */
export const visit = (file, colorScheme = "light", hash = "", more = {}) => go("file://" + file + hash, { colorScheme, ...more });

/** The same of any address; `prepare(page)` comes before it. */
export async function go(url, { prepare = () => {}, colorScheme = "light", ...more } = {}) {
  const context = await browser.newContext({ viewport: { width: 1000, height: 700 }, colorScheme, ...more });
  contexts.push(context);
  const page = await context.newPage();
  page.requests = [];
  page.errors = [];
  page.on("request", (request) => page.requests.push(request.url()));
  page.on("pageerror", (error) => page.errors.push(String(error)));
  page.on("console", (message) => message.type() === "error" && page.errors.push(message.text()));
  await prepare(page);
  await page.goto(url);
  return page;
}
