// Reads the page of the profiling service, for its tests.
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { drawn } from "./flame.mjs";
import { flightline, folder } from "./page.mjs";

/** The errors of scripts. The browser itself reports requests that are answered with an error. */
export const complaints = (page) => page.errors.filter((error) => !error.startsWith("Failed to load resource"));
export const visible = (page, text) => page.locator("#targets .target", { hasText: text });
/** The graph in the page, once it has been drawn; a graph that is loading replaces it later. */
export async function picture(page) {
  const frame = page.frameLocator("#viewer-frame iframe:not(.coming)");
  await frame.locator("html[data-ready]").waitFor({ state: "attached" });
  return frame;
}
/** The rows of the list of runs. */
export const rows = (page) => page.locator("#runs-body tr");
/** A flame graph as the service would send it. */
export const html = () => readFileSync(drawn("main;work 60\nmain;rest 40\n"));
/** All formats of one recording, as our own command makes them. */
export function files() {
  const recording = join(process.env.RECORDINGS, "ap-java-cpu.jfr"), made = (name) => join(folder, name);
  execFileSync(flightline, ["convert", recording, "--format", "pprof", "-o", made("run.pb.gz")]);
  execFileSync(flightline, ["convert", recording, "--format", "otlp", "-o", made("run.pb")]);
  return {
    html: html(), jfr: readFileSync(recording), folded: execFileSync(flightline, ["fold", recording]), pprof: readFileSync(made("run.pb.gz")), otlp: readFileSync(made("run.pb")),
  };
}
