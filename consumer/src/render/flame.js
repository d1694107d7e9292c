"use strict";
/**
 * A flame graph on a canvas. `ui` has the elements `canvas`, `scroller`, `spacer`, `tip`; `say(text)` for the line about a box;
 * `zoomed(node)`, called when a box is zoomed into (-1: none).
 */
function flameGraph(ui) {
  const { canvas, scroller, spacer, tip } = ui;
  let names = [], modules = [], kinds = "", unit = "";
  let count = 0, label, depth, end, parent, own, total, start;
  let all = 0, deepest = 0;

  /** Shows other boxes. `frames`: names, modules, kinds by label; `nodes`: label, depth, own by box, each before those above it. */
  function load(frames, nodes, whole) {
    if (names !== frames.names) colours = new Array(frames.names.length);
    ({ names, modules, kinds } = frames);
    unit = whole.unit;
    ({ label, depth, own } = nodes);
    count = label.length;
    end = new Uint32Array(count);
    parent = new Int32Array(count);
    total = Float64Array.from(own);
    start = new Float64Array(count);
    all = deepest = 0;
    // Parents come before children, so one pass forward and one back give everything.
    const path = [];
    for (let i = 0; i < count; i++) {
      path.length = depth[i];
      parent[i] = path.length ? path[path.length - 1] : -1;
      if (path.length > deepest) deepest = path.length;
      path.push(i);
    }
    for (let i = count - 1; i >= 0; i--) {
      if (!end[i]) end[i] = i + 1;
      const p = parent[i];
      if (p < 0) all += total[i];
      else {
        total[p] += total[i];
        if (end[p] < end[i]) end[p] = end[i];
      }
    }
    const filled = new Float64Array(count);
    let roots = 0;
    for (let i = 0; i < count; i++) {
      const p = parent[i];
      if (p < 0) { start[i] = roots; roots += total[i]; }
      else { start[i] = start[p] + filled[p]; filled[p] += total[i]; }
    }
    // Stacks without a frame count in the whole but have no box.
    all = Math.max(all, whole.total);
    zoomed = hovered = focused = -1;
    tip.hidden = true;
    search(null);
    resize();
  }

  // --- State
  const ROW = 17, FONT = "12px ui-monospace, Menlo, Consolas, monospace";
  let zoomed = -1, hovered = -1, focused = -1;
  let inverted = false;
  let matches = null;
  let rows = [];
  const context = canvas.getContext("2d");
  context.font = FONT;
  const letterWidth = context.measureText("M").width;

  // --- Words
  const grouped = new Intl.NumberFormat("en-US");
  const percent = (part) => (all ? (100 * part / all).toFixed(2) : "0.00") + "%";
  function amount(value) {
    if (unit === "ns") return value >= 1e9 ? (value / 1e9).toFixed(3) + " s" : (value / 1e6).toFixed(3) + " ms";
    if (unit === "bytes" && value >= 1048576) return (value / 1048576).toFixed(2) + " MiB";
    return grouped.format(value) + " " + unit;
  }
  function describe(node) {
    if (node < 0) return "all (" + amount(all) + ", 100.00%)";
    const module = modules[label[node]];
    const self = own[node] ? ", self " + percent(own[node]) : "";
    return names[label[node]] + " (" + amount(total[node]) + ", " + percent(total[node]) + self + ")" +
      (module ? " in " + module : "");
  }

  // --- Colour: the hue tells the kind of code, the shade only tells neighbours apart; both go by the name.
  let colours = [];
  function colour(l) {
    if (colours[l]) return colours[l];
    const name = names[l];
    let hash = 2166136261;
    for (let i = 0; i < name.length; i++) hash = Math.imul(hash ^ name.charCodeAt(i), 16777619);
    const shade = (hash >>> 8) % 100 / 100, tone = (hash >>> 20) % 100 / 100;
    let hsl;
    switch (kinds[l]) {
      case "k": hsl = [26 + 8 * tone, 90, 56 + 8 * shade]; break;
      case "j": hsl = [100 + 24 * tone, 52, 58 + 12 * shade]; break;
      case "i": hsl = [172 + 14 * tone, 50, 60 + 10 * shade]; break;
      case "m": hsl = [230, 8, 68 + 8 * shade]; break;
      default: hsl = name.includes("::") ? [46 + 10 * tone, 80, 58 + 10 * shade] : [4 + 34 * tone, 82, 62 + 10 * shade];
    }
    return colours[l] = `hsl(${hsl[0]} ${hsl[1]}% ${hsl[2]}%)`;
  }

  // --- Drawing: only what is on the screen; a subtree narrower than half a pixel is passed over as a whole.
  const contentHeight = () => (deepest + 2) * ROW;
  const rowTop = (d) => inverted ? d * ROW : Math.max(contentHeight(), scroller.clientHeight) - (d + 1) * ROW;
  let width = 0, height = 0, ratio = 1;

  function resize() {
    ratio = window.devicePixelRatio || 1;
    width = scroller.clientWidth;
    height = scroller.clientHeight;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = width + "px";
    canvas.style.height = height + "px";
    spacer.style.height = Math.max(contentHeight(), height) + "px";
    draw();
  }

  // What is drawn is also what is hit: between a change and its frame, `rows` are of the picture before.
  let stale = false;
  function schedule() {
    if (stale) return;
    stale = true;
    requestAnimationFrame(() => { if (stale) draw(); });
  }

  function box(node, d, x0, x1, faded) {
    const y = rowTop(d) - scroller.scrollTop;
    (rows[d] || (rows[d] = [])).push({ x0, x1, node });
    if (y + ROW < 0 || y > height) return;
    const w = x1 - x0;
    const hit = node >= 0 && matches && matches[label[node]];
    context.globalAlpha = faded ? 0.5 : 1;
    context.fillStyle = node < 0 ? "#9a9aa6" : hit ? "rgb(230,0,230)" : colour(label[node]);
    context.fillRect(x0, y, w > 3 ? w - 0.7 : w, ROW - 1);
    if (node === focused && document.activeElement === scroller || (node === hovered && node >= 0)) {
      context.strokeStyle = node === focused ? "#1a56db" : "#000";
      context.lineWidth = 1.5;
      context.strokeRect(x0 + 0.75, y + 0.75, Math.max(w - 2.2, 0.5), ROW - 2.5);
    }
    const room = Math.floor((w - 6) / letterWidth);
    if (room >= 3) {
      const text = node < 0 ? "all" : names[label[node]];
      context.fillStyle = hit ? "#fff" : "#111";
      context.fillText(text.length <= room ? text : text.slice(0, room - 1) + "…", x0 + 3, y + ROW - 5);
    }
    context.globalAlpha = 1;
  }

  function draw() {
    stale = false;
    rows = [];
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    context.font = FONT;
    const from = zoomed < 0 ? 0 : start[zoomed];
    const scale = width / ((zoomed < 0 ? all : total[zoomed]) || 1);
    box(-1, 0, 0, width, zoomed >= 0);
    for (let i = zoomed < 0 ? -1 : parent[zoomed]; i >= 0; i = parent[i]) box(i, depth[i] + 1, 0, width, true);
    const last = zoomed < 0 ? count : end[zoomed];
    const density = [];
    for (let i = zoomed < 0 ? 0 : zoomed; i < last;) {
      const x0 = (start[i] - from) * scale, w = total[i] * scale, d = depth[i] + 1;
      if (w < 0.5) {
        // A hair for many thin towers, so that they are not taken for a gap.
        const pixel = Math.floor(x0);
        if (density[d] !== pixel) {
          density[d] = pixel;
          const y = rowTop(d) - scroller.scrollTop;
          context.globalAlpha = 0.35;
          context.fillStyle = matches && matches[label[i]] ? "rgb(230,0,230)" : colour(label[i]);
          context.fillRect(pixel, y, 1, ROW - 1);
          context.globalAlpha = 1;
        }
        i = end[i];
        continue;
      }
      box(i, d, x0, x0 + w, false);
      i++;
    }
  }

  function nodeAt(x, y) {
    if (stale) draw();
    const top = y + scroller.scrollTop;
    const d = inverted ? Math.floor(top / ROW)
      : Math.floor((Math.max(contentHeight(), scroller.clientHeight) - 1 - top) / ROW);
    const row = rows[d];
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
    ui.zoomed(node);
    if (node >= 0) reveal(node);
    schedule();
  }
  function reveal(node) {
    const y = rowTop(depth[node] + 1);
    if (y < scroller.scrollTop) scroller.scrollTop = y - ROW;
    else if (y + ROW > scroller.scrollTop + height) scroller.scrollTop = y + 2 * ROW - height;
  }

  // --- Search: the expression runs once per name; nested matches count once. What was found; `null` searches for nothing.
  function search(expression) {
    matches = null;
    let found = "";
    if (expression) {
      matches = new Uint8Array(names.length);
      for (let l = 0; l < names.length; l++) if (expression.test(names[l])) matches[l] = 1;
      const [weight, boxes] = matched();
      found = `Matched: ${percent(weight)} (${grouped.format(boxes)} boxes)`;
    }
    schedule();
    return found;
  }
  function matched() {
    let weight = 0, boxes = 0, outer = 0;
    for (let i = 0; i < count; i++) {
      if (!matches[label[i]]) continue;
      boxes++;
      if (i >= outer) { weight += total[i]; outer = end[i]; }
    }
    return [weight, boxes];
  }
  function nextMatch(step) {
    if (!matches) return;
    let i = focused;
    for (let tried = 0; tried < count; tried++) {
      i = (i + step + count) % count;
      if (matches[label[i]]) { focus(i); return; }
    }
  }

  // --- Keyboard
  function focus(node) {
    focused = node;
    ui.say(describe(node));
    if (node >= 0) {
      const inside = zoomed < 0 || (node >= zoomed && node < end[zoomed]);
      if (!inside) {
        let at = node;
        while (at >= 0 && !(zoomed >= at && zoomed < end[at])) at = parent[at];
        zoom(at);
      }
      reveal(node);
    }
    schedule();
  }
  function step(key) {
    const up = inverted ? "ArrowDown" : "ArrowUp", down = inverted ? "ArrowUp" : "ArrowDown";
    const node = focused;
    if (key === up) {
      const first = node + 1;
      if (first < count && (node < 0 || first < end[node])) focus(first);
    } else if (node >= 0 && key === down) focus(parent[node]);
    else if (node >= 0 && key === "ArrowRight") {
      const next = end[node];
      if (next < count && parent[next] === parent[node]) focus(next);
    } else if (node >= 0 && key === "ArrowLeft") {
      let before = parent[node] + 1;
      while (before < node && end[before] !== node) before = end[before];
      if (before < node) focus(before);
    }
  }
  function invert() {
    inverted = !inverted;
    scroller.scrollTop = inverted ? 0 : scroller.scrollHeight;
    schedule();
  }
  /** Takes a key; whether it was one of these. */
  function key(event) {
    if (event.key.startsWith("Arrow") && document.activeElement === scroller) {
      event.preventDefault();
      step(event.key);
    } else if (event.key === "Enter" && document.activeElement === scroller) zoom(focused);
    else if (event.key === "0") zoom(-1);
    else if (event.key === "n") nextMatch(1);
    else if (event.key === "N") nextMatch(-1);
    else if (event.key === "i") invert();
    else return false;
    return true;
  }

  // --- Mouse
  canvas.addEventListener("mousemove", (event) => {
    const bounds = canvas.getBoundingClientRect();
    const node = nodeAt(event.clientX - bounds.left, event.clientY - bounds.top);
    canvas.style.cursor = node === null ? "default" : "pointer";
    if (node === null) { tip.hidden = true; if (hovered >= 0) { hovered = -1; schedule(); } return; }
    tip.textContent = describe(node);
    ui.say(tip.textContent);
    tip.hidden = false;
    tip.style.left = Math.max(0, Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 4)) + "px";
    const below = event.clientY + 18;
    tip.style.top = (below + tip.offsetHeight > window.innerHeight ? event.clientY - tip.offsetHeight - 8 : below) + "px";
    if (node !== hovered) { hovered = node; schedule(); }
  });
  canvas.addEventListener("mouseleave", () => { tip.hidden = true; hovered = -1; ui.say("\u00a0"); schedule(); });
  canvas.addEventListener("click", (event) => {
    const bounds = canvas.getBoundingClientRect();
    const node = nodeAt(event.clientX - bounds.left, event.clientY - bounds.top);
    if (node === null || window.getSelection().toString()) return;
    focused = node;
    zoom(node);
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
    for (let next = 0; next < count && parent[next] === i && total[next] >= 0.95 * all; next++) i = next;
    if (i < 0) scroller.scrollTop = inverted ? 0 : scroller.scrollHeight;
    else scroller.scrollTop = inverted ? rowTop(depth[i]) : rowTop(depth[i]) + ROW - scroller.clientHeight;
  }

  return { load, toBranch, zoom, search, nextMatch, invert, key, redraw: schedule };
}
