// Keyboard shortcuts, for the help and for the page.
import { byId, element } from "./dom.js";

/** `[keys, words, action]`; entries without an action are handled by the focused list. */
const KEYS = [
  ["Anywhere", [
    [["/"], "search targets", "search"],
    [["p"], "profile the selected targets with the form’s settings", "profile"],
    [["m"], "go to the form: mode, duration", "form"],
    [["c"], "cancel the run", "cancel"],
    [["r"], "go to the runs", "runs"],
    [["t"], "go to the targets", "targets"],
    [["="], "compare A and B", "compare"],
    [["l"], "live: show the last minutes of a continuous profile; in the live view: go to the newest data", "live"],
    [["Escape"], "close, dismiss, go back", "back"],
    [["?"], "these keys", "help"],
  ]],
  ["Picture", [
    [["z"], "stop or resume live updates", "freeze"],
    [["S", "J", "F"], "save this view: HTML, JFR, folded stacks", "save"],
    [["y"], "share: copy a link to this view", "share"],
    [["[", "]"], "earlier, later", "step"],
  ]],
  ["Targets", [
    [["j", "k", "↓", "↑"], "next, previous"],
    [["Enter"], "open, and move to its runs"],
    [["x", "Space"], "select several; Shift-click selects a range"],
  ]],
  ["Runs", [
    [["j", "k", "↓", "↑"], "next, previous"],
    [["Enter"], "view the flame graph; Escape returns"],
    [["a", "b"], "compare: use this run as A (before) or B (after)"],
    [["Tab"], "move to the run's files and buttons"],
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
