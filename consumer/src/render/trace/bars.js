// The spans of a trace as bars, one per row, below their parent.

const NAMES = (width) => Math.round(Math.min(320, width * 0.3));
const TEXT = "12px system-ui, sans-serif";
const RULER = 20;

/** A canvas that keeps its position while its content is scrolled. */
function surface(scroller, height, draw) {
  const spacer = scroller.querySelector(".spacer"), canvas = scroller.querySelector("canvas");
  const context = canvas.getContext("2d");
  const it = { scroller, canvas, context, width: 0, height: 0, redraw, resize };
  let waits = false;
  function resize() {
    const ratio = window.devicePixelRatio || 1;
    it.width = scroller.clientWidth;
    it.height = scroller.clientHeight;
    canvas.width = Math.round(it.width * ratio);
    canvas.height = Math.round(it.height * ratio);
    canvas.style.width = it.width + "px";
    canvas.style.height = it.height + "px";
    spacer.style.height = Math.max(height(), it.height) + "px";
    paint();
  }
  function paint() {
    waits = false;
    const ratio = window.devicePixelRatio || 1;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, it.width, it.height);
    context.font = TEXT;
    draw(it);
  }
  function redraw() {
    if (waits) return;
    waits = true;
    requestAnimationFrame(() => { if (waits) paint(); });
  }
  scroller.addEventListener("scroll", redraw);
  new ResizeObserver(resize).observe(scroller);
  return it;
}

/** The colours of the theme. */
function shades() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue("--" + name).trim();
  return { back: of("back"), front: of("front"), faint: of("faint"), line: of("line"), field: of("field"), focus: of("focus") };
}

/** The colour of a span, by its name. */
function hue(name) {
  let hash = 2166136261;
  for (let i = 0; i < name.length; i++) hash = Math.imul(hash ^ name.charCodeAt(i), 16777619);
  return (hash >>> 7) % 360;
}

/** The part of a text that fits. */
function fitting(context, text, room) {
  if (room < 12) return "";
  if (text.length > 400) text = text.slice(0, 400) + "…";
  if (context.measureText(text).width <= room) return text;
  let low = 0, high = text.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (context.measureText(text.slice(0, middle) + "…").width <= room) low = middle;
    else high = middle - 1;
  }
  return low ? text.slice(0, low) + "…" : "";
}

/** Round times between `from` and `to`, about every 100 pixels. */
function ticks(from, to, width) {
  const rough = (to - from) / Math.max(1, width / 100), power = 10 ** Math.floor(Math.log10(Math.max(rough, 1e-3)));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough) || power * 10;
  const all = [];
  for (let i = Math.ceil(from / step); i * step <= to && all.length < 100; i++) all.push(i * step);
  return all;
}

/** The time axis on top and its lines below. */
function ruler(it, view, colours) {
  const { context, width, height } = it, left = NAMES(width);
  for (const at of ticks(view.from, view.to, width - left)) {
    const x = view.x(at, width);
    context.fillStyle = colours.line;
    context.fillRect(x, 0, 1, height);
    context.fillStyle = colours.faint;
    const text = at === 0 ? "0" : duration(at);
    if (x + 4 + context.measureText(text).width < width) context.fillText(text, x + 4, RULER - 6);
  }
}

