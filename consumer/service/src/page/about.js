// The header of the main area: a target, several targets, a group of runs, or all.
import { arrange, byId, element, hide, mark, tell } from "./dom.js";
import { count, iso, labelsOf, moment, plain, prose, seconds } from "./text.js";

const NAMES = 12;

/** Waits for the promise of `forget(target)`. */
export function aboutLine({ forget }) {
  const facts = byId("about-facts");
  let about = null, sure = false, waiting = false;
  const button = element("button", { type: "button", className: "quiet" });
  byId("about-actions").append(button);
  button.addEventListener("blur", () => { sure = false; tellButton(); });
  button.addEventListener("click", async () => {
    if (waiting) return;
    if (!sure) {
      sure = true;
      return tellButton();
    }
    waiting = true;
    tellButton();
    try { await forget(about); } finally {
      waiting = sure = false;
      tellButton();
    }
  });
  function tellButton() {
    hide(button, about?.state !== "GONE");
    mark(button, "class", sure ? "quiet sure" : "quiet");
    mark(button, "aria-busy", waiting);
    tell(button, waiting ? "Forgetting…" : sure ? "Delete it and its runs permanently?" : "Forget");
  }
  function show(title, state, kind, words, labels = [], more = null) {
    mark(facts, "title", more);
    tell(byId("about-title"), title);
    tell(byId("about-state"), state);
    mark(byId("about-state"), "class", kind);
    tell(facts, words);
    const key = JSON.stringify(labels), list = byId("about-labels");
    if (list.dataset.of !== key) {
      list.dataset.of = key;
      arrange(list, labels.map(([name, value]) => element("li", {}, element("bdi", { className: "key", textContent: name }), " ", element("bdi", { textContent: value }))));
    }
    hide(list, !labels.length);
    tellButton();
  }
  return {
    target(target) {
      if (about?.id !== target.id) sure = false;
      about = target;
      const gone = target.state === "GONE";
      const state = gone ? `gone${target.gone ? `: ${prose(target.gone)}` : ""}` : target.run ? "recording" : "live";
      const since = target.startTime ? [`since ${moment(target.startTime)}`, gone ? "" : `up ${seconds((target.lastSeen - target.startTime) / 1000)}`] : [];
      show(plain(target.name) || "(no name)", state, gone ? "gone" : target.run ? "running" : "live",
        [`pid ${target.pid}`, plain(target.host) && `on ${plain(target.host)}`, ...since, gone ? `last seen ${moment(target.lastSeen)}` : ""].filter(Boolean).join(" · "),
        labelsOf(target.labels), target.startTime ? `started ${iso(target.startTime)}\nlast seen ${iso(target.lastSeen)}` : null);
    },
    several(targets) {
      about = null;
      const names = targets.slice(0, NAMES).map(({ name, pid }) => `${plain(name)} (${pid})`), more = targets.length - names.length;
      show(count(targets.length, "target"), "", "", names.join(", ") + (more > 0 ? ` and ${more} more` : ""));
    },
    words(title, words) {
      about = null;
      show(title, "", "", words);
    },
  };
}
