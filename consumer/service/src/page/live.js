// The last minutes of a target that is recorded all the time, which go on, but not under the eyes of who reads them.
import { byId, hide, mark, tell } from "./dom.js";
import { count } from "./text.js";

/** `redraw()`: something was pressed. `held()`: whether the reader has gone anywhere in the picture, or is in it now. */
export function liveView({ redraw, held }) {
  const freeze = byId("live-freeze"), newest = byId("live-newest");
  let of = "", shown = null, frozen = false;
  const toggle = () => { frozen = !frozen; redraw(); };
  const forward = () => { frozen = false; shown = null; redraw(); };
  freeze.addEventListener("click", toggle);
  newest.addEventListener("click", forward);
  return {
    toggle, forward,
    /** Which part is to be seen of what is kept, `length` ms long; null as long as nothing is known. Tells also what there is beyond it. */
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
      tell(byId("live-words"), frozen ? "Frozen" : newer && waits ? "Held while you look" : "Live");
      return shown;
    },
    end() {
      hide(byId("live"), true);
      [of, shown, frozen] = ["", null, false];
    },
    get on() { return of !== ""; },
  };
}
