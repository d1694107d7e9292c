// The window of a continuous profile: a timeline on which an interval can be selected.
import { paths } from "./api.js";
import { arrange, byId, element, hide, mark, tell } from "./dom.js";
import { FORMATS } from "./modes.js";
import { iso, moment, seconds, size } from "./text.js";

const MINUTE = 60_000, SECOND = 1000, HEIGHT = 48;

const span = ({ from, to }) => `${moment(from)} – ${moment(to)}`;
export const windowName = span;

/** Returns `[from, to, height]` of the bars: samples per second, null if not counted yet; bytes per second if the service does not count. */
function bars({ timeline, chunks }) {
  if (timeline) return timeline.rates.map((rate, i) => [timeline.from + i * timeline.step, timeline.from + (i + 1) * timeline.step, rate]);
  return (chunks || []).map(({ from, to, bytes }) => [from, to, bytes / Math.max(1, to - from)]);
}

/** Returns the time within the window at which a clock showed `text` (hours, minutes, optionally seconds), or NaN. */
function momentOf(text, { from, to }) {
  const parts = /^([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?$/.exec(text.trim());
  if (!parts) return NaN;
  // On the day of the end, or the one before.
  const days = [0, 1].map((back) => {
    const at = new Date(to);
    at.setDate(at.getDate() - back);
    return at.setHours(Number(parts[1]), Number(parts[2]), Number(parts[3] || 0), 0);
  });
  return days.find((at) => at >= from - MINUTE && at <= to + MINUTE) ?? days[0];
}
const clockOf = (ms) => {
  const at = new Date(ms), two = (number) => String(number).padStart(2, "0");
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
};

/** `open(range)` shows an interval, `compare(range, which)` adds it to the basket, `sides(range)` returns its place in it. */
export function windowStrip({ open, compare, sides }) {
  const strip = byId("window-strip"), from = byId("window-from"), to = byId("window-to");
  const view = byId("window-view"), buttons = { before: byId("window-a"), after: byId("window-b") };
  // The selection of a target stays while its window advances.
  const kept = new Map();
  let target = null, now = null, dragged = null;
  const chosen = () => kept.get(target);

  function choose(range) {
    for (const field of [from, to]) mark(field, "aria-invalid", null);
    const first = Math.max(now.from, Math.min(range.from, range.to)), last = Math.min(now.to, Math.max(range.from, range.to));
    kept.set(target, { from: Math.floor(first), to: Math.ceil(Math.max(last, first + 1)) });
    show();
  }
  const last = (length) => choose({ from: now.to - length, to: now.to });
  const x = (at, width) => width * (at - now.from) / Math.max(1, now.to - now.from);
  const timeAt = (event) => {
    const box = strip.getBoundingClientRect();
    return now.from + (now.to - now.from) * Math.max(0, Math.min(1, (event.clientX - box.left) / box.width));
  };

  function draw() {
    if (!now || !strip.clientWidth) return;
    const ratio = devicePixelRatio || 1, width = strip.clientWidth, paint = strip.getContext("2d"), style = getComputedStyle(strip);
    const [wide, high] = [Math.round(width * ratio), Math.round(HEIGHT * ratio)];
    if (strip.width !== wide || strip.height !== high) [strip.width, strip.height] = [wide, high];
    paint.setTransform(ratio, 0, 0, ratio, 0, 0);
    paint.clearRect(0, 0, width, HEIGHT);
    const { from: begin, to: end } = chosen(), left = x(begin, width), right = Math.max(left + 2, x(end, width));
    paint.fillStyle = style.getPropertyValue("--chosen");
    paint.fillRect(left, 0, right - left, HEIGHT);
    const all = bars(now), most = all.reduce((most, [, , rate]) => Math.max(most, rate), 0) || 1;
    for (const [a, b, rate] of all) {
      const start = Math.floor(x(a, width)), high = rate === null ? HEIGHT : Math.round((HEIGHT - 6) * rate / most);
      paint.fillStyle = style.getPropertyValue(rate === null ? "--soft" : b > begin && a < end ? "--focus" : "--line");
      paint.fillRect(start, HEIGHT - high, Math.max(1, Math.floor(x(b, width)) - start), high);
    }
  }
  function show() {
    const range = chosen();
    const most = Math.max(0, ...(now.timeline?.rates || []));
    tell(byId("window-words"), [span(now), seconds((now.to - now.from) / SECOND), most && `up to ${most < 10 ? most.toFixed(1) : Math.round(most)} samples per second`, now.bytes && size(now.bytes)].filter(Boolean).join(" · "));
    for (const [field, at] of [[from, range.from], [to, range.to]]) if (!field.hasAttribute("aria-invalid") && document.activeElement !== field && field.value !== clockOf(at)) field.value = clockOf(at);
    const gone = range.from < now.from;
    tell(byId("window-chosen"), `${seconds((range.to - range.from) / SECOND)}${gone ? range.to <= now.from ? ", no longer stored" : ", its beginning is no longer stored" : ""}`);
    for (const [which, button] of Object.entries(buttons)) mark(button, "aria-pressed", sides(target, range).includes(which));
    const key = `${target} ${range.from} ${range.to}`, links = byId("window-links");
    if (links.dataset.of !== key) {
      links.dataset.of = key;
      arrange(links, FORMATS.map(([format, words]) => Object.assign(element("a", { href: paths.windowFile(target, format, range), textContent: words, download: "" }), { title: iso(range.from) })));
    }
    mark(strip, "aria-label", `Recorded from ${span(now)}; selected ${span(range)}. Arrow keys move the selection, with Shift its end; Enter views it.`);
    draw();
  }

  strip.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    strip.setPointerCapture(event.pointerId);
    dragged = { at: timeAt(event), x: event.clientX };
  });
  strip.addEventListener("pointermove", (event) => { if (dragged && Math.abs(event.clientX - dragged.x) > 3) choose({ from: dragged.at, to: timeAt(event) }); });
  strip.addEventListener("pointerup", (event) => {
    // A click without dragging moves the selection, keeping its length.
    const half = (chosen().to - chosen().from) / 2;
    if (dragged && Math.abs(event.clientX - dragged.x) <= 3) choose({ from: dragged.at - half, to: dragged.at + half });
    dragged = null;
  });
  strip.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key], range = chosen();
    if (event.key === "Enter") open(range);
    else if (by && event.shiftKey) choose({ from: range.from, to: Math.max(range.from + SECOND, range.to + by * 10 * SECOND) });
    else if (by) {
      const length = range.to - range.from, start = Math.max(now.from, Math.min(now.to - length, range.from + by * Math.max(SECOND, length / 4)));
      choose({ from: start, to: start + length });
    } else return;
    event.preventDefault();
    event.stopPropagation();
  });
  function typed() {
    const range = { from: momentOf(from.value, now), to: momentOf(to.value, now) };
    for (const [field, at] of [[from, range.from], [to, range.to]]) mark(field, "aria-invalid", Number.isNaN(at) || range.from >= range.to ? true : null);
    if (range.from < range.to) choose(range);
  }
  from.addEventListener("change", typed);
  to.addEventListener("change", typed);
  byId("window-minute").addEventListener("click", () => last(MINUTE));
  byId("window-five").addEventListener("click", () => last(5 * MINUTE));
  byId("window-all").addEventListener("click", () => choose(now));
  view.addEventListener("click", () => open(chosen()));
  for (const [which, button] of Object.entries(buttons)) button.addEventListener("click", () => compare(chosen(), which));
  new ResizeObserver(draw).observe(strip);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);

  return {
    /** The window of `id`, as the service describes it; null if there is none. */
    show(id, told) {
      hide(byId("window"), !told);
      [target, now] = [id, told];
      if (!told) return;
      if (!kept.has(id)) kept.set(id, { from: Math.max(told.from, told.to - MINUTE), to: told.to });
      show();
    },
    /** Selects the interval in the address. */
    choose(id, range) { kept.set(id, range); },
  };
}
