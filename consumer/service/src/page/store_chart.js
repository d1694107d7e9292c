// Functions' shares over time: a line chart and a table.
import { byId, element } from "./dom.js";
import { plain } from "./text.js";

const LINES = 8, MOST_ROWS = 2000, WIDEST = 900, NARROWEST = 300, HIGH = 260, LEFT = 44, RIGHT = 12, TOP = 10, BOTTOM = 24;
// Read the namespace from an element, since its URL in the source would look like an external request.
const SPACE = byId("svg").content.firstElementChild.namespaceURI;

/** Parses CSV (RFC 4180) into rows of strings. */
export function csv(text) {
  const rows = [];
  let row = [], field = "", quoted = false;
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    if (quoted) {
      if (c !== '"') field += c;
      else if (text[i + 1] === '"') field += text[++i];
      else quoted = false;
    } else if (c === '"') quoted = true;
    else if (c === "," || c === "\n") {
      row.push(field);
      field = "";
      if (c === "\n") row = (rows.push(row), []);
    } else if (c !== "\r") field += c;
  }
  return field || row.length ? [...rows, [...row, field]] : rows;
}

/** Returns `{ groups: [[name, [{ at, percent, of, total }]]], most }`, groups with the most samples first. */
export function sharesOf(text) {
  const groups = new Map();
  for (const [begin, name, of, total, percent] of csv(text).slice(1)) {
    const each = { at: Number(begin) * 1000, of: Number(of), total: Number(total), percent: Number(percent) };
    if (!Object.values(each).every(Number.isFinite)) continue;
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(each);
  }
  const weight = ([, points]) => points.reduce((sum, { total }) => sum + total, 0);
  return [...groups].sort((a, b) => weight(b) - weight(a));
}

function svg(name, marks, ...children) {
  const made = document.createElementNS(SPACE, name);
  for (const [key, value] of Object.entries(marks)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}
const called = (name) => plain(name) || "– not set –";
const iso = (ms) => new Date(ms).toISOString().slice(0, 19).replace("T", " ");

/** Returns the elements of the chart for a width. */
export function shareChart(text, room) {
  const wide = Math.max(NARROWEST, Math.min(WIDEST, room));
  const groups = sharesOf(text), drawn = groups.slice(0, LINES), all = groups.flatMap(([, points]) => points);
  if (!all.length) return [element("p", { textContent: "No samples match." })];
  const times = all.map(({ at }) => at), first = times.reduce((a, b) => Math.min(a, b)), last = times.reduce((a, b) => Math.max(a, b));
  const highest = all.reduce((most, { percent }) => Math.max(most, percent), 0), top = [1, 2, 5, 10, 20, 50, 100].find((each) => each >= highest) || 100;
  const x = (at) => LEFT + (wide - LEFT - RIGHT) * (last > first ? (at - first) / (last - first) : 0.5);
  const y = (percent) => TOP + (HIGH - TOP - BOTTOM) * (1 - percent / top);
  const picture = svg("svg", { class: "chart", viewBox: `0 0 ${wide} ${HIGH}`, role: "img", "aria-label": "Share of the functions over time; the table below has the same values" });
  for (const part of [0, 0.5, 1]) {
    const at = y(top * part);
    picture.append(svg("line", { class: "grid", x1: LEFT, x2: wide - RIGHT, y1: at, y2: at }), svg("text", { x: LEFT - 6, y: at + 4, "text-anchor": "end" }, `${top * part} %`));
  }
  picture.append(svg("text", { x: LEFT, y: HIGH - 6 }, iso(first)), ...last > first ? [svg("text", { x: wide - RIGHT, y: HIGH - 6, "text-anchor": "end" }, `${iso(last)} UTC`)] : []);
  drawn.forEach(([name, points], i) => {
    const sorted = [...points].sort((a, b) => a.at - b.at);
    picture.append(svg("polyline", { class: `line s${i}`, fill: "none", points: sorted.map(({ at, percent }) => `${x(at).toFixed(1)},${y(percent).toFixed(1)}`).join(" ") }));
    for (const { at, percent, of, total } of sorted) picture.append(svg("circle", { class: `s${i}`, cx: x(at).toFixed(1), cy: y(percent).toFixed(1), r: 3 }, svg("title", {}, `${called(name)}, ${iso(at)}: ${percent.toFixed(2)} % (${of} of ${total})`)));
  });
  const legend = element("ul", { className: "legend" }, ...drawn.map(([name], i) => element("li", {}, svg("svg", { viewBox: "0 0 12 12", "aria-hidden": "true" }, svg("rect", { class: `s${i}`, width: 12, height: 12 })), called(name))));
  const rows = groups.flatMap(([name, points]) => points.map((point) => ({ name, ...point }))).sort((a, b) => a.at - b.at);
  const cells = (kind, texts) => element("tr", {}, ...texts.map((textContent, i) => element(kind, { textContent, className: i < 2 ? "text" : "" })));
  const table = element("table", { className: "shares" }, element("thead", {}, cells("th", ["Begin (UTC)", plain(csv(text)[0]?.[1]), "of the functions", "all", "share"])),
    element("tbody", {}, ...rows.slice(0, MOST_ROWS).map(({ at, name, of, total, percent }) => cells("td", [iso(at), called(name), of.toLocaleString("en-US"), total.toLocaleString("en-US"), `${percent.toFixed(2)} %`]))));
  const left = [groups.length > LINES && `${groups.length - LINES} more groups are only in the table.`, rows.length > MOST_ROWS && `${rows.length - MOST_ROWS} more rows are not shown.`].filter(Boolean);
  return [picture, legend, ...left.length ? [element("p", { textContent: left.join(" ") })] : [], table];
}
