// Two runs to be compared: A is before, B after.
import { byId, mark, tell } from "./dom.js";
import { moment, plain } from "./text.js";

export const nameOf = (run) => `${plain(run.targetName)} · ${plain(run.mode)} · ${moment(run.triggerTime)}`;

/** `changed()` after each change; `link(before, after)`: the address of the comparison. */
export function basket({ changed, link }) {
  const held = { before: null, after: null };
  const open = byId("basket-open");
  byId("basket-clear").addEventListener("click", () => { held.before = held.after = null; show(); changed(); });
  open.addEventListener("click", (event) => { if (!open.href) event.preventDefault(); });
  function show() {
    byId("basket").hidden = !held.before && !held.after;
    for (const [which, letter] of [["before", "A"], ["after", "B"]]) {
      tell(byId(`basket-${which}`), `${letter}  ${held[which] ? nameOf(held[which]) : "choose a run"}`);
      byId(`basket-${which}`).classList.toggle("missing", !held[which]);
    }
    const both = held.before && held.after && held.before.id !== held.after.id;
    mark(open, "href", both ? link(held.before, held.after) : null);
    mark(open, "aria-disabled", both ? null : true);
  }
  return {
    /** Puts a run in, or takes it out if it is there. */
    put(run, which) {
      const other = which === "before" ? "after" : "before";
      held[which] = held[which]?.id === run.id ? null : run;
      if (held[which] && held[other]?.id === run.id) held[other] = null;
      show();
      changed();
    },
    /** A run that is no more cannot be compared. */
    drop(id) {
      for (const which of ["before", "after"]) if (held[which]?.id === id) held[which] = null;
      show();
    },
    sides: (run) => ["before", "after"].filter((which) => held[which]?.id === run.id),
    show,
  };
}
