// The page of a profile store: turns the selection into a query, and shows the answer with its SQL.
import { address } from "./address.js";
import { ask, askText, Refusal, stored } from "./api.js";
import { byId, element, hide, mark, tell, typing } from "./dom.js";
import { session, useLink } from "./session.js";
import { NO_SIDE, questionOf, read, sqlOf, valuesOf, VIEWS, write } from "./store_address.js";
import { shareChart } from "./store_chart.js";
import { options, sideForm, sideWords } from "./store_side.js";
import { plain, prose } from "./text.js";
import { dismiss, toast } from "./toasts.js";
import { viewer } from "./viewer.js";

await useLink();

const PATIENCE_MS = 90_000, SETTLED_MS = 250, DAY = 86_400_000;
const NAMES = { flame: ["Flame graph", ""], top: ["Functions", ""], share: ["Over time", "The share of samples in certain functions, over time."], diff: ["Compare", "The difference between A and B, by share of samples."] };

// --- State
let whole = null, parts = { a: null, b: null }, opened = false;
/** The edited selection; it becomes the address when the query is run. */
let draft;
const where = address(() => { draft = adopted(where.state); render(); run(); }, { read, write });
const adopted = (state) => ({ ...state, view: state.view || "flame", look: "" });
draft = adopted(where.state);

const login = session({ letIn: begin });
function trouble(error) {
  if (error instanceof Refusal && error.status === 401) return login.needed();
  fail(error.message);
}
function fail(text) {
  mark(byId("told"), "class", "failed");
  tell(byId("told"), prose(text));
}

// --- Selectable values
const looking = { a: null, b: null };
const asked = { a: null, b: null };
/** Requests the selectable values of a side again once it has not changed for a moment. */
function look(which) {
  const path = `${stored.values}?${valuesOf(draft, which)}`;
  if (asked[which] === path) return;
  looking[which]?.abort();
  const mine = looking[which] = new AbortController();
  asked[which] = path;
  setTimeout(async () => {
    if (mine.signal.aborted) return;
    try {
      const part = await ask(path, { signal: mine.signal, patience: PATIENCE_MS });
      if (mine.signal.aborted) return;
      parts[which] = part;
      tell(byId("state"), "");
      render();
    } catch (error) {
      if (mine.signal.aborted) return;
      asked[which] = null;
      if (error instanceof Refusal && error.status === 401) login.needed();
      // Do not report errors of a condition that is still being typed.
      else tell(byId("state"), error instanceof Refusal && [400, 422].includes(error.status) && draft[which].where ? "" : prose(error.message));
    }
  }, opened ? SETTLED_MS : 0);
}

// --- The form
const sides = Object.fromEntries(["a", "b"].map((which) => [which, sideForm(byId(`side-${which}`), which, (side) => change({ [which]: side }))]));
function change(more) {
  draft = { ...draft, ...more };
  render();
}
const views = VIEWS.map((view) => {
  const made = element("button", { type: "button", textContent: NAMES[view][0] });
  made.dataset.view = view;
  made.addEventListener("click", () => {
    // B starts as a copy of A, for the user to change.
    const fresh = view === "diff" && write({ ...draft, view, a: NO_SIDE }) === write({ ...draft, view, a: NO_SIDE, b: NO_SIDE });
    change({ view, ...fresh ? { b: { ...draft.a, labels: { ...draft.a.labels } } } : {} });
  });
  return made;
});
byId("views").append(...views);
for (const key of ["event", "measure", "min", "function", "by", "every"]) byId(key).addEventListener(byId(key).tagName === "INPUT" ? "input" : "change", () => change({ [key]: byId(key).value.trim() }));
byId("lines").addEventListener("change", () => change({ lines: byId("lines").checked ? "1" : "" }));

function render() {
  const { view } = draft, comparing = view === "diff";
  document.body.dataset.pane = "store";
  for (const made of views) mark(made, "aria-pressed", made.dataset.view === view);
  tell(byId("view-words"), NAMES[view][1]);
  hide(byId("view-words"), !NAMES[view][1]);
  tell(byId("side-a").querySelector("legend"), comparing ? "A, before" : "Samples");
  hide(byId("side-b"), !comparing);
  for (const which of comparing ? ["a", "b"] : ["a"]) {
    sides[which].show(draft[which], whole, parts[which]);
    if (whole) look(which);
  }
  const events = parts.a?.events || [];
  options(byId("event"), [["", "automatic (CPU if recorded)"], ...events.map(({ value, samples }) => [value ?? "", `${plain(value)} (${samples.toLocaleString("en-US")})`])], draft.event);
  options(byId("by"), [["", "service"], ["day", "day"], ["event_type", "event type"], ["thread", "thread"], ...(whole?.labels || []).map((key) => [`label:${key}`, plain(key)])], draft.by);
  for (const [key, usual] of [["measure", ""], ["every", "3600"], ["min", ""], ["function", ""]]) if (document.activeElement !== byId(key)) byId(key).value = draft[key] || usual;
  byId("lines").checked = draft.lines === "1";
  byId("engine").value = draft.engine || "datafusion";
  for (const of of document.querySelectorAll(".of-share")) hide(of, view !== "share");
  hide(byId("min-field"), view !== "flame");
  hide(byId("lines-field"), view === "share");
}

