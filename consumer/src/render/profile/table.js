"use strict";
/**
 * Functions by weight: of the stacks that end in them, and of those that contain them, each counted once. `chosen(label)` is
 * called for the current row, `opened(label)` for a double click or Enter.
 */
function topTable(ui) {
  const { scroller, head, chosen, opened, sorted } = ui;
  let frames, columns = [], describe = () => "", order = [], by = "", current = -1, colour = () => "";
  const list = rowList(scroller, row);

  function heads() {
    if (head.dataset.columns === columns.map(({ key }) => key).join()) return;
    head.dataset.columns = columns.map(({ key }) => key).join();
    head.textContent = "";
    for (const { key, title } of columns) {
      const cell = element("button", key, title);
      cell.type = "button";
      cell.setAttribute("role", "columnheader");
      cell.addEventListener("click", () => sorted(key));
      head.append(cell);
    }
  }

  function row(i) {
    const label = order[i], made = element("div", "row" + (label === current ? " current" : ""));
    made.setAttribute("role", "row");
    made.setAttribute("aria-rowindex", i + 2);
    if (label === current) made.setAttribute("aria-selected", "true");
    for (const { key, cell } of columns) {
      const of = element("span", key);
      of.setAttribute("role", "cell");
      cell(of, label);
      if (key === "name") {
        const mark = element("i");
        mark.style.background = css(colour(label));
        of.prepend(mark);
        of.title = frames.names[label];
      }
      made.append(of);
    }
    made.addEventListener("click", () => choose(label));
    made.addEventListener("dblclick", () => opened(label));
    return made;
  }

  function choose(label) {
    current = label;
    list.redraw();
    chosen(label, describe(label));
  }

  /**
   * Shows the functions of `content`, see `functionColumns`, only those in `wanted` if it is given, ordered by the column
   * `newBy`; scrolls `marked` into view.
   */
  function show(newFrames, content, wanted, newBy, paint, marked = current) {
    const moved = marked !== current;
    current = marked;
    [frames, columns, describe, colour] = [newFrames, content.columns, content.describe, paint];
    by = columns.some(({ key }) => key === newBy) ? newBy : content.first;
    heads();
    order = [];
    for (let l = 0; l < frames.names.length; l++) if (content.has(l) && (!wanted || wanted[l])) order.push(l);
    order.sort(columns.find(({ key }) => key === by).compare);
    [...head.children].forEach((cell, i) => {
      const { key, up, note } = columns[i];
      if (note !== undefined) cell.title = note;
      if (key === by) cell.setAttribute("aria-sort", up ? "ascending" : "descending");
      else cell.removeAttribute("aria-sort");
    });
    scroller.setAttribute("aria-rowcount", order.length + 1);
    list.show(order.length);
    if (moved && order.includes(marked)) list.reveal(order.indexOf(marked));
  }

  function key(event) {
    const at = order.indexOf(current), last = order.length - 1;
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + 20, PageUp: at - 20, Home: 0, End: last }[event.key];
    if (event.key === "Enter" && at >= 0) opened(current);
    else if (to !== undefined && last >= 0) {
      const next = Math.max(0, Math.min(last, to));
      choose(order[next]);
      list.reveal(next);
    } else return false;
    event.preventDefault();
    return true;
  }

  return { show, key, get current() { return current; } };
}

/** The columns that all tables of functions have. */
function nameColumns(frames) {
  const { names, modules } = frames;
  return [
    { key: "name", title: "Function", up: true, compare: (a, b) => a - b, cell: (cell, label) => cell.append(names[label]) },
    {
      key: "module", title: "Module", up: true, cell: (cell, label) => cell.append(modules[label]),
      compare: (a, b) => (modules[a] < modules[b] ? -1 : modules[a] > modules[b] ? 1 : a - b),
    },
  ];
}

/** A weight with a bar as long as its share. */
function weighty(cell, unit, value, whole) {
  const bar = element("span", "bar");
  bar.style.width = (whole ? 100 * value / whole : 0) + "%";
  cell.append(bar, element("span", "amount", figureIn(unit, value)), element("span", "part", percentOf(value, whole)));
}

/** Columns for the functions of a tree; `sums` is its `byLabel`. */
function functionColumns(frames, tree, unit, sums) {
  const { whole } = tree, { self, whole: total } = sums;
  const column = (key, title, of, other) => ({
    key, title, note: unit, compare: (a, b) => of[b] - of[a] || other[b] - other[a] || a - b,
    cell: (cell, label) => weighty(cell, unit, of[label], whole),
  });
  return {
    columns: [...nameColumns(frames), column("self", "Self", self, total), column("total", "Total", total, self)], first: "self",
    has: (label) => total[label] > 0,
    describe: (label) => `Function: ${frames.names[label]} (self ${amountIn(unit, self[label])}, ${percentOf(self[label], whole)}; ` +
      `total ${amountIn(unit, total[label])}, ${percentOf(total[label], whole)})`,
  };
}

/** The same for two profiles: weights of each function in both, and the change. */
function changeColumns(frames, pair, unit) {
  const all = pair.byLabel(frames.names.length), change = (label) => (pair.own ? all.self : all.whole)(label);
  const share = (value) => (100 * value / pair.whole).toFixed(2);
  const column = (key, title, of) => ({
    key, title, note: `${pair.own ? "self" : "total"}, ${unit}`, compare: (a, b) => of(change(b)) - of(change(a)) || a - b,
    cell: (cell, label) => weighty(cell, unit, of(change(label)), pair.whole),
  });
  const size = (label) => {
    const { delta, noise } = change(label);
    return [noise ? 1 : 0, -Math.abs(delta)];
  };
  const delta = {
    key: "delta", title: "Change", note: "in percentage points of the whole; ~ may be noise",
    compare: (a, b) => size(a)[0] - size(b)[0] || size(a)[1] - size(b)[1] || Math.abs(all.self(b).delta) - Math.abs(all.self(a).delta) || a - b,
    cell: (cell, label) => {
      const of = change(label);
      cell.append(signed(share(Math.abs(of.delta)), of.delta) + (of.noise && of.delta !== 0 ? " ~" : ""));
      if (!of.noise) cell.classList.add(of.delta > 0 ? "more" : "less");
    },
  };
  return {
    columns: pair.ratio ? pair.columns(frames, all) : [...nameColumns(frames), column("before", "Before", (of) => of.before), column("after", "After", (of) => of.after), delta],
    first: pair.ratio ? "after" : "delta",
    has: (label) => all.whole(label).before > 0 || all.whole(label).after > 0,
    describe: (label) => `Function: ${frames.names[label]} (total ${changeText(pair, unit, all.whole(label))}; self ${changeText(pair, unit, all.self(label))})`,
    colour: (label) => pair.colour(change(label), frames.names[label]),
  };
}
