// A picture over the whole window, in a frame that may run its own script and nothing else.
import { ask, Refusal } from "./api.js";
import { arrange, byId, element, hide, mark, tell } from "./dom.js";
import { prose } from "./text.js";

/** `closed()` goes back to what was there before. */
export function viewer({ closed }) {
  const whole = byId("viewer"), room = byId("viewer-frame"), words = byId("viewer-words");
  let frame = null, shown = "";
  byId("viewer-close").addEventListener("click", closed);
  // The picture has the keyboard; the Escape that it has no use for comes back.
  window.addEventListener("message", (event) => { if (frame && event.source === frame.contentWindow && event.data === "flightline:escape") closed(); });

  /** The same buttons again, with other words. */
  function buttons(into, all, more) {
    const kept = [...into.children];
    arrange(into, all.map((one, i) => {
      const made = kept[i] || element("button", { type: "button" });
      tell(made, one.words);
      made.onclick = () => { if (!one.off) one.act(); };
      more(made, one);
      return made;
    }));
  }
  function say(text) {
    hide(words, !text);
    tell(words, text);
  }
  /** Errors come as JSON, which nobody is to read in a frame. */
  async function check(mine, path) {
    const known = performance.getEntriesByName(new URL(path, document.baseURI).href).at(-1)?.responseStatus;
    if (!(known >= 400)) return;
    try { await ask(path); } catch (error) {
      if (frame === mine) leave(error instanceof Refusal ? error.message : "The picture did not come; go back and try again.");
    }
  }
  function leave(text) {
    frame?.remove();
    frame = null;
    say(text);
  }
  function load(path, title) {
    if (shown === path) return;
    shown = path;
    leave("Drawing…");
    performance.clearResourceTimings();
    // A new frame each time: going to another page in the same one would be a step of the browser's history.
    const mine = frame = element("iframe", { title });
    mine.setAttribute("sandbox", "allow-scripts");
    mine.referrerPolicy = "no-referrer";
    mine.addEventListener("load", () => {
      if (frame !== mine) return;
      say("");
      const at = document.activeElement;
      if (at === document.body || whole.contains(at) && at.tagName !== "BUTTON" && at.tagName !== "A") mine.focus();
      check(mine, path);
    });
    mine.src = path;
    room.append(mine);
  }

  return {
    /** `path`: of the picture, or null, and `text` says why there is none yet. `events` and `steps` are buttons, `links` are links. */
    show({ title, path, text, events = [], steps = [], links = [] }) {
      if (whole.hidden) {
        hide(whole, false);
        byId("viewer-title").focus({ preventScroll: true });
      }
      tell(byId("viewer-title"), title);
      mark(byId("viewer-title"), "title", title);
      hide(byId("viewer-events"), events.length < 2);
      buttons(byId("viewer-events"), events, (made, { name, pressed }) => {
        mark(made, "data-event", name);
        mark(made, "aria-pressed", pressed);
      });
      hide(byId("viewer-steps"), !steps.length);
      buttons(byId("viewer-steps"), steps, (made, { off }) => mark(made, "aria-disabled", off));
      const key = links.map(({ href }) => href).join("\n");
      if (byId("viewer-links").dataset.of !== key) {
        byId("viewer-links").dataset.of = key;
        arrange(byId("viewer-links"), links);
      }
      if (path) load(path, title);
      else {
        shown = "";
        leave(prose(text));
      }
    },
    hide() {
      if (whole.hidden) return false;
      hide(whole, true);
      shown = "";
      leave("");
      return true;
    },
    get open() { return !whole.hidden; },
  };
}
