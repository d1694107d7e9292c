// The table of runs: newest first, keyed by id.
import { arrange, byId, hide, tell } from "./dom.js";
import { runRow } from "./row.js";
import { count } from "./text.js";

const MOST = 200;

/** `acts` are the actions of a row. */
export function runTable(acts) {
  const body = byId("runs-body");
  let rows = new Map(), current = null;
  body.addEventListener("focusin", (event) => {
    const row = event.target.closest("tr");
    for (const each of rows.values()) each.tabIndex = each === row ? 0 : -1;
    current = row;
  });

  function show(all, { several, empty }) {
    const runs = [...all].sort((a, b) => b.triggerTime - a.triggerTime || (a.id < b.id ? 1 : -1)).slice(0, MOST), kept = new Map();
    for (const run of runs) {
      const row = rows.get(run.id) || runRow(acts);
      row.update(run);
      kept.set(run.id, row);
    }
    const lost = document.activeElement?.closest?.("#runs-body tr"), at = [...body.children].indexOf(lost);
    rows = kept;
    arrange(body, [...kept.values()]);
    // The focused row was removed: focus the next one.
    if (lost && !lost.isConnected) (body.children[Math.min(at, body.children.length - 1)] || byId("main")).focus();
    if (!current?.isConnected) current = body.firstElementChild;
    if (current && current.tabIndex !== 0) current.tabIndex = 0;
    byId("runs").classList.toggle("several", several);
    hide(byId("runs"), !runs.length);
    hide(byId("none"), runs.length > 0);
    tell(byId("none"), empty);
    const running = all.filter(({ status }) => status === "RUNNING").length;
    tell(byId("history-words"), all.length > MOST ? `the latest ${MOST} of ${count(all.length, "run")}` : running && all.length > 1 ? `${running} running` : "");
  }
  function moveTo(row) {
    if (!row) return;
    row.focus({ preventScroll: true });
    row.scrollIntoView({ block: "nearest" });
  }
  const within = () => document.activeElement?.closest?.("#runs-body tr");

  return {
    show,
    /** Focuses the row of this run, or the row that had the focus last; without rows, the surrounding element. */
    focus(id) {
      const row = rows.get(id) || current || body.firstElementChild;
      if (row) moveTo(row);
      else byId("main").focus({ preventScroll: true });
    },
    get current() { return within() || null; },
    get rows() { return [...body.children]; },
    /** Handles a key for a row; returns true if it did. */
    key(event) {
      const row = within(), all = [...body.children], at = all.indexOf(row);
      if (event.key === "j" || event.key === "ArrowDown") moveTo(all[Math.min(all.length - 1, at + 1)]);
      else if (event.key === "k" || event.key === "ArrowUp") moveTo(all[Math.max(0, at - 1)]);
      else if (event.key === "Home") moveTo(all[0]);
      else if (event.key === "End") moveTo(all.at(-1));
      else if (row && event.target === row && event.key === "Enter") row.view();
      else if (row && (event.key === "a" || event.key === "b")) acts.compare(row.run(), event.key === "a" ? "before" : "after");
      else return false;
      return true;
    },
  };
}
