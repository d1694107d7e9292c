"use strict";
/** Keys and their actions, for the help and for the page: `[keys, words, action]`. */
const KEYS = [
  ["View", [
    [["f"], "flame graph, root at the bottom", "flame"],
    [["i"], "upside down: icicle, or back", "invert"],
    [["r"], "reverse: merged from the leaf on", "reverse"],
    [["s"], "sandwich: callers and callees of the current function", "sandwich"],
    [["3"], "before, after and what is different: three linked graphs", "three"],
    [["t"], "top: functions by weight", "top"],
    [["e"], "tree: indented calls", "tree"],
    [["a"], "flame chart: threads along time; + and - zoom, Shift and arrows pan", "chart"],
    [["h"], "heat map of times: brush it to see a range, with Ctrl to compare", "heat"],
    [["v"], "next event of the recording", "event"],
    [["m"], "next measure: number of samples, time or bytes", "measure"],
    [["p"], "next colours", "palette"],
    [["j"], "Java names on boxes: short (packages as letters where there is no room), simple, full", "names"],
    [["w"], "neighbours by width or by name", "order"],
    [["d"], "light or dark", "theme"],
  ]],
  ["Search", [
    [["/", "Ctrl-F"], "search by regular expression", "search"],
    [["n"], "next match", "next"],
    [["N"], "match before", "before"],
    [["k"], "keep only stacks that have a match, or the current function", "keep"],
    [["x"], "drop stacks that have a match, or the current function", "drop"],
  ]],
  ["Current function", [
    [["o"], "collapse: its callees vanish, their weight becomes its own", "collapse"],
    [["R"], "collapse direct recursion: its calls of itself become one box, but not those through other functions", "recursion"],
    [["M"], "merge: it vanishes, its weight and its callees go to its callers", "merge"],
    [["c"], "copy its name", "copy"],
    [["C"], "copy the stack from the root to it", "stack"],
  ]],
  ["Move", [
    [["Arrows"], "to caller, callee, neighbour; lines of a list"],
    [["Enter"], "zoom to the current box; open a line"],
    [["0", "Escape"], "reset zoom", "reset"],
    [["u", "Ctrl-Z"], "undo", "undo"],
    [["U", "Ctrl-Shift-Z"], "redo", "redo"],
    [["?"], "these keys", "help"],
  ]],
];

/** The action of a key, undefined if it has none. */
function actionOf(event) {
  if (event.altKey) return undefined;
  const control = event.ctrlKey || event.metaKey;
  const name = control ? (event.shiftKey ? "Ctrl-Shift-" : "Ctrl-") + event.key.toUpperCase() : event.key;
  for (const [, keys] of KEYS) for (const [names, , action] of keys) if (action && names.includes(name)) return action;
  return undefined;
}

/** Writes the help. */
function tellKeys(into) {
  for (const [title, keys] of KEYS) {
    const section = element("section");
    section.append(element("h3", "", title));
    const list = element("dl");
    for (const [names, words] of keys) {
      const term = element("dt");
      names.forEach((name) => term.append(element("kbd", "", name)));
      list.append(term, element("dd", "", words));
    }
    section.append(list);
    into.append(section);
  }
}
