"use strict";
/**
 * Two profiles and what is different between them, as three graphs of the same boxes: what is pointed at, moved to, zoomed to or searched
 * for in one of them is so in all. `ui`: the element they go `into`, and `tip`, `say`, `zoomed`, `focused` and `opened` as of a flame graph.
 */
function linkedGraphs({ into, tip, say, zoomed, focused, opened }) {
  const KEYS = "Arrow keys move, Enter zooms, 0 or Escape resets; all three graphs follow.";
  const panes = [["before", "Before"], ["after", "After"], ["change", "Difference"]].map(([which, title]) => {
    const part = element("div", "linked"), caption = element("h2", "", title), scroller = element("div", "pane"), spacer = element("div", "spacer");
    const canvas = element("canvas");
    scroller.id = "linked-" + which;
    scroller.tabIndex = 0;
    scroller.setAttribute("role", "application");
    spacer.append(canvas);
    scroller.append(spacer);
    part.append(caption, scroller);
    into.append(part);
    const pane = { which, title, caption, scroller };
    pane.graph = flameGraph({
      canvas, scroller, spacer, tip, say, opened,
      pointed: (box) => light(pane, box),
      focused: (box) => { focused(box); light(pane, box); },
      zoomed: (box) => { if (!showing) zoomed(box); },
    });
    // All are equally high.
    scroller.addEventListener("scroll", () => { for (const other of panes) if (other !== pane) other.scroller.scrollTop = scroller.scrollTop; });
    return pane;
  });
  let showing = false, frames = null;

  /** Outlines in the other graphs the box that is pointed at in one, and in all others of its name; -1 and `null` are none. */
  function light(from, box) {
    const { tree } = from.graph, label = box === null || box < 0 ? -1 : tree.label[box];
    for (const { graph } of panes) graph.light(label < 0 ? -1 : box, label);
  }

  /** The box, or of those that it stands on the nearest that has a width there. */
  function present(tree, box) {
    let at = box;
    while (at >= 0 && !(tree.total[at] > 0)) at = tree.parent[at];
    return at;
  }

  const sums = new WeakMap();
  /** What `found` weighs in a tree, added up once. */
  function matchedIn(tree, found) {
    const known = sums.get(tree);
    if (known && known.found === found) return known.weight;
    const weight = tree.matched(found);
    sums.set(tree, { found, weight });
    return weight;
  }
  /** What is written above a graph: how much it is of, how much of that matches and is zoomed to. */
  function told({ which, title }, pair, unit, found, zoom) {
    const of = which === "before" ? pair.before : pair.after, scaled = which === "before" ? pair.scale : 1;
    const rounded = (weight) => amountIn(unit, Math.round(weight));
    const parts = [];
    if (which === "change") {
      const { more, less } = pair.moved;
      parts.push(`${signed(rounded(more), 1)}, ${signed(rounded(less), -1)}`);
    } else {
      const scale = scaled === 1 ? "" : `, times ${scaled.toPrecision(4)}`;
      parts.push(amountIn(unit, of.all) + scale);
      if (found) parts.push(`matched ${percentOf(matchedIn(of, found) * scaled, pair.whole)}`);
      if (zoom >= 0) {
        const name = frames.names[of.label[zoom]], weight = of.total[zoom];
        parts.push(weight > 0 ? `${name} ${percentOf(weight * scaled, pair.whole)}` : `${name} is not in it`);
      }
    }
    return `${title}: ${parts.join(" · ")}`;
  }

  /** By what they weigh together, so that the same is in the same place. */
  const sameOrder = (named, weights) => Object.fromEntries(Object.entries(named).map(([which, tree]) => [which, OrderedTree.of(tree, weights)]));

  /** `all`: a tree where every box has a width; `palettes`: that of the profiles and that of what is different; `naming`: see `NAMINGS`; `zoom`: path of handles; `found`: what was searched for, by label. */
  function show({ frames: of, pair, all, byWeight, unit, palettes, naming, inverted, zoom, found, handles }) {
    showing = true;
    frames = of;
    const named = pair.linked || (pair.linked = pair.three());
    const trees = byWeight ? pair.ordered || (pair.ordered = sameOrder(named, all.total)) : named;
    const box = handles.follow(all, zoom);
    let fresh = false;
    for (const pane of panes) {
      const { which, graph, caption, scroller } = pane, tree = trees[which];
      if (graph.tree !== tree || graph.unit !== unit) {
        graph.load(frames, tree, unit);
        fresh = true;
      }
      graph.colours(palettes[which === "change" ? 1 : 0]);
      graph.name(naming);
      if (graph.inverted !== inverted) graph.invert(inverted);
      const there = present(tree, box);
      if (graph.zoomed !== there) graph.zoom(there);
      graph.mark(found);
      caption.textContent = told(pane, pair, unit, found, box);
      scroller.setAttribute("aria-label", `${caption.textContent}. ${KEYS}`);
    }
    if (fresh && box < 0) {
      panes[1].graph.toBranch();
      // At once: each tells the others later where it is scrolled to, the first of them first.
      for (const { scroller } of panes) scroller.scrollTop = panes[1].scroller.scrollTop;
    }
    showing = false;
  }

  const of = (scroller) => panes.find((pane) => pane.scroller === scroller);
  return {
    show, graphs: panes.map(({ graph }) => graph),
    /** The graph that has the focus in `scroller`, undefined if it is none of these. */
    at: (scroller) => of(scroller)?.graph,
    get current() { return (of(document.activeElement) || panes[1]).graph; },
  };
}
