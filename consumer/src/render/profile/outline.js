"use strict";
/** A call tree as indented lines that can be expanded, the heaviest first. `chosen(box)` is called for the current line. */
function outline(ui) {
  const { scroller, head, chosen } = ui;
  let frames, tree, unit = "", named = false, wanted = null, open = new Set(), lines = [], current = -1, paint = () => "";
  const list = rowList(scroller, row);

  function children(box) {
    const all = [];
    for (let i = tree.first(box); i >= 0; i = tree.next(i)) all.push(i);
    if (named) return all;
    if (!tree.pair) return all.sort((a, b) => tree.total[b] - tree.total[a] || a - b);
    const size = (box) => Math.abs(changesOf(tree, box).total.delta);
    return all.sort((a, b) => size(b) - size(a) || tree.total[b] - tree.total[a] || a - b);
  }

  /** The child of `box` with the largest weight, in any order of siblings; -1 if there are none. */
  function heaviest(box) {
    let most = tree.first(box);
    for (let i = most; i >= 0; i = tree.next(i)) if (tree.total[i] > tree.total[most]) most = i;
    return most;
  }

  function row(i) {
    const box = lines[i], label = tree.label[box], has = tree.first(box) >= 0, made = element("div", "row");
    made.id = "line-" + box;
    made.setAttribute("role", "treeitem");
    made.setAttribute("aria-level", tree.depth[box] + 1);
    if (has) made.setAttribute("aria-expanded", open.has(box));
    made.setAttribute("aria-selected", box === current);
    if (box === current) made.classList.add("current");
    if (wanted && wanted[label]) made.classList.add("match");
    const name = element("span", "name"), toggle = element("span", "toggle", has ? (open.has(box) ? "▾" : "▸") : "");
    // At any depth, there is room for a part of the name.
    name.style.paddingLeft = `min(${tree.depth[box]} * var(--step), max(0px, 100% - 9em))`;
    const mark = element("i");
    mark.style.background = css(paint(label, false, tree, box));
    name.append(toggle, mark, frames.names[label]);
    name.title = frames.names[label];
    made.append(...figures(box), name);
    made.addEventListener("click", (event) => {
      choose(box);
      if (event.target === toggle || event.detail > 1) turn(box);
    });
    return made;
  }

  function figures(box) {
    if (!tree.pair) {
      return [
        element("span", "part", percentOf(tree.total[box], tree.whole)), element("span", "amount", figureIn(unit, tree.total[box])),
        element("span", "part own", tree.own[box] > 0 ? percentOf(tree.own[box], tree.whole) : ""),
      ];
    }
    const change = changesOf(tree, box).total, { before, after, delta, noise } = change, { whole, ratio } = tree.pair;
    const told = ratio ? (change.recorded > 0 ? two.format(after / change.recorded) : "–") : signed((100 * Math.abs(delta) / whole).toFixed(2), delta);
    return [
      element("span", "part", percentOf(before, whole)), element("span", "amount", percentOf(after, whole)),
      element("span", "part delta " + (noise ? "" : delta > 0 ? "more" : "less"), told + (noise && delta !== 0 ? " ~" : "")),
    ];
  }

  function layOut() {
    lines = [];
    const todo = children(-1).reverse();
    while (todo.length) {
      const box = todo.pop();
      lines.push(box);
      if (open.has(box)) todo.push(...children(box).reverse());
    }
    list.show(lines.length);
  }
  function turn(box, to = !open.has(box)) {
    if (to) open.add(box);
    else open.delete(box);
    layOut();
  }
  function choose(box) {
    current = box;
    chosen(box, describeBox(tree, frames, unit, box));
    scroller.setAttribute("aria-activedescendant", "line-" + box);
    list.redraw();
  }

  /** Shows a tree, expanded down to where its heaviest path branches. */
  function show(newFrames, newTree, newUnit, newWanted, newPaint, byName) {
    const same = tree === newTree;
    [frames, tree, unit, wanted, paint, named] = [newFrames, newTree, newUnit, newWanted, newPaint, byName];
    const ratio = tree.pair && tree.pair.ratio;
    const titles = ratio ? [ratio.over, ratio.of, "Ratio", "Function"] : tree.pair ? ["Before", "After", "Change", "Function"] : ["Total", "", "Self", "Function"];
    [...head.children].forEach((cell, i) => { cell.textContent = titles[i]; });
    if (!same) {
      open = new Set();
      current = -1;
      for (let box = heaviest(-1), levels = 0; box >= 0 && levels < 60; levels++) {
        open.add(box);
        const next = heaviest(box);
        if (next < 0 || tree.total[next] < 0.5 * tree.total[box]) break;
        box = next;
      }
    }
    layOut();
  }

  function key(event) {
    const at = lines.indexOf(current), box = current, go = (to) => {
      const next = Math.max(0, Math.min(lines.length - 1, to));
      choose(lines[next]);
      list.reveal(next);
    };
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + 20, PageUp: at - 20, Home: 0, End: lines.length - 1 }[event.key];
    if (to !== undefined && lines.length) go(to);
    else if (at < 0) return false;
    else if (event.key === "ArrowRight") {
      if (tree.first(box) < 0) return true;
      if (open.has(box)) go(at + 1);
      else turn(box, true);
    } else if (event.key === "ArrowLeft") {
      if (open.has(box)) turn(box, false);
      else if (tree.parent[box] >= 0) go(lines.indexOf(tree.parent[box]));
    } else if (event.key === "Enter") turn(box);
    else if (event.key === "*") {
      // Expands everything above 1 % of it.
      const todo = [box];
      while (todo.length) {
        const of = todo.pop();
        open.add(of);
        todo.push(...children(of).filter((child) => tree.total[child] >= 0.01 * tree.total[box]));
      }
      layOut();
    } else return false;
    event.preventDefault();
    return true;
  }

  /** Expands the ancestors of `box` and makes it the current line. */
  function reveal(box) {
    pathTo(tree, box).slice(0, -1).forEach((below) => open.add(below));
    layOut();
    choose(box);
    list.reveal(lines.indexOf(box));
  }

  return { show, key, reveal, get current() { return current; } };
}
