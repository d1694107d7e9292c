// A live view of the last minutes of a continuous profile, which pauses while the user interacts with it.
import { byId, hide, mark, tell } from "./dom.js";
import { count } from "./text.js";

/** Calls `redraw()` after a button is pressed. `held()` returns true if the user has navigated in the flame graph or has the pointer in it. */
export function liveView({ redraw, held }) {
  const freeze = byId("live-freeze"), newest = byId("live-newest");
  let of = "", shown = null, frozen = false;
  const toggle = () => { frozen = !frozen; redraw(); };
  const forward = () => { frozen = false; shown = null; redraw(); };
  freeze.addEventListener("click", toggle);
  newest.addEventListener("click", forward);
  return {
    toggle, forward,
    /** Returns the interval of the available data to show, `length` ms long; null if there is none. Also updates the message about newer data. */
    range(id, length, told) {
      if (of !== `${id} ${length}`) [of, shown, frozen] = [`${id} ${length}`, null, false];
      const waits = frozen || held();
      if (told && (!shown || told.to > shown.to && !waits)) shown = { from: Math.max(told.from, told.to - length), to: told.to };
      const newer = shown && told ? (told.chunks || []).filter(({ to }) => to > shown.to).length : 0;
      hide(byId("live"), false);
      mark(byId("live"), "data-waits", waits);
      mark(freeze, "aria-pressed", frozen);
      hide(newest, !newer);
      tell(newest, newer ? `${count(newer, "newer chunk")}: show` : "");
      tell(byId("live-words"), frozen ? "Frozen" : newer && waits ? "Paused while you inspect" : "Live");
      return shown;
    },
    end() {
      hide(byId("live"), true);
      [of, shown, frozen] = ["", null, false];
    },
    get on() { return of !== ""; },
  };
}
