"use strict";
/**
 * Time that the samples of a lane cover, in ms: `from(i)` and `to(i)`. If all samples represent the same time, a sample ends at
 * its time; an event with a duration begins at its time; without times, a sample represents the usual gap. Samples of one tick
 * share it.
 */
class Covered {
  constructor(times, lane, measure) {
    const { at } = lane, { tick } = times, weights = measure < 0 ? false : lane.weights[measure], count = at.length;
    this.starts = new Float64Array(count);
    this.ends = new Float64Array(count);
    if (weights instanceof Float64Array) {
      for (let i = count - 1, next = Infinity; i >= 0; i--) {
        this.starts[i] = at[i] * tick;
        if (i + 1 < count && at[i + 1] > at[i]) next = at[i + 1] * tick;
        // A sample that begins in the meantime is shown instead.
        this.ends[i] = Math.min(this.starts[i] + weights[i] / 1e6, next);
      }
      return;
    }
    // The gap in a lane with few samples does not show the sampling period.
    const each = weights ? weights / 1e6 : Math.min(usualGap([at]), times.usualGap) * tick;
    let end = 0;
    for (let i = 0; i < count;) {
      let same = i + 1;
      while (same < count && at[same] === at[i]) same++;
      const time = (at[i] + 1) * tick, wanted = each * (same - i);
      // Sampling is not exact: a gap of up to half a sample is ignored.
      const begin = time - end < 1.5 * wanted + tick ? Math.min(end, time) : time - wanted;
      for (let k = i; k < same; k++) {
        this.starts[k] = begin + (time - begin) * (k - i) / (same - i);
        this.ends[k] = begin + (time - begin) * (k + 1 - i) / (same - i);
      }
      end = time;
      i = same;
    }
  }
}

/** The usual number of ticks between two samples of a lane, from some thousands of them. */
function usualGap(lanes) {
  const gaps = [], count = lanes.reduce((all, at) => all + at.length, 0), step = Math.max(1, Math.floor(count / 4096));
  for (const at of lanes) for (let i = 1; i < at.length; i += step) gaps.push(at[i] - at[i - 1]);
  return gaps.sort((a, b) => a - b)[gaps.length >> 1] || 1;
}

/**
 * Stacks in order of time, a lane for each thread; only adjacent boxes are merged. `ui` is as for a flame graph; `zoomed(range,
 * how)` is called with the visible range, null for all; `how` is as for `change`.
 */
