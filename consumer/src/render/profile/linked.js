"use strict";
/**
 * Two profiles and their difference as three linked graphs of the same boxes: pointer, focus, zoom and search apply to all three.
 * `ui` has the element `into`, and `tip`, `say`, `zoomed`, `focused` and `opened` as for a flame graph.
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
    // All graphs have the same height.
    scroller.addEventListener("scroll", () => { for (const other of panes) if (other !== pane) other.scroller.scrollTop = scroller.scrollTop; });
    return pane;
  });
  let showing = false, frames = null;

  /** Outlines the box that is pointed at, and all boxes with its name, in the other graphs; -1 and `null` mean none. */
  function light(from, box) {
    const { tree } = from.graph, label = box === null || box < 0 ? -1 : tree.label[box];
    for (const { graph } of panes) graph.light(label < 0 ? -1 : box, label);
  }

  /** The box, or its nearest ancestor with a width in `tree`. */
  function present(tree, box) {
    let at = box;
    while (at >= 0 && !(tree.total[at] > 0)) at = tree.parent[at];
    return at;
  }

  const sums = new WeakMap();
  /** Weight of `found` in a tree, cached. */
  function matchedIn(tree, found) {
    const known = sums.get(tree);
    if (known && known.found === found) return known.weight;
    const weight = tree.matched(found);
    sums.set(tree, { found, weight });
    return weight;
  }
  /** Heading of a graph: its total, the share of matches, and the zoomed part. */
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
        parts.push(weight > 0 ? `${name} ${percentOf(weight * scaled, pair.whole)}` : `${name} is not in this graph`);
      }
    }
    return `${title}: ${parts.join(" · ")}`;
  }

  /** Orders by the total weight, so that boxes have the same positions in all graphs. */
  const sameOrder = (named, weights) => Object.fromEntries(Object.entries(named).map(([which, tree]) => [which, OrderedTree.of(tree, weights)]));

  /**
   * `all`: a tree in which every box has a width; `palettes`: that of the profiles and that of the difference; `naming`: see
   * `NAMINGS`; `zoom`: path of handles; `found`: search result by label.
   */
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
      // At once, because scroll events of the panes arrive later, that of the first pane first.
      for (const { scroller } of panes) scroller.scrollTop = panes[1].scroller.scrollTop;
    }
    showing = false;
  }

  const of = (scroller) => panes.find((pane) => pane.scroller === scroller);
  return {
    show, graphs: panes.map(({ graph }) => graph),
    /** The graph with the focus in `scroller`, undefined if it is another element. */
    at: (scroller) => of(scroller)?.graph,
    get current() { return (of(document.activeElement) || panes[1]).graph; },
  };
}
