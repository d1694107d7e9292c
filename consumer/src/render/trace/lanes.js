// The threads: activations of spans, and below them the samples.

function threadLanes(scroller, model, view) {
  const LEVEL = 13, STRIP = 7, GAP = 8;
  // Row by kind of sample: wall clock, CPU time, others.
  const ROWS = [1, 0, 0, 2, 2, 2, 2];
  const { lanes, laneScopes, laneFirst, samples, scopes, level } = model;
  const hues = model.about.spanNames.map(hue);
  const tops = [];
  let bottom = RULER;
  for (const lane of lanes) {
    tops.push(bottom);
    bottom += Math.max(lane.levels * LEVEL + 3 * STRIP + 5, 30) + GAP;
  }
  tops.push(bottom);
  const it = surface(scroller, () => bottom, draw);
  it.content = () => bottom;
  // The boxes to hit are those that were drawn.
  let drawn = [];

  function draw({ context, width, height }) {
    const colours = shades(), left = NAMES(width), dark = document.documentElement.classList.contains("dark");
    drawn = [];
    ruler(it, view, colours);
    context.save();
    context.beginPath();
    context.rect(0, RULER, width, height - RULER);
    context.clip();
    const top = scroller.scrollTop;
    for (let l = Math.max(0, firstFrom(tops, top, 0, lanes.length) - 1); l < lanes.length && tops[l] - top < height; l++) {
      const y = tops[l] - top;
      context.fillStyle = colours.front;
      const name = `${lanes[l].name}${lanes[l].id ? " " + lanes[l].id : ""}`;
      context.fillText(fitting(context, name, left - 16), 8, y + 12);
      context.fillStyle = colours.faint;
      context.fillText(fitting(context, plural(lanes[l].seen, "sample"), left - 16), 8, y + 26);
      context.fillStyle = colours.line;
      context.fillRect(0, y - GAP / 2, width, 1);
      context.save();
      context.beginPath();
      context.rect(left, RULER, width - left, height - RULER);
      context.clip();
      activations(l, y, context, width, left, colours, dark);
      ticksOf(l, y + lanes[l].levels * LEVEL + 2, context, width, left);
      context.restore();
    }
    context.restore();
    context.fillStyle = colours.line;
    context.fillRect(left - 1, 0, 1, height);
  }

  function activations(l, y, context, width, left, colours, dark) {
    // Narrow activations share a pixel: one of each level is drawn.
    const full = [];
    for (const s of laneScopes[l]) {
      const x0 = view.x(scopes.start[s], width), x1 = Math.max(view.x(scopes.end[s], width), x0 + 1);
      if (x0 > width) break;
      const d = level[s];
      if (x1 < left || (x1 - x0 < 2 && full[d] === Math.floor(x0))) continue;
      full[d] = Math.floor(x0);
      const from = Math.max(x0, left), to = Math.min(x1, width), span = scopes.span[s], top = y + d * LEVEL;
      const name = model.scopeName(s), ours = span >= 0;
      const lit = view.selected < 0 || span === view.selected || (view.within && span > view.selected && span < model.end[view.selected]);
      context.globalAlpha = ours ? (lit ? 1 : 0.35) : 0.25;
      context.fillStyle = ours ? `hsl(${hues[model.spans.name[span]]} 55% ${dark ? 52 : 50}%)` : colours.faint;
      context.fillRect(from, top, to - from > 2 ? to - from - 0.5 : to - from, LEVEL - 1);
      if (to - from > 24) {
        context.font = "11px system-ui, sans-serif";
        context.fillStyle = ours ? "#fff" : colours.faint;
        if (!ours) context.globalAlpha = 1;
        context.fillText(fitting(context, name, to - from - 6), from + 3, top + 10);
        context.font = TEXT;
      }
      if (scopes.open[s] && x1 <= width) {
        context.fillStyle = colours.front;
        context.fillRect(to - 1, top - 1, 1, LEVEL + 1);
      }
      context.globalAlpha = 1;
      if (span === view.selected && ours) {
        context.strokeStyle = colours.front;
        context.strokeRect(from + 0.5, top + 0.5, Math.max(to - from - 1, 1), LEVEL - 2);
      }
      drawn.push({ x0: from, x1: to, y0: top, y1: top + LEVEL, scope: s });
    }
  }

  /** Samples: a strip each for wall-clock time, CPU time, and others. */
  function ticksOf(l, y, context, width, left) {
    const [first, last] = [laneFirst[l], laneFirst[l + 1]];
    const { time, lasts, what, span } = samples;
    const painted = WHAT.map(() => -1);
    const unit = (view.to - view.from) / Math.max(1, width - left);
    for (let s = firstFrom(time, view.from - lanes[l].longest, first, last); s < last; s++) {
      if (time[s] > view.to) break;
      const w = what[s];
      const x0 = view.x(time[s], width), x1 = lasts[s] > unit ? view.x(time[s] + lasts[s], width) : x0 + 1.5;
      if (x1 < left || x1 <= painted[w] + 0.5) continue;
      painted[w] = x1;
      const mine = view.selected < 0 || span[s] === view.selected ||
        (view.within && span[s] > view.selected && span[s] < model.end[view.selected]);
      const top = y + ROWS[w] * (STRIP + 1);
      context.globalAlpha = mine ? 1 : 0.3;
      context.fillStyle = WHAT[w].colour;
      context.fillRect(x0, top, Math.max(Math.min(x1, width) - x0, 1.5), STRIP);
      drawn.push({ x0: x0 - 2, x1: Math.max(x1, x0 + 3), y0: top, y1: top + STRIP, sample: s });
    }
    context.globalAlpha = 1;
  }

  /** The object at a position on the canvas: {scope} or {sample}, null if there is none. */
  it.at = (x, y) => {
    if (y < RULER) return null;
    for (let i = drawn.length - 1; i >= 0; i--) {
      const box = drawn[i];
      if (x >= box.x0 && x < box.x1 && y >= box.y0 && y < box.y1) return box;
    }
    return null;
  };
  it.spanAt = (box) => (box.scope !== undefined ? scopes.span[box.scope] : samples.span[box.sample]);
  it.describe = (box) => {
    if (box.scope !== undefined) {
      const s = box.scope, other = scopes.span[s] < 0 ? " (in another trace, or omitted)" : "";
      return `${model.scopeName(s)}${other}\nactive on ${lanes[scopes.lane[s]].name} from ${duration(scopes.start[s])} for ` +
        duration(scopes.end[s] - scopes.start[s]) + (scopes.open[s] ? ", still open" : "");
    }
    const s = box.sample, { time, lasts, what, value, times, span } = samples;
    const measure = MEASURES.find((m) => m.of.includes(what[s]));
    const stands = value[s] ? `, ${amountOf(measure, value[s])}` : "";
    const lines = [`${WHAT[what[s]].name} at ${duration(time[s])}${lasts[s] ? " for " + duration(lasts[s]) : ""}${stands}` +
      (times[s] > 1 ? ` (${times[s]} samples)` : "")];
    if (span[s] >= 0) lines.push("in " + model.nameOf(span[s]));
    return lines.concat(model.topFrames(s, 6)).join("\n");
  };
  return it;
}
