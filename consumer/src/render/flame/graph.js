"use strict";
/**
 * A flame graph on a canvas. `ui` has the elements `canvas`, `scroller`, `spacer`, `tip`; `say(text)` for the line about a box;
 * and, where the page wants to know, `zoomed(box)` (-1: none), `focused(box)` and `opened(box)` for a second click.
 */
function flameGraph(ui) {
  const { canvas, scroller, spacer, tip } = ui;
  const ROW = 17, FONT = "12px system-ui, 'DejaVu Sans', sans-serif", MATCH = "rgb(230,0,230)";
  const context = canvas.getContext("2d");
  let tree = null, frames = { names: [], modules: [], kinds: "" }, unit = "", paint = () => "#999";
  let zoomed = -1, from = 0, hovered = -1, focused = -1, inverted = false, matches = null;

  /** Shows another tree. `frames`: names, modules, kinds by label. */
  function load(newFrames, newTree, newUnit) {
    if (frames !== newFrames) {
      widths = [];
      frames = newFrames;
      paint = painter(palette, frames);
    }
    tree = newTree;
    unit = newUnit;
    zoomed = hovered = focused = -1;
    from = 0;
    matches = null;
    tip.hidden = true;
    resize();
  }

  // --- Text: as much of a name as there is room for. Letters are measured once.
  const letters = new Map();
  let widths = [];
  const DOTS = "…";
  function letter(c) {
    let width = letters.get(c);
    if (width === undefined) letters.set(c, (width = context.measureText(c).width));
    return width;
  }
  function fitted(label, room) {
    const name = frames.names[label];
    if (widths[label] === undefined) {
      let width = 0;
      // Longer ones never fit as a whole.
      for (let i = 0; i < name.length && i < 1000; i++) width += letter(name[i]);
      widths[label] = width;
    }
    if (widths[label] <= room) return name;
    let left = room - letter(DOTS), i = 0;
    while (i < name.length && (left -= letter(name[i])) >= 0) i++;
    return i < 2 ? "" : name.slice(0, i) + DOTS;
  }

  // --- Drawing: only what is on the screen; what is narrower than half a pixel is passed over with all that is on it.
  let width = 0, height = 0, ratio = 1, rows = [], palette = "kind";
  // What all boxes stand on has a row of its own, unless there is but one box on it anyway.
  const floor = () => tree.bare ? 0 : 1;
  const contentHeight = () => (tree.deepest + 2) * ROW;
  const rowTop = (level) => inverted ? level * ROW : Math.max(contentHeight(), scroller.clientHeight) - (level + 1) * ROW;

  function resize() {
    if (!tree) return;
    ratio = window.devicePixelRatio || 1;
    width = scroller.clientWidth;
    height = scroller.clientHeight;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = width + "px";
    canvas.style.height = height + "px";
    // In a graph that grows upwards the root stays where it is.
    const below = spacer.offsetHeight - scroller.scrollTop;
    spacer.style.height = Math.max(contentHeight(), height) + "px";
    if (!inverted && below > 0) scroller.scrollTop = spacer.offsetHeight - below;
    draw();
  }

  // What is drawn is also what is hit: between a change and its frame, `rows` are of the picture before.
  let stale = false;
  function schedule() {
    if (stale) return;
    stale = true;
    requestAnimationFrame(() => { if (stale) draw(); });
  }

  function box(node, level, x0, x1, faded, woken) {
    const y = rowTop(level) - scroller.scrollTop;
    (rows[level] || (rows[level] = [])).push({ x0, x1, node });
    if (y + ROW < 0 || y > height) return;
    const w = x1 - x0, label = node < 0 ? -1 : tree.label[node], hit = label >= 0 && matches && matches[label];
    context.globalAlpha = faded ? 0.5 : matches && !hit ? 0.55 : 1;
    context.fillStyle = label < 0 ? "#a9a9b4" : hit ? MATCH : paint(label, woken);
    context.fillRect(x0, y, w > 3 ? w - 0.7 : w, ROW - 1);
    if (w > 14) {
      const text = label < 0 ? "all" : fitted(label, w - 7);
      if (text) {
        context.globalAlpha = faded ? 0.75 : 1;
        context.fillStyle = hit ? "#fff" : "#111";
        context.fillText(text, x0 + 3, y + ROW - 5);
      }
    }
    context.globalAlpha = 1;
    const ring = node === focused && document.activeElement === scroller;
    if (ring || (node === hovered && node >= 0)) {
      context.strokeStyle = "#000";
      context.lineWidth = ring ? 2 : 1;
      context.strokeRect(x0 + 1, y + 1, Math.max(w - 2.7, 0.5), ROW - 3);
      if (ring) {
        context.strokeStyle = "#fff";
        context.lineWidth = 1;
        context.strokeRect(x0 + 2.5, y + 2.5, Math.max(w - 5.7, 0.5), ROW - 6);
      }
    }
  }

  // Thin towers of one pixel as one hair, as dark as they are wide together.
  const hairs = { pixel: [], cover: [], colour: [] };
  function hair(level, x, w, label, woken) {
    const pixel = Math.floor(x);
    if (hairs.pixel[level] !== pixel) {
      flush(level);
      hairs.pixel[level] = pixel;
      hairs.cover[level] = 0;
      hairs.colour[level] = matches && matches[label] ? MATCH : paint(label, woken);
    } else if (matches && matches[label]) hairs.colour[level] = MATCH;
    hairs.cover[level] += w;
  }
  function flush(level) {
    if (hairs.pixel[level] === undefined) return;
    const y = rowTop(level) - scroller.scrollTop, hit = hairs.colour[level] === MATCH;
    if (y + ROW >= 0 && y <= height) {
      context.globalAlpha = hit ? 1 : Math.min(1, 0.15 + 0.85 * hairs.cover[level]) * (matches ? 0.55 : 1);
      context.fillStyle = hairs.colour[level];
      context.fillRect(hairs.pixel[level], y, 1, ROW - 1);
    }
    hairs.pixel[level] = undefined;
  }

  function draw() {
    stale = false;
    rows = [];
    if (!tree) return;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    context.font = FONT;
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
    // Depth first; `at` is where the next box of each level begins.
    const at = [], bottom = path.length + ground;
    let level = bottom, node = tree.first(zoomed);
    at[level] = 0;
    while (node >= 0) {
      if (level <= woken) woken = Infinity;
      const start = at[level], weight = tree.total[node], w = weight * scale;
      at[level] = start + weight;
      if (w < 0.5) hair(level, start * scale, w, tree.label[node], woken < level);
      else {
        box(node, level, start * scale, (start + weight) * scale, false, woken < level);
        wakes(node, level);
        const child = tree.first(node);
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
    for (let l = 0; l < hairs.pixel.length; l++) flush(l);
    context.globalAlpha = 1;
    if (ui.drawn) ui.drawn(from, zoomed < 0 ? tree.all : tree.total[zoomed]);
  }

  function nodeAt(x, y) {
    if (stale) draw();
    const top = y + scroller.scrollTop;
    const level = inverted ? Math.floor(top / ROW)
      : Math.floor((Math.max(contentHeight(), scroller.clientHeight) - 1 - top) / ROW);
    const row = rows[level];
    if (!row) return null;
    let low = 0, high = row.length - 1;
    while (low <= high) {
      const middle = (low + high) >> 1;
      if (x < row[middle].x0) high = middle - 1;
      else if (x >= row[middle].x1) low = middle + 1;
      else return row[middle].node;
    }
    return null;
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
  /** Paints the labels that `wanted` says; null paints none. */
  function mark(wanted) {
    // What is not marked stands back, unless there is nothing to stand back for.
    matches = wanted && wanted.includes(1) ? wanted : null;
    schedule();
  }
  /** The same for an expression; what was found, in words. */
  function search(expression) {
    if (!expression) {
      mark(null);
      return "";
    }
    const wanted = Uint8Array.from(frames.names, (name) => expression.test(name) ? 1 : 0), weight = tree.matched(wanted);
    mark(wanted);
    return `Matched: ${percentOf(weight, tree.whole)} (${amountIn(unit, weight)})`;
  }
  /** Boxes that are marked and have been looked at, in order. */
  function marked() {
    const found = [];
    if (matches) walk(tree, (node) => { if (matches[tree.label[node]]) found.push(node); });
    return found;
  }
  /** Moves to the next marked box, or with -1 to the one before; its number and how many there are. */
  function nextMatch(step) {
    const found = marked();
    if (!found.length) return [0, 0];
    const here = found.indexOf(focused);
    const at = here < 0 ? (step > 0 ? 0 : found.length - 1) : (here + step + found.length) % found.length;
    focus(found[at]);
    return [at + 1, found.length];
  }

  // --- Keyboard
  const describe = (node) => describeBox(tree, frames, unit, node);
  /** Makes a box the current one and brings it to where it can be seen. */
  function focus(node) {
    focused = node;
    ui.say(describe(node));
    if (node >= 0) {
      const path = pathTo(tree, node);
      let at = path.length - 1;
      if (zoomed >= 0 && !path.includes(zoomed)) {
        // Out to the nearest box that both are on.
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
  /** Root at the top, or not; without a value the other way round. */
  function invert(to = !inverted) {
    inverted = to;
    resize();
    home();
    schedule();
  }
  /** Takes a key; whether it was one of these. */
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

  // --- Mouse
  const under = (event) => {
    const bounds = canvas.getBoundingClientRect();
    return nodeAt(event.clientX - bounds.left, event.clientY - bounds.top);
  };
  const leave = () => {
    tip.hidden = true;
    if (hovered >= 0) { hovered = -1; schedule(); }
  };
  canvas.addEventListener("mousemove", (event) => {
    const node = under(event);
    canvas.style.cursor = node === null ? "default" : "pointer";
    if (node === null) return leave();
    const text = describe(node), more = describeMore(tree, frames, unit, node);
    ui.say(text);
    tip.textContent = more ? text + "\n" + more : text;
    placeTip(tip, event);
    if (node !== hovered) { hovered = node; schedule(); }
  });
  canvas.addEventListener("mouseleave", () => { leave(); ui.say("\u00a0"); });
  canvas.addEventListener("click", (event) => {
    const node = under(event);
    if (node === null || window.getSelection().toString()) return;
    focused = node;
    zoom(node);
    if (ui.focused) ui.focused(node);
  });
  canvas.addEventListener("dblclick", (event) => {
    const node = under(event);
    if (node !== null && node >= 0 && ui.opened) ui.opened(node);
  });

  scroller.addEventListener("scroll", schedule);
  scroller.addEventListener("focus", schedule);
  scroller.addEventListener("blur", schedule);
  // The header may grow by a line (a button appears in a narrow window) without the window changing.
  new ResizeObserver(resize).observe(scroller);
  window.addEventListener("resize", resize);

  /** Scrolls past what nearly all stacks have in common, to where they part. */
  function toBranch() {
    let i = -1;
    for (let next = tree.first(i); next >= 0 && tree.total[next] >= 0.95 * tree.all; next = tree.first(i)) i = next;
    if (i < 0) home();
    else scroller.scrollTop = inverted ? rowTop(tree.depth[i] + floor() - 1) : rowTop(tree.depth[i] + floor() - 1) + ROW - scroller.clientHeight;
  }

  /** As high as all that is drawn, for paper; or as there is room for again. */
  function unroll(whole) {
    if (!tree) return;
    const levels = rows.length + 1;
    scroller.style.flex = whole ? "none" : "";
    scroller.style.height = whole ? Math.min(levels * ROW, 4000) + "px" : "";
    resize();
    home();
    draw();
  }

  function colours(id) {
    palette = id;
    paint = painter(id, frames);
    schedule();
  }

  return {
    load, toBranch, home, unroll, zoom, search, mark, nextMatch, focus, invert, key, colours, redraw: schedule,
    get focused() { return focused; }, get zoomed() { return zoomed; }, get tree() { return tree; }, get unit() { return unit; },
    get inverted() { return inverted; },
  };
}
