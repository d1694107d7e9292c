// Two sides to compare: A is before, B after. A side is a run or an interval of a continuous profile.
import { byId, hide, mark, tell } from "./dom.js";

/** Sides are `{ ref, name() }` with the service's `ref`. Calls `changed()` after each change; `link(before, after)` returns the address of the comparison. */
export function basket({ changed, link }) {
  const held = { before: null, after: null };
  const open = byId("basket-open");
  byId("basket-clear").addEventListener("click", () => { held.before = held.after = null; show(); changed(); });
  open.addEventListener("click", (event) => { if (!open.href) event.preventDefault(); });
  function show() {
    hide(byId("basket"), !held.before && !held.after);
    for (const [which, letter] of [["before", "A"], ["after", "B"]]) {
      tell(byId(`basket-${which}`), `${letter}  ${held[which] ? held[which].name() : "select a run"}`);
      byId(`basket-${which}`).classList.toggle("missing", !held[which]);
    }
    const both = held.before && held.after;
    mark(open, "href", both ? link(held.before.ref, held.after.ref) : null);
    mark(open, "aria-disabled", both ? null : true);
  }
  return {
    /** Adds a side, or removes it if it is present. */
    put(side, which) {
      const other = which === "before" ? "after" : "before";
      held[which] = held[which]?.ref === side.ref ? null : side;
      // A side is not compared with itself.
      if (held[which] && held[other]?.ref === side.ref) held[other] = null;
      show();
      changed();
    },
    /** Removes a side whose run was deleted. */
    drop(ref) {
      for (const which of ["before", "after"]) if (held[which]?.ref === ref) held[which] = null;
      show();
    },
    sides: (ref) => ["before", "after"].filter((which) => held[which]?.ref === ref),
    show,
  };
}
