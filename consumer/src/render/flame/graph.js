"use strict";
/**
 * A flame graph on a canvas. `ui` has the elements `canvas`, `scroller`, `spacer`, `tip`; `say(text)` for the line about a box;
 * and optionally `zoomed(box)` (-1: none), `focused(box)`, `opened(box)` for a second click, `asked(box, event)` for the context
 * menu and `pointed(box)` (null: none) for the pointer.
 */
function flameGraph(ui) {
  const { canvas, scroller, spacer, tip } = ui;
  // Merged boxes per frame.
  const GROWTH = 25000;
  const ROW = 17, FONT = "12px system-ui, 'DejaVu Sans', sans-serif", MATCH = pixel(230, 0, 230), GROUND = pixel(169, 169, 180);
  const surface = new Surface(canvas, ROW), { context } = surface, letters = new Letters(context, FONT);
  let tree = null, frames = { names: [], modules: [], kinds: "" }, unit = "", paint = () => GROUND;
  // Frame around the box under the pointer. A separate element, so that moving the pointer draws nothing.
  const ring = document.createElement("div");
  ring.className = "ring";
  ring.hidden = true;
  spacer.append(ring);
  // Frames around the boxes that are pointed at in another graph.
  const lights = [];
  let zoomed = -1, from = 0, focused = -1, inverted = false, matches = null;

  /** Shows another tree. `frames` has names, modules and kinds by label. */
  function load(newFrames, newTree, newUnit) {
    if (frames !== newFrames) {
      frames = newFrames;
      letters.of(frames.names, frames.kinds, naming);
      paint = painter(palette, frames);
    }
    tree = newTree;
    unit = newUnit;
    zoomed = focused = -1;
    from = 0;
    matches = null;
    tip.hidden = true;
    resize();
  }

  // --- Drawing: only what is on the screen; a box narrower than half a pixel is skipped with all boxes above it.
  let width = 0, height = 0, scrolled = 0, beneath = 0, rows = [], palette = "kind", naming = "short";
  // The common base of all boxes has a row of its own, unless there is only one box on it.
  const floor = () => tree.bare ? 0 : 1;
  const contentHeight = () => (tree.deepest + 2) * ROW;
  const rowTop = (level) => inverted ? level * ROW : Math.max(contentHeight(), height) - (level + 1) * ROW;

  function resize() {
    if (!tree) return;
    // A graph that grows upwards retains its lowest row, even if the browser has scrolled a higher window to the end in the
    // meantime.
    const now = scroller.clientHeight, { scrollTop } = scroller, all = spacer.offsetHeight;
    const below = scrollTop + now >= all - 1 ? Math.min(beneath, Math.max(now - height, 0)) : all - scrollTop - (height || now);
    width = scroller.clientWidth;
    height = now;
    const anew = surface.resize(width, height);
    spacer.style.height = Math.max(contentHeight(), height) + "px";
    if (!inverted && all > 0) scroller.scrollTop = spacer.offsetHeight - height - below;
    if (anew) draw();
    else schedule();
  }

  // The boxes to hit are those that were drawn: between a change and its frame, `rows` belong to the picture before.
  let stale = false;
  function schedule() {
    if (stale) return;
    stale = true;
    requestAnimationFrame(() => { if (stale) draw(); });
  }

  const seen = (colour, alpha) => ((colour & 0xffffff) | (alpha << 24)) >>> 0;
  const DIM = 140;
  let names = [];
  function box(node, level, x0, x1, faded, woken) {
    const y = rowTop(level) - scrolled;
    if (y + ROW < 0 || y > height) return;
    const w = x1 - x0, label = node < 0 ? -1 : tree.label[node], hit = label >= 0 && matches !== null && matches[label] > 0;
    (rows[level] || (rows[level] = [])).push({ x0, x1, node });
    const dim = faded || (matches !== null && !hit), colour = label < 0 ? GROUND : hit ? MATCH : paint(label, woken, tree, node);
    surface.box(level, x0, x1, dim ? seen(colour, faded ? 128 : DIM) : colour);
    if (w > 14) {
      const text = label < 0 ? "all" : letters.fitted(label, w - 7);
      if (text) names.push({ text, x: x0 + 3, y: y + ROW - 5, hit, dim, deep: isDeep(colour) });
    }
  }
  /** Draws on top of the boxes: their names, and a frame around the current box. */
  function above() {
    const dark = document.documentElement.classList.contains("dark");
    context.font = FONT;
    for (const { text, x, y, hit, dim, deep } of names) {
      context.fillStyle = hit || (deep && !dim) ? "#fff" : dim && dark ? "#e0e0e6" : dim ? "#333" : "#111";
      context.fillText(text, x, y);
    }
    if (focused < 0 || document.activeElement !== scroller) return;
    const level = tree.depth[focused] + floor(), box = (rows[level] || []).find(({ node }) => node === focused);
    if (!box) return;
    const y = rowTop(level) - scrolled, w = box.x1 - box.x0;
    context.strokeStyle = dark ? "#fff" : "#000";
    context.lineWidth = 2;
    context.strokeRect(box.x0 + 1, y + 1, Math.max(w - 2.7, 0.5), ROW - 3);
  }
  function hair(level, x, w, node, woken) {
    const label = tree.label[node], hit = matches !== null && matches[label] > 0, colour = hit ? MATCH : paint(label, woken, tree, node);
    surface.hair(level, x, w, matches !== null && !hit ? seen(colour, DIM) : colour, hit);
  }

  function draw() {
    stale = false;
    rows = [];
    names = [];
    ring.hidden = true;
    darken();
    if (!tree) return;
    surface.begin();
    if (tree.allow) tree.allow(GROWTH);
    scrolled = scroller.scrollTop;
    if (scroller.clientHeight === height) beneath = spacer.offsetHeight - scrolled - height;
    // Levels outside this range are not visible.
    const edge = inverted ? scrolled : Math.max(contentHeight(), height) - scrolled - height;
    const nearest = Math.floor(edge / ROW) - 1, last = Math.floor((edge + height) / ROW);
    const scale = width / ((zoomed < 0 ? tree.all : tree.total[zoomed]) || 1);
    let woken = Infinity;
    const wakes = (node, level) => { if (frames.names[tree.label[node]].startsWith("--")) woken = Math.min(woken, level); };
    const ground = floor();
    if (ground) box(-1, 0, 0, width, zoomed >= 0);
    const path = zoomed < 0 ? [] : pathTo(tree, zoomed);
    path.forEach((node, i) => {
      wakes(node, i + ground);
      box(node, i + ground, 0, width, node !== zoomed, woken < i + ground);
    });
    // Depth first; `at` has the left edge of the next box by level.
    const at = [], bottom = path.length + ground;
    let level = bottom, node = tree.first(zoomed);
    at[level] = 0;
    while (node >= 0) {
      if (level <= woken) woken = Infinity;
      const start = at[level], weight = tree.total[node], w = weight * scale;
      at[level] = start + weight;
      if (w < 0.5) {
        if (level >= nearest && level <= last) hair(level, start * scale, w, node, woken < level);
      } else {
        box(node, level, start * scale, (start + weight) * scale, false, woken < level);
        wakes(node, level);
        const child = level < last ? tree.first(node) : -1;
        if (child >= 0) {
          at[++level] = start;
          node = child;
          continue;
        }
      }
      let next = tree.next(node);
      while (next < 0 && level > bottom) {
        node = tree.parent[node];
        level--;
        next = tree.next(node);
      }
      node = next;
    }
    surface.show((level) => rowTop(level) - scrolled);
    above();
    if (ui.drawn) ui.drawn(from, zoomed < 0 ? tree.all : tree.total[zoomed]);
    // Boxes of a lazily merged tree that are not computed yet follow in the next frames.
    if (tree.allow && tree.allow(Infinity)) schedule();
  }

  /** Returns what was drawn at a position: a box and its ends; undefined if nothing. */
  function drawnAt(x, y) {
    if (stale) draw();
    const top = y + scrolled;
    const level = inverted ? Math.floor(top / ROW) : Math.floor((Math.max(contentHeight(), height) - 1 - top) / ROW);
    const row = rows[level];
    if (!row) return undefined;
    let low = 0, high = row.length - 1;
    while (low <= high) {
      const middle = (low + high) >> 1;
      if (x < row[middle].x0) high = middle - 1;
      else if (x >= row[middle].x1) low = middle + 1;
      else return { ...row[middle], level };
    }
    return undefined;
  }

  // --- Zoom
  function zoom(node) {
    zoomed = node;
    from = node < 0 ? 0 : startOf(tree, node);
    if (ui.zoomed) ui.zoomed(node);
    if (node >= 0) reveal(node);
    schedule();
  }
  function reveal(node) {
    const y = rowTop(tree.depth[node] + floor());
    if (y < scroller.scrollTop) scroller.scrollTop = y - ROW;
    else if (y + ROW > scroller.scrollTop + height) scroller.scrollTop = y + 2 * ROW - height;
  }
  function home() {
    scroller.scrollTop = inverted ? 0 : scroller.scrollHeight;
  }

  // --- Search
  /** Highlights the labels that `wanted` selects; null highlights none. */
  function mark(wanted) {
    // Other boxes are dimmed if there is a match.
    matches = wanted && wanted.includes(1) ? wanted : null;
    schedule();
  }
  /** Like `mark`, for an expression; returns the result as text. */
  function search(expression) {
    if (!expression) {
      mark(null);
      return "";
    }
    const wanted = Uint8Array.from(frames.names, (name) => expression.test(name) ? 1 : 0), weight = tree.matched(wanted);
    mark(wanted);
    return `Matched: ${percentOf(weight, tree.whole)} (${amountIn(unit, weight)})`;
  }
  /** Moves to the next marked box, or with -1 to the previous one; returns its number and the number of boxes. */
  function nextMatch(step) {
    const { box, at, of } = matches ? tree.nextMarked(matches, focused, step) : { box: -1, at: 0, of: 0 };
    if (box >= 0) focus(box);
    return [at, of];
  }

  // --- Keyboard
  const describe = (node) => describeBox(tree, frames, unit, node);
  /** Makes a box the current one and scrolls it into view. */
  function focus(node) {
    focused = node;
    ui.say(describe(node));
    if (node >= 0) {
      const path = pathTo(tree, node);
      let at = path.length - 1;
      if (zoomed >= 0 && !path.includes(zoomed)) {
        // Zooms out to the nearest common box.
        const seen = new Set(pathTo(tree, zoomed));
        while (at >= 0 && !seen.has(path[at])) at--;
        zoom(at < 0 ? -1 : path[at]);
      }
      reveal(node);
    }
    if (ui.focused) ui.focused(node);
    schedule();
  }
  function step(key) {
    const up = inverted ? "ArrowDown" : "ArrowUp", down = inverted ? "ArrowUp" : "ArrowDown";
    const node = focused;
    if (key === up) {
      const first = node < 0 && zoomed >= 0 ? zoomed : tree.first(node);
      if (first >= 0) focus(first);
    } else if (node < 0) return;
    else if (key === down) focus(tree.parent[node]);
    else if (key === "ArrowRight") {
      const next = tree.next(node);
      if (next >= 0) focus(next);
    } else if (key === "ArrowLeft") {
      let before = -1;
      for (let i = tree.first(tree.parent[node]); i >= 0 && i !== node; i = tree.next(i)) before = i;
      if (before >= 0) focus(before);
    }
  }
  /** Puts the root at the top or not; without a value, toggles it. */
  function invert(to = !inverted) {
    inverted = to;
    resize();
    home();
  }
  /** Handles a key; returns whether it was one of these. */
  function key(event) {
    const here = document.activeElement === scroller;
    if (event.key.startsWith("Arrow") && here) {
      event.preventDefault();
      step(event.key);
    } else if (event.key === "Enter" && here) zoom(focused);
    else if (event.key === "0") zoom(-1);
    else if (event.key === "n") nextMatch(1);
    else if (event.key === "N") nextMatch(-1);
    else if (event.key === "i") invert();
    else return false;
    return true;
  }

  /** Puts a frame around the drawn part of a box. */
  function encircle(frame, { x0, x1 }, level) {
    frame.style.left = x0 + "px";
    frame.style.top = rowTop(level) + "px";
    frame.style.width = Math.max(2, x1 - x0 - 0.7) + "px";
    frame.hidden = false;
  }
  const darken = () => { for (const frame of lights) frame.hidden = true; };
  /** Frames the box `node` and, more thinly, those labelled `label` that are wide enough to be distinguished; -1: none. */
  function light(node, label) {
    const MOST = 60, THIN = 4;
    if (stale) draw();
    darken();
    if (label < 0) return;
    let used = 0;
    rows.forEach((row, level) => {
      for (const box of row) {
        if (box.node < 0 || tree.label[box.node] !== label) continue;
        if (box.node !== node && (used >= MOST || box.x1 - box.x0 < THIN)) continue;
        if (!lights[used]) spacer.append(lights[used] = document.createElement("div"));
        lights[used].className = box.node === node ? "ring light same" : "ring light";
        encircle(lights[used++], box, level);
      }
    });
  }

  // --- Mouse
  const under = (event) => {
    const bounds = canvas.getBoundingClientRect();
    return drawnAt(event.clientX - bounds.left, event.clientY - bounds.top);
  };
  const nodeUnder = (event) => under(event)?.node ?? null;
  const leave = () => {
    tip.hidden = true;
    ring.hidden = true;
    if (ui.pointed) ui.pointed(null);
  };
  canvas.addEventListener("mousemove", (event) => {
    const box = under(event);
    canvas.style.cursor = box ? "pointer" : "default";
    if (!box) return leave();
    const text = describe(box.node), more = describeMore(tree, frames, unit, box.node);
    ui.say(text);
    tip.textContent = more ? text + "\n" + more : text;
    placeTip(tip, event);
    if (ui.pointed) ui.pointed(box.node);
    encircle(ring, box, box.level);
    ring.hidden = box.node < 0;
  });
  canvas.addEventListener("mouseleave", () => { leave(); ui.say("\u00a0"); });
  canvas.addEventListener("click", (event) => {
    const node = nodeUnder(event);
    if (node === null || window.getSelection().toString()) return;
    focused = node;
    zoom(node);
    if (ui.focused) ui.focused(node);
  });
  canvas.addEventListener("contextmenu", (event) => {
    const node = nodeUnder(event);
    if (node === null || node < 0 || !ui.asked) return;
    event.preventDefault();
    leave();
    focus(node);
    ui.asked(node, event);
  });
  canvas.addEventListener("dblclick", (event) => {
    const node = nodeUnder(event);
    if (node !== null && node >= 0 && ui.opened) ui.opened(node);
  });

  scroller.addEventListener("scroll", schedule);
  scroller.addEventListener("focus", schedule);
  scroller.addEventListener("blur", schedule);
  // The header may grow by a line (a button appears in a narrow window) although the window does not change.
  new ResizeObserver(resize).observe(scroller);
  window.addEventListener("resize", resize);

  /**
   * Scrolls past the common part of nearly all stacks to where they branch, if that part fills more than half of the window; else
   * to the roots.
   */
  function toBranch() {
    let i = -1;
    for (let next = tree.first(i); next >= 0;) {
      if (tree.total[next] >= 0.95 * tree.all) next = tree.first(i = next);
      else next = tree.next(next);
    }
    // A stack without branches is shown from its root.
    const common = i < 0 ? 0 : (tree.depth[i] + floor() + 1) * ROW;
    if (i < 0 || tree.first(i) < 0 || 2 * common <= scroller.clientHeight) home();
    else scroller.scrollTop = inverted ? rowTop(tree.depth[i] + floor() - 1) : rowTop(tree.depth[i] + floor() - 1) + ROW - scroller.clientHeight;
  }

  /** Expands the graph to its whole height for printing, or restores the height. */
  function unroll(whole) {
    if (!tree) return;
    scroller.style.flex = whole ? "none" : "";
    scroller.style.height = whole ? Math.min(contentHeight(), 4000) + "px" : "";
    resize();
    home();
    draw();
  }

  function colours(id) {
    if (id === palette) return;
    palette = id;
    paint = painter(id, frames);
    schedule();
  }

  /** Names boxes by one of `NAMINGS`. */
  function nameBy(to) {
    if (to === naming) return;
    naming = to;
    letters.of(frames.names, frames.kinds, naming);
    schedule();
  }

  return {
    load, toBranch, home, unroll, zoom, search, mark, nextMatch, focus, invert, key, colours, name: nameBy, light, redraw: schedule,
    get focused() { return focused; }, get zoomed() { return zoomed; }, get tree() { return tree; }, get unit() { return unit; },
    get inverted() { return inverted; },
  };
}