function flameChart(ui) {
  const { canvas, scroller, spacer, tip } = ui, ROW = 17, AXIS = 18, FONT = "12px system-ui, 'DejaVu Sans', sans-serif";
  const surface = new Surface(canvas, ROW), { context } = surface, letters = new Letters(context, FONT), titles = new Letters(context, FONT), MATCH = pixel(230, 0, 230);
  let frames, tree = null, lasting, lanes = [], several = false, bounds = [0, 1], view = null, paint = () => 0, matches = null, titled = null, unit = 0;
  let width = 0, height = 0, hits = [], stale = false;
  // The keyboard focus: a lane, a sample of it or a duration event, and a row.
  let focused = null;
  const depthOf = (box) => tree.depth[box];
  const range = () => view || bounds;
  const msOf = (x) => range()[0] + x / width * (range()[1] - range()[0]);

  /**
   * `state`: frames, tree (after filters), times, lanes, lanes without samples, measure of time, times and measure of CPU samples
   * (null if there are none), range, view, paint, naming, wanted labels, search expression.
   */
  function show(state) {
    const anew = tree !== state.tree || unit !== state.lanes;
    ({ frames, tree, view, paint, wanted: matches } = state);
    ({ lasting } = state.times);
    titled = state.regex && lasting.names.map((name) => state.regex.test(name));
    if (matches && !matches.includes(1) && !titled.includes(true)) matches = null;
    letters.of(frames.names, frames.kinds, state.naming);
    titles.of(lasting.names);
    bounds = state.range || [0, Math.max(state.times.end, lasting.end)];
    if (anew) {
      unit = state.lanes;
      let row = 0;
      // Lanes with most samples first.
      lanes = [...state.lanes, ...state.others].sort((a, b) => b.samples - a.samples).map((lane) => {
        let deepest = -1, seen = 0;
        const { stack } = lane, { own, depth } = tree;
        for (let i = 0; i < stack.length; i++) {
          if (!(own[stack[i]] > 0)) continue;
          seen++;
          if (depth[stack[i]] > deepest) deepest = depth[stack[i]];
        }
        return { lane, seen, deepest };
      }).filter(({ lane, seen }) => seen > 0 || lane.lasting);
      for (const one of lanes) {
        one.row = row;
        one.events = one.lane.lasting;
        // Duration events are above the stacks.
        one.base = row + 1 + (one.events ? one.events.rows : 0);
        row = one.below = one.base + one.deepest + 1;
        // Independent of filters.
        one.cover = () => one.lane.covered || (one.lane.covered = new Covered(state.times, one.lane, state.measure));
        const ran = state.cpu && state.cpu.times.lanes.find(({ thread }) => thread === one.lane.thread);
        one.cpu = ran && (ran.cpu || (ran.cpu = new CpuUse(state.cpu.times, ran, state.cpu.measure)));
      }
      focused = null;
      // Shows the process if there are several.
      several = new Set(lanes.map(({ lane }) => lane.process).filter((of) => of && of !== "[unknown process]")).size > 1;
    }
    resize();
    schedule();
  }
  const rows = () => lanes.length ? lanes[lanes.length - 1].below : 0;
  function resize() {
    if (!tree || !scroller.clientWidth) return;
    width = scroller.clientWidth;
    height = scroller.clientHeight;
    surface.resize(width, height);
    spacer.style.height = Math.max(rows() * ROW + AXIS, height) + "px";
    schedule();
  }
  function schedule() {
    if (stale) return;
    stale = true;
    requestAnimationFrame(() => { if (stale) draw(); });
  }

  /** Pieces to draw of a lane: `[x0, x1, sample]`, one per pixel where samples are thinner. */
  function stretches({ lane, cover }) {
    const { starts, ends } = cover(), [from, to] = range(), scale = width / (to - from), made = [];
    let low = 0, high = ends.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (ends[middle] <= from) low = middle + 1;
      else high = middle;
    }
    for (let i = low; i < starts.length && starts[i] < to; i++) {
      if (!(tree.own[lane.stack[i]] > 0)) continue;
      const x0 = Math.max(0, (starts[i] - from) * scale), x1 = Math.min(width, (ends[i] - from) * scale), last = made[made.length - 1];
      // Of the samples within one pixel, the one that covers most of it.
      if (last && x1 - x0 < 1 && Math.floor(last[0]) === Math.floor(x0) && last[1] - last[0] < 1) {
        if (x1 - x0 > last[1] - last[0]) made[made.length - 1] = [last[0], x1, i];
        else last[1] = Math.max(last[1], x1);
      } else made.push([x0, Math.max(x1, x0 + 0.5), i]);
    }
    return made;
  }

  function draw() {
    stale = false;
    hits = [];
    if (!tree || !width) return;
    surface.begin();
    const top = scroller.scrollTop, texts = [], strips = [], dark = document.documentElement.classList.contains("dark");
    for (const one of lanes) {
      const first = one.row * ROW + AXIS - top;
      if (first > height || first + (one.below - one.row) * ROW < 0) continue;
      if (one.cpu) strips.push([one, first]);
      texts.push({ text: one.lane.name + (several && one.lane.process ? " · " + one.lane.process : ""), x: 4, y: first + ROW - 4, head: true });
      if (one.events) drawEvents(one, texts, top);
      const open = [];
      const close = (depth) => {
        const { box, x0, x1, sample } = open[depth], row = one.base + depth, label = tree.label[box], y = row * ROW + AXIS - top;
        open[depth] = null;
        if (y + ROW < AXIS || y > height) return;
        const hit = matches !== null && matches[label] > 0, plain = hit ? MATCH : paint(label, false, tree, box);
        surface.box(row, x0, x1, matches !== null && !hit ? ((plain & 0xffffff) | (140 << 24)) >>> 0 : plain);
        (hits[row] || (hits[row] = [])).push({ x0, x1, box, sample, one });
        if (x1 - x0 > 14) texts.push({ text: letters.fitted(label, x1 - x0 - 7), x: x0 + 3, y: y + ROW - 5, deep: hit || isDeep(plain) && matches === null });
      };
      for (const [x0, x1, sample] of stretches(one)) {
        const path = [];
        for (let box = one.lane.stack[sample]; box >= 0; box = tree.parent[box]) path[depthOf(box)] = box;
        // Ends boxes that changed or were interrupted.
        for (let depth = open.length - 1; depth >= 0; depth--) {
          if (open[depth] && (open[depth].box !== path[depth] || x0 - open[depth].x1 > 1)) close(depth);
        }
        path.forEach((box, depth) => {
          if (open[depth]) open[depth].x1 = x1;
          else open[depth] = { box, x0, x1, sample };
        });
      }
      for (let depth = open.length - 1; depth >= 0; depth--) if (open[depth]) close(depth);
    }
    surface.show((row) => row * ROW + AXIS - top);
    for (const [one, y] of strips) drawCpu(one, y);
    context.font = FONT;
    const style = getComputedStyle(document.documentElement), front = style.getPropertyValue("--front");
    for (const { text, x, y, head, deep } of texts) {
      context.fillStyle = head ? front : deep ? "#fff" : matches && dark ? "#e0e0e6" : "#111";
      if (text) context.fillText(text, x, y);
    }
    const box = focused && (hits[focused.row] || []).find(({ x0, x1, event }) => event !== undefined && event === focused.event || xOf(focused) >= x0 - 0.5 && xOf(focused) <= x1 + 0.5);
    if (box && document.activeElement === scroller) {
      context.strokeStyle = dark ? "#fff" : "#000";
      context.lineWidth = 2;
      context.strokeRect(box.x0 + 1, focused.row * ROW + AXIS - top + 1, Math.max(1, box.x1 - box.x0 - 2), ROW - 3);
    }
    axis(style);
  }
  function drawEvents(one, texts, top) {
    for (const [r, x0, x1, event] of one.events.stretches(range(), width)) {
      const row = one.row + 1 + r, y = row * ROW + AXIS - top, name = one.events.name[event];
      if (y + ROW < AXIS || y > height) continue;
      const hit = matches !== null && titled[name], plain = hit ? MATCH : LASTING[lasting.of[name]][1];
      surface.box(row, x0, x1, matches !== null && !hit ? ((plain & 0xffffff) | (140 << 24)) >>> 0 : plain);
      (hits[row] || (hits[row] = [])).push({ x0, x1, box: -1, event, one });
      if (x1 - x0 > 14) texts.push({ text: titles.fitted(name, x1 - x0 - 7), x: x0 + 3, y: y + ROW - 5, deep: hit });
    }
  }
  /** Draws bars of CPU use behind the name of a lane; a full bar is one processor. */
  function drawCpu(one, y) {
    const { bar, first, shares } = one.cpu.bars(range(), width), [from, to] = range(), xAt = (k) => ((first + k) * bar - from) / (to - from) * width;
    context.globalAlpha = 0.5;
    context.fillStyle = css(CPU_COLOUR);
    shares.forEach((share, k) => {
      const x0 = Math.round(Math.max(0, xAt(k))), x1 = Math.round(Math.min(width, xAt(k + 1))), high = Math.round(share * (ROW - 3));
      context.fillRect(x0, y + ROW - 1 - high, x1 - x0, high);
    });
    context.globalAlpha = 1;
  }
  /** Description of a thread's CPU use at a time. */
  function describeCpu(one, ms) {
    const { bar, first, shares } = one.cpu.bars(range(), width), k = Math.floor(ms / bar) - first;
    const [from, to] = [(first + k) * bar, Math.min((first + k + 1) * bar, bounds[1])];
    return `CPU use: ${(100 * (shares[k] || 0)).toFixed(0)} % of one processor (${rangeText([from, to], 4)}) in ${one.lane.name}`;
  }
  const xOf = (of) => {
    const { from: first, to: last } = at(of), [from, to] = range();
    return ((first + last) / 2 - from) / (to - from) * width;
  };
  /** Start and end in ms of a sample or an event. */
  const at = ({ one, sample, event }) => {
    const { starts, ends } = event === undefined ? one.cover() : one.events, i = event ?? sample;
    return { from: starts[i], to: ends[i] };
  };
  function axis(style) {
    const [from, to] = range(), rough = (to - from) / Math.max(2, width / 110), power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
    context.fillStyle = style.getPropertyValue("--back");
    context.fillRect(0, 0, width, AXIS - 1);
    context.fillStyle = style.getPropertyValue("--faint");
    const digits = Math.max(0, Math.min(4, -Math.floor(Math.log10(step / 1000))));
    for (let at = Math.ceil(from / step) * step; at < to; at += step) {
      const x = (at - from) / (to - from) * width;
      context.fillRect(x, 0, 1, AXIS - 2);
      context.fillText((at / 1000).toFixed(digits) + " s", x + 3, AXIS - 5);
    }
  }

  /** A merged box: start and end in ms, and its number of samples. */
  function whole(of) {
    if (of.event !== undefined) return { box: -1, ...at(of) };
    const { one, sample, row } = of, { starts, ends } = one.cover(), depth = row - one.base, { stack } = one.lane, boxAt = (i) => {
      let box = stack[i];
      while (box >= 0 && depthOf(box) > depth) box = tree.parent[box];
      return box >= 0 && depthOf(box) === depth && tree.own[stack[i]] > 0 ? box : -1;
    };
    const box = boxAt(sample), gap = Math.max(0.01, (range()[1] - range()[0]) / width);
    let [first, last] = [sample, sample];
    while (first > 0 && boxAt(first - 1) === box && starts[first] - ends[first - 1] <= gap) first--;
    while (last + 1 < starts.length && boxAt(last + 1) === box && starts[last + 1] - ends[last] <= gap) last++;
    return { box, first, last, from: starts[first], to: ends[last], count: last - first + 1 };
  }
  function describe(of) {
    const { box, from, to, count } = whole(of), { event, one } = of;
    if (event !== undefined) {
      const name = one.events.name[event];
      return `${LASTING[lasting.of[name]][0]}: ${lasting.names[name]} (${rangeText([from, to], 4)}, ${amountIn("ns", (to - from) * 1e6)}) in ${one.lane.name}`;
    }
    return `Function: ${frames.names[tree.label[box]]} (${rangeText([from, to], 4)}, ${amountIn("ns", (to - from) * 1e6)}, ${amountIn("samples", count)}) in ${of.one.lane.name}`;
  }

  // --- Zoom and pan
  let grabbed = null, looked = 0;
  function look(from, to) {
    const [low, high] = bounds, least = 0.01, span = Math.max(least, Math.min(high - low, to - from));
    const begin = Math.max(low, Math.min(high - span, from)), dragged = grabbed && grabbed.moved;
    // A drag is a single step for undo, and so is turning the wheel.
    const how = dragged ? (grabbed.begun ? "passing" : "") : Date.now() - looked < 500 ? "quiet" : "";
    if (dragged) grabbed.begun = true;
    ui.zoomed(span >= high - low - 1e-6 ? null : [Number(begin.toFixed(3)), Number((begin + span).toFixed(3))], how);
    looked = Date.now();
  }
  const scaled = (by, at = (range()[0] + range()[1]) / 2) => look(at - (at - range()[0]) * by, at + (range()[1] - at) * by);

  const under = (event) => {
    if (stale) draw();
    const place = canvas.getBoundingClientRect(), x = event.clientX - place.left, y = event.clientY - place.top;
    const row = Math.floor((y - AXIS + scroller.scrollTop) / ROW), hit = y < AXIS ? null : (hits[row] || []).find(({ x0, x1 }) => x >= x0 && x < x1);
    return { x, hit: hit && { ...hit, row }, strip: y < AXIS ? null : lanes.find((one) => one.row === row && one.cpu) };
  };
  canvas.addEventListener("pointerup", () => {
    if (grabbed && grabbed.moved) ui.zoomed(view, "quiet");
  });
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button === 0) grabbed = { x: event.clientX, range: range(), moved: false };
  });
  canvas.addEventListener("pointermove", (event) => {
    if (grabbed && event.buttons) {
      const by = (event.clientX - grabbed.x) / width * (grabbed.range[1] - grabbed.range[0]);
      if (!grabbed.moved && Math.abs(event.clientX - grabbed.x) < 4) return;
      if (!grabbed.moved) canvas.setPointerCapture(event.pointerId);
      grabbed.moved = true;
      tip.hidden = true;
      return look(grabbed.range[0] - by, grabbed.range[1] - by);
    }
    const { x, hit, strip } = under(event);
    canvas.style.cursor = hit ? "pointer" : "grab";
    tip.hidden = !hit && !strip;
    if (tip.hidden) return ui.say("\u00a0");
    const text = hit ? describe(hit) : describeCpu(strip, msOf(x));
    ui.say(text);
    tip.textContent = text;
    placeTip(tip, event);
  });
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; ui.say("\u00a0"); });
  canvas.addEventListener("click", (event) => {
    const moved = grabbed && grabbed.moved, { hit } = under(event);
    grabbed = null;
    if (moved || !hit) return;
    focused = hit;
    if (hit.box >= 0) ui.focused(hit.box);
    const { from, to } = whole(hit);
    look(from, to);
  });
  canvas.addEventListener("dblclick", (event) => {
    const { hit } = under(event);
    if (hit && hit.box >= 0) ui.opened(hit.box);
  });
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey && Math.abs(event.deltaY) > Math.abs(event.deltaX)) return;
    event.preventDefault();
    const { x } = under(event), span = range()[1] - range()[0];
    if (event.ctrlKey || event.metaKey) scaled(event.deltaY > 0 ? 1.25 : 0.8, msOf(x));
    else look(range()[0] + event.deltaX / width * span, range()[1] + event.deltaX / width * span);
  }, { passive: false });

  // --- Keyboard
  function focus(to) {
    if (!to) return;
    focused = to;
    const { from, to: end, box } = whole(to), [low, high] = range();
    if (box >= 0) ui.focused(box);
    ui.say(describe(to));
    if (end <= low || from >= high) look((from + end) / 2 - (high - low) / 2, (from + end) / 2 + (high - low) / 2);
    const y = to.row * ROW + AXIS;
    if (y - AXIS < scroller.scrollTop) scroller.scrollTop = y - 2 * AXIS;
    else if (y + ROW > scroller.scrollTop + height) scroller.scrollTop = y + 2 * ROW - height;
    schedule();
  }
  /** The next sample of a lane that passes the filters and reaches a row; otherwise the row of its caller. */
  function seek(one, sample, step, row) {
    const { stack } = one.lane;
    for (let i = sample; i >= 0 && i < stack.length; i += step) {
      if (tree.own[stack[i]] > 0) return { one, sample: i, row: Math.min(row, one.base + depthOf(stack[i])) };
    }
    return null;
  }
  /** The first visible sample of a lane that passes the filters. */
  function inLane(one) {
    const { starts } = one.cover(), from = range()[0];
    let first = 0;
    while (first < starts.length - 1 && starts[first] < from) first++;
    return seek(one, first, 1, one.base) || seek(one, first, -1, one.base);
  }
  /** The event in a row of a lane that is nearest to a time. */
  const eventOf = (one, row, ms) => one.events && row >= 0 && row < one.events.rows ? { one, event: one.events.nearest(row, ms), row: one.row + 1 + row } : null;
  /** Enters a lane from above or from below. */
  function enter(one, down) {
    if (!one) return null;
    const event = () => eventOf(one, down ? 0 : one.events.rows - 1, range()[0]);
    return down && one.events ? event() : inLane(one) || event();
  }
  /** Moves to the event or sample above or below, at the same time if possible. */
  function across(step) {
    const { one, sample, row } = focused, at = lanes.indexOf(one), [low, high] = range(), { from, to } = whole(focused);
    const ms = Math.min(high, Math.max(low, (from + to) / 2)), beyond = () => enter(lanes[at + step], step > 0);
    if (focused.event === undefined && (step < 0 ? row > one.base : row < one.base + depthOf(one.lane.stack[sample]))) return { one, sample, row: row + step };
    const event = step < 0 || focused.event !== undefined ? eventOf(one, row + step - one.row - 1, ms) : null;
    if (event || step < 0 || focused.event === undefined) return event || beyond();
    const { ends } = one.cover();
    let next = 0;
    while (next < ends.length - 1 && ends[next] <= ms) next++;
    return seek(one, next, 1, one.base) || seek(one, next, -1, one.base) || beyond();
  }
  /** Handles a key; returns whether it was one of these. */
  function key(event) {
    const span = range()[1] - range()[0];
    if (event.key === "+" || event.key === "=") scaled(0.5);
    else if (event.key === "-") scaled(2);
    else if (event.shiftKey && (event.key === "ArrowLeft" || event.key === "ArrowRight")) {
      const by = (event.key === "ArrowLeft" ? -0.25 : 0.25) * span;
      look(range()[0] + by, range()[1] + by);
    } else if (event.key.startsWith("Arrow")) {
      if (!focused) focus(enter(lanes[0], true));
      else if (event.key === "ArrowDown" || event.key === "ArrowUp") focus(across(event.key === "ArrowDown" ? 1 : -1));
      else {
        const step = event.key === "ArrowRight" ? 1 : -1;
        if (focused.event === undefined) {
          const { first, last } = whole(focused);
          focus(seek(focused.one, step > 0 ? last + 1 : first - 1, step, focused.row));
        } else {
          const next = focused.one.events.next(focused.event, step);
          if (next >= 0) focus({ ...focused, event: next });
        }
      }
    } else if (event.key === "Enter" && focused) {
      const { from, to } = whole(focused);
      look(from, to);
    } else return false;
    event.preventDefault();
    return true;
  }
  for (const of of ["scroll", "focus", "blur"]) scroller.addEventListener(of, schedule);
  new ResizeObserver(resize).observe(scroller);
  /**
   * Moves to the next or previous matching event, lane by lane, in order of time; returns its number and the number of events.
   */
  function nextEvent(step) {
    const found = [];
    for (const one of lanes) one.events?.name.forEach((name, event) => { if (titled?.[name]) found.push({ one, event, row: one.row + 1 + one.events.row[event] }); });
    if (!found.length) return [0, 0];
    const here = focused ? found.findIndex(({ one, event }) => one === focused.one && event === focused.event) : -1;
    const at = here < 0 ? (step > 0 ? 0 : found.length - 1) : (here + step + found.length) % found.length;
    focus(found[at]);
    return [at + 1, found.length];
  }
  const eventsMatched = () => lanes.reduce((all, { events }) => all + (events && titled ? events.name.reduce((sum, name) => sum + titled[name], 0) : 0), 0);
  return { show, key, eventsMatched, nextEvent };
}
