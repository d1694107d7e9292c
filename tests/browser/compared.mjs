// The page of a difference of two profiles.
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { drawn } from "./flame.mjs";
import { flightline, folder } from "./page.mjs";

const BEFORE = "gone;leaf 50\nroot;parent;a 100\nroot;parent;b 100\nroot;same 750\n";
const AFTER = "root;parent;a 300\nroot;parent;b 300\nroot;same 750\nroot;fresh 40\n";

/** Its file; by default of two small profiles of 1,000 and 1,390 samples. */
export function compared(args = [], before = BEFORE, after = AFTER) {
  const [a, b, page] = ["a.folded", "b.folded", "d.html"].map((name) => join(folder, name));
  writeFileSync(a, before);
  writeFileSync(b, after);
  execFileSync(flightline, ["diff", a, b, "-o", page, ...args]);
  return page;
}
/** A page of one of them alone. */
compared.alone = () => drawn(BEFORE);
