// The list of targets: one cursor, any number selected.
import { byId, element, hide, mark, tell } from "./dom.js";
import { grouped, groupings, inOrder, matching } from "./select.js";
import { outline, risen, timesText } from "./load.js";
import { count, labelsOf, moment, plain } from "./text.js";
import { windowed } from "./windowed.js";

const ROW = 46, HEAD = 30;

/** `choose(ids, open)` selects targets and with `open` shows them; `filter(change)` changes the search text or the grouping. */
export function targetList({ choose, filter, entered }) {
  const scroller = byId("targets"), search = byId("search"), by = byId("group-by");
  let given = null, all = [], offered = [], listed = [], items = [], chosen = new Set(), cursor = null, from = null, numbers = new Map();
  const list = windowed(scroller, { make: (item) => (item.head ? head() : row()), update: (made, item) => made.tell(item) });

  function row() {
    const box = element("span", { className: "box" }), dot = element("span", { className: "dot" }), name = element("bdi", { className: "name" });
    const busy = element("span", { className: "busy" }), pid = element("span", { className: "pid" }), under = element("span", { className: "under" });
    const spark = byId("spark").content.firstElementChild.cloneNode(true);
    const made = element("div", { className: "target" }, box, dot, name, busy, pid, under, spark);
    made.setAttribute("role", "option");
    box.setAttribute("aria-hidden", "true");
    let at = null;
    made.tell = ({ target, index }) => {
      at = target;
      const gone = target.state === "GONE", text = plain(target.name), labels = labelsOf(target.labels).map(([key, value]) => `${key}=${value}`);
      if (!numbers.has(target.id)) numbers.set(target.id, `target-${numbers.size}`);
      mark(made, "id", numbers.get(target.id));
      const rise = gone ? null : risen(target.load);
      mark(made, "class", "target" + (gone ? " gone" : "") + (rise ? " risen" : "") + (target.id === cursor ? " current" : "") + (chosen.has(target.id) ? " chosen" : ""));
      mark(made, "aria-selected", chosen.has(target.id));
      mark(made, "aria-setsize", listed.length);
      mark(made, "aria-posinset", index + 1);
      tell(name, text || "(no name)");
      tell(pid, String(target.pid));
      tell(busy, target.run ? "recording" : gone ? "gone" : rise ? `↑ ${timesText(rise.times)}` : "");
      mark(busy, "class", rise && !target.run ? "busy risen" : "busy");
      hide(spark, gone || !target.load);
      if (target.load && !gone) mark(spark.firstElementChild, "d", outline(target.load));
      mark(dot, "class", "dot " + (gone ? "gone" : target.run ? "running" : "live"));
      // The group's heading has its own value; the title has the keys.
      const values = Object.keys(target.labels || {}).filter((key) => `label:${key}` !== by.value).map((key) => plain(target.labels[key]));
      tell(under, [by.value === "host" ? "" : plain(target.host), ...values].filter(Boolean).join(" · "));
      mark(made, "title", [text, `pid ${target.pid} on ${plain(target.host)}`, gone ? `gone: ${plain(target.gone) || "its agent stopped responding"}` : "live", ...(rise ? [`CPU time ${timesText(rise.times)} since ${moment(rise.since)}`] : []), ...labels].join("\n"));
    };
    made.addEventListener("mousedown", (event) => { if (event.shiftKey) event.preventDefault(); });
    made.addEventListener("click", (event) => {
      if (event.shiftKey) range(at.id);
      else if (event.ctrlKey || event.metaKey || event.target === box) toggle(at.id);
      else pick(at.id);
    });
    return made;
  }
  function head() {
    const title = element("bdi", { className: "title" }), words = element("span", { className: "words" });
    const whole = element("button", { type: "button", className: "link", textContent: "select", tabIndex: -1 });
    const made = element("div", { className: "group-head" }, title, words, whole);
    made.setAttribute("role", "presentation");
    let members = [];
    made.tell = (item) => {
      members = item.members;
      tell(title, item.title);
      const gone = members.filter(({ state }) => state === "GONE").length;
      tell(words, `${members.length - gone} live${gone ? `, ${gone} gone` : ""}`);
    };
    whole.addEventListener("click", () => choose(liveOf(members)));
    return made;
  }
  const liveOf = (targets) => targets.filter(({ state }) => state !== "GONE").map(({ id }) => id);

  function pick(id) {
    cursor = from = id;
    choose([id], true);
  }
  function toggle(id) {
    cursor = from = id;
    choose(chosen.has(id) ? [...chosen].filter((other) => other !== id) : [...chosen, id]);
  }
  function range(to) {
    const [a, b] = [listed.findIndex(({ id }) => id === from), listed.findIndex(({ id }) => id === to)].sort((x, y) => x - y);
    cursor = to;
    choose(a < 0 ? [to] : listed.slice(a, b + 1).map(({ id }) => id));
  }
  const place = () => listed.findIndex(({ id }) => id === cursor);
  function moveTo(index) {
    if (!listed.length) return;
    cursor = listed[Math.max(0, Math.min(listed.length - 1, index))].id;
    draw();
    list.reveal(items.findIndex((item) => item.key === cursor));
  }
  function draw() {
    list.redraw();
    const at = numbers.get(cursor);
    mark(scroller, "aria-activedescendant", at && byId(at) ? at : null);
  }

  /** Returns the matching targets, grouped. */
  function lay() {
    listed = [];
    items = [];
    for (const [title, members] of grouped(matching(all, search.value), by.value)) {
      if (title) items.push({ key: `head\u0000${title}`, head: true, height: HEAD, title, members });
      for (const target of members) {
        items.push({ key: target.id, height: ROW, target, index: listed.length });
        listed.push(target);
      }
    }
    const gone = all.filter(({ state }) => state === "GONE").length, whole = `${count(all.length - gone, "live target")}${gone ? `, ${gone} gone` : ""}`;
    tell(byId("count-words"), search.value.trim() ? `${listed.length} of ${count(all.length, "target")}` : all.length ? whole : "No targets yet");
    const live = liveOf(listed);
    hide(byId("choose-all"), !search.value.trim() || live.length < 2);
    tell(byId("choose-all"), `Choose ${live.length}`);
    list.show(items);
    draw();
  }

  search.addEventListener("input", () => { lay(); filter({ q: search.value }); });
  search.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && search.value) {
      search.value = "";
      lay();
      filter({ q: "" });
    } else if (event.key === "ArrowDown" || event.key === "Enter" || event.key === "Escape") {
      scroller.focus();
      if (event.key !== "Escape" && place() < 0) moveTo(0);
      if (event.key === "Enter" && cursor !== null) entered(cursor);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  });
  by.addEventListener("change", () => { lay(); filter({ by: by.value }); });
  byId("choose-all").addEventListener("click", () => choose(liveOf(listed)));
  scroller.addEventListener("focus", () => { if (place() < 0) moveTo(Math.max(0, listed.findIndex(({ id }) => chosen.has(id)))); });

  return {
    show(targets, ids, { q, by: group }) {
      if (targets !== given) [given, all, offered] = [targets, inOrder(targets), groupings(targets)];
      chosen = new Set(ids);
      if (group && !offered.some(([value]) => value === group) && !all.length) offered.push([group, "…"]);
      if (by.dataset.of !== JSON.stringify(offered)) {
        by.dataset.of = JSON.stringify(offered);
        by.replaceChildren(...offered.map(([value, text]) => element("option", { value, textContent: text })));
      }
      if (document.activeElement !== by) by.value = offered.some(([value]) => value === group) ? group : "";
      if (document.activeElement !== search && search.value !== q) search.value = q;
      lay();
      // Targets from the address, selected before the list was loaded.
      if (cursor === null && listed.some(({ id }) => chosen.has(id))) {
        cursor = from = listed.find(({ id }) => chosen.has(id)).id;
        list.reveal(items.findIndex((item) => item.key === cursor), true);
        draw();
      }
    },
    /** Handles a key for the list; returns true if it did. */
    key(event) {
      const at = place(), step = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1, PageDown: list.page, PageUp: -list.page }[event.key];
      if (step) moveTo(at < 0 ? 0 : at + step);
      else if (event.key === "Home") moveTo(0);
      else if (event.key === "End") moveTo(listed.length - 1);
      else if ((event.key === "x" || event.key === " ") && at >= 0) toggle(cursor);
      else if (event.key === "Enter" && at >= 0) entered(cursor);
      else return false;
      return true;
    },
    focus: () => scroller.focus({ preventScroll: true }),
    get cursor() { return cursor; },
    pick,
  };
}