function spanBars(scroller, model, view) {
  const ROW = 20;
  const { spans, scopes, scopesOf, count } = model;
  const height = () => RULER + count * ROW + 4;
  const hues = model.about.spanNames.map(hue);
  const it = surface(scroller, height, draw);
  it.content = height;

  function draw({ context, width, height }) {
    const colours = shades(), left = NAMES(width);
    const dark = document.documentElement.classList.contains("dark");
    ruler(it, view, colours);
    const first = Math.max(0, Math.floor((scroller.scrollTop) / ROW)), last = Math.min(count, first + Math.ceil(height / ROW) + 1);
    context.save();
    context.beginPath();
    context.rect(0, RULER, width, height - RULER);
    context.clip();
    for (let i = first; i < last; i++) {
      const y = RULER + i * ROW - scroller.scrollTop;
      if (i === view.selected || i === view.hovered) {
        context.fillStyle = i === view.selected ? colours.focus : colours.faint;
        context.globalAlpha = 0.16;
        context.fillRect(0, y, width, ROW);
        context.globalAlpha = 1;
      }
      const faded = view.matches && !view.matches[spans.name[i]];
      context.globalAlpha = faded ? 0.3 : 1;
      row(i, y, context, width, left, colours, dark);
      context.globalAlpha = 1;
    }
    context.restore();
    context.fillStyle = colours.line;
    context.fillRect(left - 1, 0, 1, height);
  }

  function row(i, y, context, width, left, colours, dark) {
    const inferred = spans.flags[i] & INFERRED, name = model.nameOf(i), base = context.globalAlpha;
    const indent = 8 + Math.min(spans.depth[i], 14) * 12;
    context.font = (inferred ? "italic " : "") + TEXT;
    context.fillStyle = inferred ? colours.faint : colours.front;
    context.fillText(fitting(context, (inferred ? "ƒ " : "") + name, left - indent - 6), indent, y + 14);
    context.font = TEXT;
    const x0 = view.x(spans.start[i], width), x1 = view.x(spans.end[i], width);
    const open = spans.flags[i] & (OPEN | UNTIMED);
    const text = duration(spans.end[i] - spans.start[i]) + (open ? " and on" : "");
    const room = context.measureText(text).width;
    // If the bar is not visible, shows its direction.
    if (x1 < left || x0 > width) {
      context.fillStyle = colours.faint;
      context.fillText(x1 < left ? "◂ " + text : text + " ▸", x1 < left ? left + 4 : width - room - 20, y + 14);
      return;
    }
    const from = Math.max(x0, left), to = Math.min(Math.max(x1, x0 + 2), width), w = to - from;
    const hue = hues[spans.name[i]], strong = `hsl(${hue} 55% ${dark ? 52 : 50}%)`;
    context.fillStyle = strong;
    if (inferred) {
      // An inferred span: a dashed outline.
      context.globalAlpha = base * 0.25;
      context.fillRect(from, y + 5, w, ROW - 10);
      context.globalAlpha = base;
      context.strokeStyle = strong;
      context.lineWidth = 1;
      context.setLineDash([3, 2]);
      context.strokeRect(from + 0.5, y + 5.5, Math.max(w - 1, 1), ROW - 11);
      context.setLineDash([]);
    } else {
      context.globalAlpha = base * 0.3;
      context.fillRect(from, y + 3, w, ROW - 6);
      context.globalAlpha = base;
      context.fillRect(from, y + ROW - 4, w, 1);
      active(i, y, context, width, left);
      if (open) {
        context.strokeStyle = strong;
        context.setLineDash([2, 2]);
        context.beginPath();
        context.moveTo(to - 0.5, y + 1);
        context.lineTo(to - 0.5, y + ROW - 1);
        context.stroke();
        context.setLineDash([]);
      }
    }
    const behind = to + 5 + room < width;
    context.fillStyle = behind || w < room + 10 ? colours.faint : colours.front;
    if (behind) context.fillText(text, to + 5, y + 14);
    else if (from - room - 5 > left) context.fillText(text, from - room - 5, y + 14);
    else context.fillText(text, Math.max(from + 4, to - room - 6), y + 14);
  }

  /** Activations of the span on threads, in full colour. At most one piece per pixel. */
  function active(i, y, context, width, left) {
    const list = scopesOf.get(i);
    if (!list) return;
    let painted = left;
    for (const s of list) {
      const x0 = view.x(scopes.start[s], width), x1 = Math.max(view.x(scopes.end[s], width), x0 + 1);
      if (x0 > width) break;
      const from = Math.max(x0, painted);
      if (x1 <= painted) continue;
      const to = Math.min(x1, width);
      context.fillRect(from, y + 3, to - from, ROW - 6);
      painted = to;
    }
  }

  /** The span at a position on the canvas, -1 if there is none. */
  it.at = (x, y) => {
    if (y < RULER) return -1;
    const row = Math.floor((y - RULER + scroller.scrollTop) / ROW);
    return row >= 0 && row < count ? row : -1;
  };
  it.reveal = (i) => {
    const y = RULER + i * ROW;
    if (y - RULER < scroller.scrollTop) scroller.scrollTop = y - RULER;
    else if (y + ROW > scroller.scrollTop + it.height) scroller.scrollTop = y + ROW - it.height;
  };
  it.describe = (i) => {
    const own = model.spent(i, false), lines = [model.nameOf(i) + (spans.flags[i] & INFERRED ? " (inferred)" : "")];
    lines.push(`from ${duration(spans.start[i])} for ${duration(spans.end[i] - spans.start[i])}` +
      (spans.flags[i] & UNTIMED ? "; its end was not recorded" : "") + `; ${spans.id[i]}`);
    if (spans.flags[i] & INFERRED) lines.push(`seen in ${plural(spans.samples[i], "sample")}`);
    const parts = MEASURES.filter((m) => own[m.key]).map((m) => `${m.name} ${amountOf(m, own[m.key])}`);
    if (parts.length) lines.push("without child spans: " + parts.join(", "));
    const labels = Object.entries(spans.labels[i] || {});
    if (labels.length) lines.push(labels.map(([key, value]) => `${key}=${value}`).join(", "));
    if (spans.callers[i]) lines.push("called by " + spans.callers[i].join(" ← "));
    return lines.join("\n");
  };
  return it;
}
