// The store query in the URL fragment, with the parameter names of the service.

const SIDE = ["service", "from", "to", "where"], ONE = ["event", "measure", "min", "lines", "function", "by", "every"];
export const VIEWS = ["flame", "top", "share", "diff"], OWN = ["engine", "look"];
const LONGEST = 8000;

export const NO_SIDE = { service: "", from: "", to: "", where: "", labels: {} };
const isTime = (text) => /^\d{1,15}$/.test(text);

/** A side: `labels` maps keys to values; null selects samples without the label. */
function readSide(parts, prefix) {
  const side = { ...NO_SIDE, labels: {} };
  for (const key of SIDE) side[key] = parts.get(prefix + key) ?? "";
  for (const key of ["from", "to"]) if (!isTime(side[key])) side[key] = "";
  for (const each of parts.getAll(`${prefix}label`)) {
    const at = each.indexOf("=");
    if (at > 0) side.labels[each.slice(0, at)] = each.slice(at + 1);
  }
  for (const key of parts.getAll(`${prefix}unset`)) if (key) side.labels[key] = null;
  return side;
}
function writeSide(parts, prefix, side) {
  for (const key of SIDE) if (side[key] !== "") parts.append(prefix + key, side[key]);
  for (const [key, value] of Object.entries(side.labels)) parts.append(prefix + (value === null ? "unset" : "label"), value === null ? key : `${key}=${value}`);
}

export function read(text) {
  const parts = new URLSearchParams(text.replace(/^#/, "").slice(0, LONGEST)), view = parts.get("view");
  const state = { view: VIEWS.includes(view) ? view : "", a: readSide(parts, ""), b: readSide(parts, "b.") };
  for (const key of [...ONE, ...OWN]) state[key] = parts.get(key) ?? "";
  return state;
}

export function write(state) {
  const parts = query(state, [...ONE, ...OWN]);
  if (state.view) parts.set("view", state.view);
  return "#" + parts;
}

function query(state, keys) {
  const parts = new URLSearchParams();
  writeSide(parts, "", state.a);
  if (state.view === "diff") writeSide(parts, "b.", state.b);
  for (const key of keys) if (state[key]) parts.set(key, state[key]);
  return parts;
}

const OF_VIEW = { flame: ["event", "measure", "lines", "min"], top: ["event", "measure", "lines"], share: ["event", "measure", "function", "by", "every"], diff: ["event", "measure", "lines"] };

/** Query string of a query. */
export const questionOf = (state) => String(query(state, OF_VIEW[state.view]));

/** Query string for the SQL of one side; `min` applies to flame graphs. */
export function sqlOf(state, which) {
  const parts = query({ ...state, view: "flame", a: state[which] }, ["event", "measure", ...state.view === "flame" ? ["min"] : []]);
  if (state.engine) parts.set("engine", state.engine);
  return String(parts);
}

/** Query string for the selectable values of one side. */
export const valuesOf = (state, which) => String(query({ ...state, view: "flame", a: state[which] }, ["event"]));
