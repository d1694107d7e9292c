"use strict";
/** Keys and their actions, for the help and for the page: `[keys, words, action]`. */
const KEYS = [
  ["View", [
    [["f"], "flame graph, root at the bottom", "flame"],
    [["i"], "icicle: root at the top; again: back", "invert"],
    [["r"], "reverse: stacks merged from the leaf", "reverse"],
    [["s"], "sandwich: callers and callees of the current function", "sandwich"],
    [["3"], "before, after and difference as three linked graphs", "three"],
    [["t"], "top: functions by weight", "top"],
    [["e"], "tree: indented calls", "tree"],
    [["a"], "flame chart: threads over time; + and - zoom, Shift-arrows pan", "chart"],
    [["h"], "heat map of sample times: drag to select a range, with Ctrl to compare", "heat"],
    [["v"], "next event of the recording", "event"],
    [["m"], "next measure: number of samples, time or bytes", "measure"],
    [["p"], "next palette", "palette"],
    [["j"], "Java names on boxes: short (packages abbreviated to fit), simple, full", "names"],
    [["w"], "sort neighbours by width or by name", "order"],
    [["d"], "light or dark theme", "theme"],
  ]],
  ["Search", [
    [["/", "Ctrl-F"], "search by regular expression", "search"],
    [["n"], "next match", "next"],
    [["N"], "previous match", "before"],
    [["k"], "keep only stacks with a match, or with the current function", "keep"],
    [["x"], "drop stacks with a match, or with the current function", "drop"],
  ]],
  ["Current function", [
    [["o"], "collapse: hide its callees and add their weight to it", "collapse"],
    [["R"], "collapse direct recursion: merge its direct calls of itself into one box", "recursion"],
    [["M"], "merge: remove it and add its weight and callees to its callers", "merge"],
    [["c"], "copy its name", "copy"],
    [["C"], "copy its stack, from the root", "stack"],
  ]],
  ["Move", [
    [["Arrows"], "move to caller, callee or neighbour, or in a list"],
    [["Enter"], "zoom to the current box; open a line"],
    [["0", "Escape"], "reset zoom", "reset"],
    [["u", "Ctrl-Z"], "undo", "undo"],
    [["U", "Ctrl-Shift-Z"], "redo", "redo"],
    [["?"], "show these keys", "help"],
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
