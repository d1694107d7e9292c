// Opens our conversions in pages and programs of other projects.
import { execFile } from "node:child_process";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { fetched, folder, visit } from "./page.mjs";

export const modules = join(process.cwd(), "node_modules");

/** speedscope's page with a file loaded; `told` is its message about the file. */
export async function speedscope(name, bytes) {
  const app = join(modules, "speedscope/dist/release"), script = join(folder, `${name}.js`), told = [];
  writeFileSync(script, `speedscope.loadFileFromBase64("${name}", "${bytes.toString("base64")}")`);
  if (!readdirSync(app).includes("index.html")) throw new Error("speedscope has no page");
  const prepare = (page) => page.on("console", (message) => told.push(message.text()));
  const page = await visit(join(app, "index.html"), "light", `#localProfilePath=${script}`, { prepare });
  await page.getByText("Sandwich").waitFor({ timeout: 30_000 });
  page.told = told.filter((text) => !/GL Driver|WebGL|^speedscope v|^Importing as|^import: /.test(text));
  return page;
}

/** The profiles that it exports. */
export async function exported(page) {
  const [download] = await Promise.all([page.waitForEvent("download", { timeout: 30_000 }), page.getByText("Export").click()]);
  const { profiles, shared } = JSON.parse(Buffer.from(await fetched(download), "latin1").toString("utf8"));
  return { profiles, names: shared.frames.map((frame) => frame.name) };
}

/** Opens a file in the Firefox Profiler and passes a function to query it to `ask`; `name` separates
 * sessions. */
export async function firefox(name, file, ask) {
  const env = { ...process.env, PROFILER_CLI_SESSION_DIR: join(folder, name), PROFILER_CLI_NO_SYMBOLICATE: "1" };
  const program = join(modules, "@firefox-devtools/profiler-cli/dist/profiler-cli.js");
  const profiler = async (...args) => (await promisify(execFile)(process.execPath, [program, ...args], { env, timeout: 60_000, maxBuffer: 1 << 26 })).stdout;
  // It gives its own daemon half a second to start, which is too short on a busy machine.
  for (let tries = 1; ; tries++) {
    try {
      await profiler("load", file);
      break;
    } catch (error) {
      if (tries === 20 || !String(error.stderr).includes("did not become ready within")) throw error;
      await profiler("stop", "--all").catch(() => {});
      await new Promise((wait) => setTimeout(wait, 1000));
    }
  }
  try {
    return await ask(profiler);
  } finally {
    await profiler("stop", "--all");
  }
}

/** Folded text: stack → weight. */
export function folded(text) {
  const stacks = new Map();
  for (const line of text.trimEnd().split("\n")) {
    const at = line.lastIndexOf(" "), stack = line.slice(0, at);
    stacks.set(stack, (stacks.get(stack) ?? 0) + Number(line.slice(at + 1)));
  }
  return stacks;
}

export const sorted = (map) => [...map].sort(([a], [b]) => (a < b ? -1 : 1));
export const source = (name) => `<script>${readFileSync(join(modules, name), "utf8")}</script>`;
