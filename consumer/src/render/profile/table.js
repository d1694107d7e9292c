"use strict";
/**
 * Functions by weight: of the stacks that end in them, and of those that they are in, each counted once. `chosen(label)` is called for
 * the current row, `opened(label)` for one that is pressed twice or entered.
 */
function topTable(ui) {
  const { scroller, head, chosen, opened, sorted } = ui;
  const COLUMNS = [["name", "Function"], ["module", "Module"], ["self", "Self"], ["total", "Total"]];
  let frames, unit = "", whole = 0, sums, order = [], by = "self", current = -1, colour = () => "";
  const list = rowList(scroller, row);

  for (const [key, title] of COLUMNS) {
    const cell = element("button", key, title);
    cell.type = "button";
    cell.setAttribute("role", "columnheader");
    cell.addEventListener("click", () => sorted(key));
    head.append(cell);
  }

  function share(className, value) {
    const cell = element("span", className);
    cell.setAttribute("role", "cell");
    const bar = element("span", "bar");
    bar.style.width = (whole ? 100 * value / whole : 0) + "%";
    cell.append(bar, element("span", "amount", figureIn(unit, value)), element("span", "part", percentOf(value, whole)));
    return cell;
  }

  function row(i) {
    const label = order[i], made = element("div", "row" + (label === current ? " current" : ""));
    made.setAttribute("role", "row");
    made.setAttribute("aria-rowindex", i + 2);
    if (label === current) made.setAttribute("aria-selected", "true");
    const name = element("span", "name"), mark = element("i");
    name.setAttribute("role", "cell");
    mark.style.background = css(colour(label));
    name.append(mark, frames.names[label]);
    name.title = frames.names[label];
    const module = element("span", "module", frames.modules[label]);
    module.setAttribute("role", "cell");
    made.append(name, module, share("self", sums.self[label]), share("total", sums.whole[label]));
    made.addEventListener("click", () => choose(label));
    made.addEventListener("dblclick", () => opened(label));
    return made;
  }

  function choose(label) {
    current = label;
    list.redraw();
    chosen(label, `Function: ${frames.names[label]} (self ${amountIn(unit, sums.self[label])}, ${percentOf(sums.self[label], whole)}; ` +
      `total ${amountIn(unit, sums.whole[label])}, ${percentOf(sums.whole[label], whole)})`);
  }

  function sort() {
    const module = (label) => frames.modules[label];
    const compare = {
      name: (a, b) => a - b,
      module: (a, b) => (module(a) < module(b) ? -1 : module(a) > module(b) ? 1 : a - b),
      self: (a, b) => sums.self[b] - sums.self[a] || sums.whole[b] - sums.whole[a] || a - b,
      total: (a, b) => sums.whole[b] - sums.whole[a] || sums.self[b] - sums.self[a] || a - b,
    };
    order.sort(compare[by] || compare.self);
    [...head.children].forEach((cell, i) => {
      const key = COLUMNS[i][0], up = key === "name" || key === "module";
      if (key === by) cell.setAttribute("aria-sort", up ? "ascending" : "descending");
      else cell.removeAttribute("aria-sort");
    });
  }

  /** Shows the functions of `tree`, of `wanted` only if it is given. */
  function show(newFrames, tree, newUnit, wanted, newBy, paint) {
    [frames, unit, by, colour] = [newFrames, newUnit, newBy, paint];
    whole = tree.whole;
    const labels = frames.names.length;
    sums = tree.byLabel(labels);
    head.children[2].title = head.children[3].title = unit;
    order = [];
    for (let l = 0; l < labels; l++) if (sums.whole[l] > 0 && (!wanted || wanted[l])) order.push(l);
    sort();
    scroller.setAttribute("aria-rowcount", order.length + 1);
    list.show(order.length);
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

  /** Marks a row without telling. */
  function mark(label) {
    current = label;
    list.redraw();
    const at = order.indexOf(label);
    if (at >= 0) list.reveal(at);
  }

  return { show, key, mark, get current() { return current; } };
}
