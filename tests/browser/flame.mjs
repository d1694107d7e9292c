// Drives the page of a flame graph: the boxes under the pointer, the texts and the pixels.
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { flightline, folder, visit } from "./page.mjs";

export const ROW = 17;
let made = 0;

/** The file of a flame graph of some folded text. */
export function drawn(folded, args = []) {
  const input = join(folder, "in.txt"), output = join(folder, `${made++}.html`);
  writeFileSync(input, folded);
  execFileSync(flightline, ["flame", input, "-o", output, ...args]);
  return output;
}
/** The file of a flame graph of a recording among the fixtures. */
export const recorded = (name, ...args) => drawnOf(join(process.env.RECORDINGS, name), args);
/** The same of any file. */
export function drawnOf(input, args = []) {
  const output = join(folder, `${made++}.html`);
  execFileSync(flightline, ["flame", input, "-o", output, ...args]);
  return output;
}
/** The sum of the folded stacks of a fixture's recording. */
export function sum(name, ...args) {
  const folded = execFileSync(flightline, ["fold", join(process.env.RECORDINGS, name), ...args], { encoding: "utf8" });
  return folded.trimEnd().split("\n").reduce((all, line) => all + Number(line.slice(line.lastIndexOf(" ") + 1)), 0);
}
/** Opens a page that was already written. */
export async function opened(file, colorScheme = "light", hash = "") {
  const page = await visit(file, colorScheme, hash);
  await page.waitForFunction(() => "ready" in document.documentElement.dataset);
  return page;
}
/** Opens the flame graph of some folded text. */
export const open = (folded, args = [], colorScheme = "light", hash = "") => opened(drawn(folded, args), colorScheme, hash);

export const settled = (page) => page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
export const details = (page) => page.locator("#details").textContent();

async function place(page, x, level, canvas, down) {
  const box = await page.locator(canvas).boundingBox();
  return [box.x + x * box.width, down ? box.y + (level + 0.5) * ROW : box.y + box.height - (level + 0.5) * ROW];
}
/** The text about the box at x (0..1 of the width) and level (0 is "all"), from the bottom, or from the
 * top if `down`. */
export async function hover(page, x, level, { canvas = "#canvas", down = false } = {}) {
  await page.mouse.move(...await place(page, x, level, canvas, down));
  return details(page);
}
export async function click(page, x, level, { canvas = "#canvas", down = false } = {}) {
  await page.mouse.click(...await place(page, x, level, canvas, down));
}
/** Searches; returns the result text. */
export async function search(page, text) {
  await page.fill("#search", text);
  return page.locator("#matched").textContent();
}
/** The red, green and blue of a graph at x and level, blended with white. */
export async function colour(page, x, level, { canvas = "#canvas", down = false } = {}) {
  await settled(page);
  return page.evaluate(([selector, x, level, row, down]) => {
    const canvas = document.querySelector(selector), ratio = devicePixelRatio;
    const y = down ? (level + 0.5) * row * ratio : canvas.height - (level + 0.5) * row * ratio;
    const [red, green, blue, alpha] = canvas.getContext("2d").getImageData(x * canvas.width, y, 1, 1).data;
    return [red, green, blue].map((part) => Math.round((part * alpha + 255 * (255 - alpha)) / 255));
  }, [canvas, x, level, ROW, down]);
}
/** The pixels of a canvas, for comparison. */
export async function picture(page, canvas = "#canvas") {
  await settled(page);
  return page.evaluate((selector) => document.querySelector(selector).toDataURL(), canvas);
}
