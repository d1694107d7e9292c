// A flame graph over the whole window, in a sandboxed frame that may run only its own script.
import { ask, Refusal } from "./api.js";
import { arrange, byId, element, hide, mark, tell } from "./dom.js";
import { share } from "./share.js";
import { prose } from "./text.js";
import { toast } from "./toasts.js";

// Maximum length of a stored position in a flame graph.
const LONGEST = 4000, PATIENCE_MS = 3000;

/** `closed()` restores the previous view; `key(name)` receives keys that the flame graph does not use; `moved()` is called when the user interacts with it. */
export function viewer({ closed, key, moved }) {
  const whole = byId("viewer"), room = byId("viewer-frame"), words = byId("viewer-words");
  let frame = null, shown = "", coming = null, inside = false, refused = "", shared = null;
  /** The user's position in the flame graph, as it reports it. */
  let read = { state: "", held: false };
  byId("viewer-close").addEventListener("click", closed);
  const give = () => { if (shared) share(new URL(shared(read.state), location.href).href, toast); };
  byId("viewer-share").addEventListener("click", give);
  // The flame graph has the keyboard focus; it passes on the Escape key if it does not use it.
  window.addEventListener("message", ({ source, data }) => {
    if (coming && source === coming.contentWindow && data?.flightline === "state") coming.arrived?.();
    if (!frame || source !== frame.contentWindow) return;
    if (data === "flightline:escape") closed();
    else if (data?.flightline === "key" && typeof data.key === "string") key(data.key);
    else if (data?.flightline === "state" && typeof data.state === "string" && data.state.length <= LONGEST) {
      read = { state: data.state, held: data.held === true };
      moved();
    }
  });
  // The user looks at the flame graph while the pointer is in it.
  room.addEventListener("mouseenter", () => { inside = true; moved(); });
  room.addEventListener("mouseleave", () => { inside = false; moved(); });

  /** Updates buttons in place. */
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
  /** Returns true if the answer was an error; its JSON must not appear in the frame. */
  const failed = (path) => performance.getEntriesByName(new URL(path, document.baseURI).href).at(-1)?.responseStatus >= 400;
  async function check(mine, path) {
    if (!failed(path)) return;
    try { await ask(path); } catch (error) {
      if (frame === mine) leave(error instanceof Refusal ? error.message : "The flame graph could not be loaded; go back and try again.");
    }
  }
  function leave(text) {
    frame?.remove();
    coming?.remove();
    frame = coming = null;
    read = { state: "", held: false };
    say(text);
  }
  function make(path, title, look) {
    const made = element("iframe", { title });
    made.setAttribute("sandbox", "allow-scripts");
    made.referrerPolicy = "no-referrer";
    made.src = path + (look ? `#${look}` : "");
    return made;
  }
  /** Loads a later version. It replaces the current one once it is drawn, at the same position. */
  function follow(path, title, then) {
    const earlier = coming ? coming.earlier : shown;
    shown = path;
    coming?.remove();
    performance.clearResourceTimings();
    const mine = coming = make(path, title, read.state), before = frame;
    mine.className = "coming";
    mine.earlier = earlier;
    mine.arrived = () => {
      if (coming !== mine) return;
      const focused = document.activeElement === before;
      coming = null;
      frame = mine;
      mine.className = "";
      before.remove();
      if (focused) mine.focus();
      then();
    };
    mine.addEventListener("load", () => {
      // If the new flame graph cannot be drawn, keep the current one; another one follows.
      if (coming === mine && failed(path)) {
        mine.remove();
        coming = null;
        [refused, shown] = [path, earlier];
      } else setTimeout(mine.arrived, PATIENCE_MS);
    });
    room.append(mine);
  }
  function load(path, title, look) {
    if (shown === path) return;
    shown = path;
    leave("Drawing…");
    performance.clearResourceTimings();
    // Use a new frame each time, since navigating within a frame would add to the browser's history.
    const mine = frame = make(path, title, look);
    mine.addEventListener("load", () => {
      if (frame !== mine) return;
      say("");
      const at = document.activeElement;
      if (at === document.body || whole.contains(at) && at.tagName !== "BUTTON" && at.tagName !== "A") mine.focus();
      check(mine, path);
    });
    room.append(mine);
  }

  /** `path`: URL of the flame graph, or null, with `text` as the reason. `events` and `steps` are buttons, `links` are links; `goesOn`: it is a later version of the same. */
  function show({ title, path, text, events = [], steps = [], links = [], look = "", goesOn = false, address = null }) {
    if (whole.hidden) {
      hide(whole, false);
      byId("viewer-title").focus({ preventScroll: true });
    }
    const bar = () => {
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
      shared = address;
    };
    // Do not announce a flame graph that could not be drawn.
    if (goesOn && frame && (path === refused || coming && shown === path)) return;
    if (path && goesOn && frame && shown && shown !== path) return follow(path, title, bar);
    bar();
    if (path) load(path, title, look);
    else {
      shown = "";
      leave(prose(text));
    }
  }

  return {
    show,
    hide() {
      if (whole.hidden) return false;
      hide(whole, true);
      hide(byId("share"), true);
      shown = "";
      leave("");
      return true;
    },
    get open() { return !whole.hidden; },
    /** Returns true if the user has navigated in the flame graph or has the pointer in it. */
    get held() { return !whole.hidden && !!frame && (read.held || inside); },
    share: give,
    save(format) { byId("viewer-links").querySelector(`[data-format="${format}"]`)?.click(); },
    step(at) { byId("viewer-steps").children[at]?.click(); },
  };
}
