// Selection of samples: service, time, labels and a condition, each with its possible values.
import { arrange, element, hide, mark, tell } from "./dom.js";
import { count, plain } from "./text.js";

const DAY = 86_400_000;
// Values of a list: "" means any, "-" none, and text after "=" is the value itself.
const ANY = "", NONE = "-";

const many = (samples) => samples.toLocaleString("en-US");
const atOf = (ms) => ms === "" ? "" : new Date(Number(ms)).toISOString().slice(0, 19);
const msOf = (text) => {
  const ms = text ? Date.parse(text + "Z") : NaN;
  return ms >= 0 ? String(ms) : "";
};

/** Updates options only if they changed; keeps the selected one in the list. */
export function options(list, all, chosen) {
  const known = all.some(([value]) => value === chosen) ? all : [...all, [chosen, `${plain(chosen.replace(/^=/, ""))} (0)`]];
  const text = JSON.stringify(known);
  if (list.dataset.of !== text) {
    list.dataset.of = text;
    list.replaceChildren(...known.map(([value, words, off]) => element("option", { value, textContent: words, disabled: !!off })));
  }
  list.value = chosen;
}

/** The fields of a side; calls `changed(side)` on each change. */
export function sideForm(into, name, changed) {
  let side = null, offered = null;
  const field = (id, words, made, wide) => {
    made.id = `${name}-${id}`;
    into.append(element("div", { className: wide ? "field wide" : "field" }, element("label", { htmlFor: made.id, textContent: words }), made));
    return made;
  };
  const list = () => element("select"), time = () => Object.assign(element("input", { type: "datetime-local", step: "1" }));
  const service = field("service", "Service", list(), true), day = field("day", "Day (UTC)", list(), true);
  const from = field("from", "From (UTC)", time()), to = field("to", "Until (UTC)", time());
  const labels = element("div", { className: "labels", role: "group", ariaLabel: "Labels" }), lists = new Map();
  into.append(labels);
  const where = field("where", "Additional SQL condition", element("input", { type: "text", spellcheck: false, autocapitalize: "off", placeholder: "thread LIKE 'worker%'" }), true);
  const words = element("p", { className: "side-words" });
  words.setAttribute("role", "status");
  into.append(words);

  const change = (more) => changed({ ...side, ...more });
  service.addEventListener("change", () => change({ service: service.value }));
  day.addEventListener("change", () => {
    if (day.value === "other") return;
    const begin = Date.parse(day.value + "T00:00:00Z");
    change(day.value ? { from: String(begin), to: String(begin + DAY) } : { from: "", to: "" });
  });
  for (const [key, input] of [["from", from], ["to", to]]) input.addEventListener("change", () => change({ [key]: msOf(input.value) }));
  where.addEventListener("input", () => change({ where: where.value.trim() }));

  /** The selected day, if the time range is one day. */
  function dayOf({ from, to }) {
    if (from === "" && to === "") return "";
    return from !== "" && Number(to) - Number(from) === DAY && Number(from) % DAY === 0 ? atOf(from).slice(0, 10) : "other";
  }
  function showLabels() {
    const all = new Map((offered?.labels || []).map((label) => [label.key, label]));
    for (const key of Object.keys(side.labels)) if (!all.has(key)) all.set(key, { key, values: [], more: false });
    const rows = [];
    for (const [key, { values, more }] of all) {
      if (!lists.has(key)) {
        const made = list(), id = `${name}-label-${key}`;
        made.id = id;
        made.dataset.label = key;
        made.addEventListener("change", () => {
          const { [key]: _, ...others } = side.labels;
          change({ labels: made.value === ANY ? others : { ...others, [key]: made.value === NONE ? null : made.value.slice(1) } });
        });
        lists.set(key, [element("label", { htmlFor: id, textContent: plain(key) }), made]);
      }
      const row = lists.get(key), is = side.labels[key], chosen = is === undefined ? ANY : is === null ? NONE : `=${is}`;
      const offers = values.map(({ value, samples }) => value === null ? [NONE, `– not set – (${many(samples)})`] : [`=${value}`, `${plain(value) || "– empty –"} (${many(samples)})`]);
      options(row[1], [[ANY, "any"], ...offers, ...more ? [["…", "others: use a condition", true]] : []], chosen);
      mark(row[1], "class", chosen === ANY ? null : "set");
      rows.push(...row);
    }
    arrange(labels, rows);
  }

  return {
    /** `whole` lists the values in the store, `part` those within this selection; null if not loaded. */
    show(now, whole, part) {
      [side, offered] = [now, part];
      options(service, [["", "all services"], ...(whole?.services || []).map(({ value, samples }) => [value, `${plain(value)} (${many(samples)})`])], side.service);
      const days = (part || whole)?.days || [], chosen = dayOf(side);
      options(day, [["", "any time"], ...chosen === "other" ? [["other", "custom range"]] : [], ...days.map(({ value, samples }) => [value, `${plain(value)} (${many(samples)})`])], chosen);
      for (const [input, ms] of [[from, side.from], [to, side.to]]) if (document.activeElement !== input && input.value !== atOf(ms) && msOf(input.value) !== ms) input.value = atOf(ms);
      const wrong = side.from !== "" && side.to !== "" && Number(side.from) >= Number(side.to);
      for (const input of [from, to]) mark(input, "aria-invalid", wrong || null);
      if (document.activeElement !== where && where.value.trim() !== side.where) where.value = side.where;
      showLabels();
      tell(words, wrong ? "The end is before the start." : part ? count(part.samples, "sample") + " selected" : "");
    },
    hide: (hidden) => hide(into, hidden),
  };
}

/** Describes the selection for people. */
export function sideWords(side) {
  const labels = Object.entries(side.labels).map(([key, value]) => value === null ? `no ${key}` : `${key}=${value}`);
  const time = side.from === "" && side.to === "" ? "" : [side.from, side.to].map((ms) => ms === "" ? "…" : atOf(ms).replace("T", " ").replace(/ 00:00:00$/, "")).join(" – ");
  return [side.service || "all services", ...labels, time, side.where].filter(Boolean).map(plain).join(" · ");
}
