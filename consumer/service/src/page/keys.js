// Keyboard shortcuts, for the help and for the page.
import { byId, element } from "./dom.js";

/** `[keys, words, action]`; entries without an action are handled by the focused list. */
const KEYS = [
  ["Anywhere", [
    [["/"], "search targets", "search"],
    [["p"], "profile what is chosen, as the form says", "profile"],
    [["m"], "to the form: mode, duration", "form"],
    [["c"], "cancel the run", "cancel"],
    [["r"], "to the runs", "runs"],
    [["t"], "to the targets", "targets"],
    [["="], "compare A and B", "compare"],
    [["l"], "live: the last minutes of a target that is recorded all the time; there: to what is newest", "live"],
    [["Escape"], "close, dismiss, go back", "back"],
    [["?"], "these keys", "help"],
  ]],
  ["Picture", [
    [["z"], "freeze it, or let it go on", "freeze"],
    [["S", "J", "F"], "save exactly this: HTML, JFR, folded stacks", "save"],
    [["y"], "share: copy an address that shows the same", "share"],
    [["[", "]"], "earlier, later", "step"],
  ]],
  ["Targets", [
    [["j", "k", "↓", "↑"], "next, the one before"],
    [["Enter"], "open; the keyboard goes on in its runs"],
    [["x", "Space"], "choose several; Shift and a click for all in between"],
  ]],
  ["Runs", [
    [["j", "k", "↓", "↑"], "next, the one before"],
    [["Enter"], "view the flame graph; Escape comes back"],
    [["a", "b"], "compare: this one as A (before) or B (after)"],
    [["Tab"], "to the run's files and buttons"],
  ]],
];

/** Returns the action of a key, or undefined. */
export function actionOf(event) {
  if (event.altKey || event.ctrlKey || event.metaKey) return undefined;
  for (const [, keys] of KEYS) for (const [names, , action] of keys) if (action && names.includes(event.key)) return action;
  return undefined;
}

/** Fills in the help. */
export function tellKeys() {
  byId("keys").replaceChildren(...KEYS.map(([title, keys]) => element("section", {}, element("h3", { textContent: title }),
    element("dl", {}, ...keys.flatMap(([names, words]) => [
      element("dt", {}, ...names.map((name) => element("kbd", { textContent: name }))), element("dd", { textContent: words })])))));
}