// --- Queries
let running = null;
function stop() {
  running?.abort();
  running = null;
  hide(byId("stop"), true);
}
byId("stop").addEventListener("click", () => { stop(); tell(byId("told"), "Stopped."); });
byId("choice").addEventListener("submit", (event) => {
  event.preventDefault();
  if (draft.view === "share" && !draft.function) {
    tell(byId("ask-words"), "Enter a regular expression for the functions.");
    return byId("function").focus();
  }
  tell(byId("ask-words"), "");
  const before = write(where.state);
  where.go({ ...draft, look: "" });
  // Repeat the query: the store may have new data.
  if (write(where.state) === before) run();
  // On small screens the answer is below the form; scroll to it.
  if (matchMedia("(max-width: 760px)").matches) byId("answer").scrollIntoView();
});

const picture = viewer({ closed: () => fill(false), key: pictureKey, moved() {} });
function fill(on) {
  document.body.classList.toggle("whole", on);
  if (!on) byId("whole").focus({ preventScroll: true });
}
byId("whole").addEventListener("click", () => { fill(true); byId("viewer-close").focus(); });
function pictureKey(key) {
  if (key === "y") picture.share();
  else if (key === "W") fill(!document.body.classList.contains("whole"));
}

/** Runs the query in the address. */
async function run() {
  stop();
  const state = where.state;
  if (!state.view) {
    picture.hide();
    for (const id of ["rows", "as-sql"]) hide(byId(id), true);
    mark(byId("told"), "class", null);
    return tell(byId("told"), whole?.services.length === 0 ? "The store is empty. Add recordings with flightline store add." : "Select samples, then press Show.");
  }
  const mine = running = new AbortController(), more = { signal: mine.signal, patience: PATIENCE_MS };
  mark(byId("told"), "class", null);
  tell(byId("told"), "Querying the store…");
  hide(byId("stop"), false);
  try {
    await sql(state, more);
    await SHOW[state.view](state, more);
  } catch (error) {
    if (mine.signal.aborted) return;
    picture.hide();
    document.body.classList.remove("whole");
    hide(byId("rows"), true);
    trouble(error);
  } finally {
    if (running === mine) stop();
  }
}
async function page(path, title, state, more) {
  const { told } = await ask(`${path}?${questionOf(state)}&told=1`, more);
  hide(byId("rows"), true);
  tell(byId("told"), prose(told.join("\n")));
  picture.show({
    title, path: `${path}?${questionOf(state)}`, look: state.look, address: (look) => where.link({ look }),
    links: [element("a", { href: `${path}?${questionOf(state)}`, textContent: "Save", download: "" })],
  });
}
async function rows(path, state, more, made) {
  const children = made(await askText(`${path}?${questionOf(state)}`, more)), { told } = await ask(`${path}?${questionOf(state)}&told=1`, more);
  picture.hide();
  document.body.classList.remove("whole");
  tell(byId("told"), prose(told.join("\n")));
  byId("rows").replaceChildren(...children);
  hide(byId("rows"), false);
}
const SHOW = {
  flame: (state, more) => page(stored.flame, sideWords(state.a), state, more),
  diff: (state, more) => page(stored.diff, `${sideWords(state.a)} → ${sideWords(state.b)}`, state, more),
  top: (state, more) => rows(stored.top, state, more, (text) => [element("pre", { textContent: text, tabIndex: 0 })]),
  share: (state, more) => rows(stored.share, state, more, (text) => shareChart(text, byId("as-sql").clientWidth)),
};

// --- SQL
async function sql(state, more) {
  const which = state.view === "diff" ? ["a", "b"] : ["a"], texts = [];
  for (const side of which) texts.push(await askText(`${stored.sql}?${sqlOf(state, side)}`, more));
  tell(byId("sql"), texts.length > 1 ? texts.map((text, i) => `-- ${"AB"[i]}\n${text.trim()};\n`).join("\n") : texts[0]);
  const of = state.view === "flame" ? "" : state.view === "diff" ? "The boxes of both sides. " : "The boxes of the flame graph of what is chosen. ";
  tell(byId("as-sql-words"), of + (state.event ? "" : "It adds up samples of all types, as none is chosen; the page shows those of one."));
  hide(byId("as-sql"), false);
}
byId("engine").addEventListener("change", async () => {
  const engine = byId("engine").value === "datafusion" ? "" : byId("engine").value;
  draft = { ...draft, engine };
  // Keep the view; only the SQL changes.
  where.quietly({ engine });
  try { await sql(where.state, { patience: PATIENCE_MS }); } catch (error) { toast(error.message); }
});
byId("copy").addEventListener("click", async () => {
  const selection = getSelection();
  try {
    await navigator.clipboard.writeText(byId("sql").textContent);
    toast("SQL copied.");
  } catch {
    selection.selectAllChildren(byId("sql"));
    byId("sql").focus();
    toast("The SQL is selected: copy it with Ctrl-C.");
  }
});

document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.altKey || event.ctrlKey || event.metaKey || document.querySelector("dialog[open]")) return;
  if (typing()) return;
  if (event.key === "Escape") {
    if (document.body.classList.contains("whole")) fill(false);
    else if (running) byId("stop").click();
    else dismiss();
  } else if (!byId("viewer").hidden) pictureKey(event.key);
});

// --- Start
/** Initial selection: the latest day of the service with the most samples. */
function usual() {
  const [service] = whole.services, [day] = whole.days;
  const begin = Date.parse(`${day?.value}T00:00:00Z`), time = Number.isFinite(begin) ? { from: String(begin), to: String(begin + DAY) } : {};
  return { ...draft, a: { ...NO_SIDE, service: whole.services.length === 1 ? service.value : "", ...time } };
}
async function begin() {
  try { whole = await ask(stored.whole, { patience: PATIENCE_MS }); } catch (error) { return trouble(error); }
  if (!where.state.view && write(draft) === write(adopted(read("")))) draft = usual();
  render();
  opened = true;
  run();
}
render();
begin();
