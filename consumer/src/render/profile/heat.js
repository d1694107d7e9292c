"use strict";
/** Scales of the map: ms of a cell, and cells of a column. */
const SCALES = [[20, 50], [200, 50], [1000, 60], [60000, 60], [3600000, 24]];
/** Formats a duration in ms. */
function lengthText(ms) {
  const [size, unit] = [[86400000, "d"], [3600000, "h"], [60000, "min"], [1000, "s"]].find(([of]) => ms >= of) || [1, "ms"];
  return `${Number((ms / size).toFixed(2))} ${unit}`;
}

/**
 * Samples by time: a column for each second, with cells of 20 ms from the bottom up, and coarser ones for long recordings. `ui`
 * has `canvas`, `scroller`, `side` for the labels of the vertical axis, `say(text)` and `picked(range, other, how)` for a
 * selected range, with Ctrl as the baseline; `how` is "passing" while it moves and "quiet" when it ends.
 */
function heatMap(ui) {
  const { canvas, scroller, side } = ui, context = canvas.getContext("2d");
  let times = null, lanes = [], scale = 0, cells = new Uint32Array(0), hits = null, most = 1, range = null, than = null, wanted = null;
  // The current cell, and the start of a selection.
  let cursor = 0, anchor = null, drawing = null;
  const HEIGHT = 150, AXIS = 15;
  let columns = 1, rows = 50, wide = 1, high = 3;

  function load(newTimes) {
    if (times === newTimes) return;
    const isFirst = !times;
    times = newTimes;
    cells = new Uint32Array(0);
    // All events of a page have the same scale.
    if (!isFirst) return;
    // The finest scale with columns of a few pixels.
    scale = SCALES.findIndex(([ms, count]) => times.end / (ms * count) <= 240);
    if (scale < 0) scale = SCALES.length - 1;
  }
  const cellMs = () => SCALES[scale][0];

  function show(state) {
    const changed = lanes !== state.lanes || wanted !== state.wanted || cells.length === 0;
    ({ lanes, range, than, wanted } = state);
    if (changed) count();
    draw();
  }
  function count() {
    const [ms, perColumn] = SCALES[scale];
    columns = Math.max(1, Math.ceil(times.end / (ms * perColumn)));
    rows = perColumn;
    cells = times.cells(ms, columns * rows, lanes);
    hits = wanted ? times.cells(ms, columns * rows, lanes, wanted) : null;
    most = cells.reduce((a, b) => Math.max(a, b), 1);
    cursor = Math.min(cursor, cells.length - 1);
  }
  function turn(to) {
    const ms = cursor * cellMs();
    scale = Math.max(0, Math.min(SCALES.length - 1, to));
    cursor = Math.floor(ms / cellMs());
    count();
    draw();
  }

  const ramp = (dark, part) => {
    const t = Math.sqrt(part);
    return dark ? [60 + 195 * t, 30 + 190 * t * t, 20 + 90 * t * t * t] : [255 - 75 * t * t, 236 - 216 * t, 200 - 180 * t];
  };
  function draw() {
    if (!times || scroller.clientWidth === 0) return;
    const dark = document.documentElement.classList.contains("dark"), ratio = window.devicePixelRatio || 1;
    // As wide as possible; longer maps are scrolled.
    wide = Math.max(4, Math.floor(scroller.clientWidth / columns));
    high = Math.max(2, Math.floor(HEIGHT / rows));
    const width = wide * columns, height = high * rows + AXIS;
    canvas.width = Math.min(32000, Math.round(width * ratio));
    canvas.height = Math.round(height * ratio);
    canvas.style.width = width + "px";
    canvas.style.height = height + "px";
    context.setTransform(canvas.width / width, 0, 0, canvas.height / height, 0, 0);
    const style = getComputedStyle(document.documentElement);
    context.fillStyle = style.getPropertyValue("--field");
    context.fillRect(0, 0, width, high * rows);
    axis(style.getPropertyValue("--faint"));
    const gap = wide > 6 ? 1 : 0;
    for (let i = 0; i < cells.length; i++) {
      if (!cells[i]) continue;
      const [x, y] = placeOf(i), hit = hits ? hits[i] / cells[i] : 0;
      const colour = ramp(dark, cells[i] / most).map((part, k) => part + ([230, 0, 230][k] - part) * (hit > 0 ? 0.35 + 0.65 * hit : 0));
      context.fillStyle = `rgb(${colour.map(Math.round).join()})`;
      context.fillRect(x, y, wide - gap, high);
    }
    outline(than, "#5c5c66", true);
    outline(range, "#1a56db", false);
    if (document.activeElement === scroller) {
      const [x, y] = placeOf(cursor);
      context.setLineDash([]);
      context.strokeStyle = dark ? "#fff" : "#000";
      context.lineWidth = 2;
      context.strokeRect(x, y, wide, high);
    }
  }
  /** Labels: the time within a column on the left, the start times below the columns, as many as fit. */
  function axis(colour) {
    const column = SCALES[scale][0] * rows, [, ...labels] = side.children;
    side.style.height = high * rows + "px";
    [column, column / 2, 0].forEach((ms, i) => { labels[i].textContent = ms ? lengthText(ms) : "0 s"; });
    const step = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].find((n) => n * wide >= 60) || 2000;
    context.fillStyle = colour;
    context.font = "11px system-ui, 'DejaVu Sans', sans-serif";
    for (let i = 0; i < columns; i += step) {
      context.fillRect(i * wide, high * rows, 1, 4);
      context.fillText(i ? lengthText(i * column) : "0 s", i * wide + 3, high * rows + AXIS - 3);
    }
  }
  const placeOf = (cell) => [Math.floor(cell / rows) * wide, (rows - 1 - cell % rows) * high];
  /** Outlines a range; its first and last column may be partial. */
  function outline(of, colour, dashed) {
    if (!of) return;
    const first = Math.floor(of[0] / cellMs()), last = Math.min(cells.length, Math.ceil(of[1] / cellMs())) - 1;
    const path = new Path2D(), [a, b] = [Math.floor(first / rows), Math.floor(last / rows)];
    const top = 0.5, bottom = rows * high - 0.5, from = placeOf(first)[1] + high, to = placeOf(last)[1], x = (column) => column * wide + 0.5;
    if (a === b) path.rect(x(a), to, wide - 1, from - to);
    else {
      const points = [[x(a), from], [x(a), top], [x(b), top], [x(b), to], [x(b + 1), to], [x(b + 1), bottom], [x(a + 1), bottom], [x(a + 1), from]];
      points.forEach(([px, py], i) => (i ? path.lineTo(px, py) : path.moveTo(px, py)));
      path.closePath();
    }
    context.save();
    context.globalAlpha = 0.18;
    context.fillStyle = colour;
    context.fill(path);
    context.globalAlpha = 1;
    // A light line below it is visible on dark cells too.
    context.strokeStyle = "#fff";
    context.lineWidth = 4;
    context.stroke(path);
    context.strokeStyle = colour;
    context.lineWidth = 2;
    context.setLineDash(dashed ? [5, 3] : []);
    context.stroke(path);
    context.restore();
  }

  const rangeOfCells = (a, b) => [Math.min(a, b) * cellMs(), (Math.max(a, b) + 1) * cellMs()];
  function tell(cell) {
    const [from, to] = rangeOfCells(cell, cell), found = hits ? `, ${grouped.format(hits[cell])} matched` : "";
    ui.say(`${rangeText([from, to])}: ${amountIn("samples", cells[cell])}${found}`);
  }
  const under = (event) => {
    const bounds = canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - bounds.left) / wide), row = rows - 1 - Math.floor((event.clientY - bounds.top) / high);
    return Math.max(0, Math.min(cells.length - 1, Math.max(0, Math.min(columns - 1, column)) * rows + Math.max(0, Math.min(rows - 1, row))));
  };
  // While a selection moves, it is only drawn; the views follow at each frame.
  function brush(to, other, done) {
    drawing = rangeOfCells(anchor, to);
    if (other) than = drawing;
    else range = drawing;
    draw();
    ui.picked(drawing, other, done ? "" : "passing");
  }
  let scheduled = 0, passing = null;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    anchor = cursor = under(event);
    canvas.setPointerCapture(event.pointerId);
    scroller.focus({ preventScroll: true });
    brush(cursor, event.ctrlKey || event.metaKey, true);
    event.preventDefault();
  });
  canvas.addEventListener("pointermove", (event) => {
    const cell = under(event);
    tell(cell);
    if (anchor === null || cell === cursor || !event.buttons) return;
    cursor = cell;
    cancelAnimationFrame(scheduled);
    const other = event.ctrlKey || event.metaKey;
    passing = other;
    scheduled = requestAnimationFrame(() => brush(cell, other, false));
  });
  // Browsers limit changes of the address, so it does not change while a selection moves.
  canvas.addEventListener("pointerup", () => {
    if (passing === null) return;
    cancelAnimationFrame(scheduled);
    brush(cursor, passing, false);
    ui.picked(drawing, passing, "quiet");
    passing = null;
  });
  canvas.addEventListener("pointerleave", () => ui.say("\u00a0"));
  canvas.addEventListener("dblclick", () => ui.picked(null, false));

  /** Handles a key; returns whether it was one of these. */
  function key(event) {
    const step = { ArrowUp: 1, ArrowDown: -1, ArrowRight: rows, ArrowLeft: -rows, Home: -cursor, End: cells.length - 1 - cursor }[event.key];
    const other = event.ctrlKey || event.metaKey;
    if (step !== undefined) {
      if (event.shiftKey && anchor === null) anchor = cursor;
      if (!event.shiftKey) anchor = null;
      cursor = Math.max(0, Math.min(cells.length - 1, cursor + step));
      const [x] = placeOf(cursor);
      if (x < scroller.scrollLeft) scroller.scrollLeft = x;
      else if (x + wide > scroller.scrollLeft + scroller.clientWidth) scroller.scrollLeft = x + wide - scroller.clientWidth;
      if (event.shiftKey) brush(cursor, other, true);
      draw();
      tell(cursor);
    } else if (event.key === "Enter") {
      // The whole column.
      const begin = cursor - cursor % rows;
      ui.picked(rangeOfCells(begin, begin + rows - 1), other);
    } else if (event.key === "Escape" && (range || than)) ui.picked(null, false);
    else if (event.key === "+" || event.key === "-") turn(scale + (event.key === "+" ? -1 : 1));
    else return false;
    event.preventDefault();
    return true;
  }
  scroller.addEventListener("focus", () => { draw(); tell(cursor); });
  scroller.addEventListener("blur", draw);
  new ResizeObserver(draw).observe(scroller);

  return { load, show, key, turn, draw, get scale() { return scale; }, get most() { return most; } };
}
