// A picture over the whole window, in a frame that may run its own script and nothing else.
import { ask, Refusal } from "./api.js";
import { arrange, byId, element, hide, mark, tell } from "./dom.js";
import { share } from "./share.js";
import { prose } from "./text.js";
import { toast } from "./toasts.js";

// Longest address of a place in a picture that is kept.
const LONGEST = 4000, PATIENCE_MS = 3000;

/** `closed()` goes back to what was there before; `key(name)` is one that the picture has no use for, `moved()`: the reader did something in it. */
export function viewer({ closed, key, moved }) {
  const whole = byId("viewer"), room = byId("viewer-frame"), words = byId("viewer-words");
  let frame = null, shown = "", coming = null, inside = false, refused = "", shared = null;
  /** Where the reader is in the picture, as it tells. */
  let read = { state: "", held: false };
  byId("viewer-close").addEventListener("click", closed);
  const give = () => { if (shared) share(new URL(shared(read.state), location.href).href, toast); };
  byId("viewer-share").addEventListener("click", give);
  // The picture has the keyboard; the Escape that it has no use for comes back.
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
  // Who has the pointer in it looks at it.
  room.addEventListener("mouseenter", () => { inside = true; moved(); });
  room.addEventListener("mouseleave", () => { inside = false; moved(); });

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
  const failed = (path) => performance.getEntriesByName(new URL(path, document.baseURI).href).at(-1)?.responseStatus >= 400;
  async function check(mine, path) {
    if (!failed(path)) return;
    try { await ask(path); } catch (error) {
      if (frame === mine) leave(error instanceof Refusal ? error.message : "The picture did not come; go back and try again.");
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
  /** The same of a later time: it takes the other one's place when it is drawn, and begins where the reader is. */
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
      // What cannot be drawn is no reason to take away what is there: the next one comes.
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
    // A new frame each time: going to another page in the same one would be a step of the browser's history.
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

  /** `path`: of the picture, or null, and `text` says why there is none yet. `events` and `steps` are buttons, `links` are links; `goesOn`: it is a later one of the same. */
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
    // What could not be drawn is not said to be there.
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
    /** Whether the reader has gone anywhere in the picture, or has the pointer in it. */
    get held() { return !whole.hidden && !!frame && (read.held || inside); },
    share: give,
    save(format) { byId("viewer-links").querySelector(`[data-format="${format}"]`)?.click(); },
    step(at) { byId("viewer-steps").children[at]?.click(); },
  };
}
