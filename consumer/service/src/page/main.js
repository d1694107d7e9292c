// The page: combines the service's answers with the state in the address, and passes them to the views.
import { aboutLine } from "./about.js";
import { address } from "./address.js";
import { adoption } from "./adopt.js";
import { ask, paths, Refusal, Unreachable } from "./api.js";
import { basket } from "./basket.js";
import { byId, element, hide, mark, tell, typing } from "./dom.js";
import { runForm } from "./form.js";
import { actionOf, tellKeys } from "./keys.js";
import { eventsOf, FORMATS, ownEvent, STATUS } from "./modes.js";
import { liveView } from "./live.js";
import { risen, timesText } from "./load.js";
import { poller } from "./poll.js";
import { fileLinks } from "./row.js";
import { runTable } from "./runs.js";
import { session, useLink } from "./session.js";
import { targetList } from "./targets.js";
import { moment, plain, prose, seconds } from "./text.js";
import { dismiss, toast } from "./toasts.js";
import { versionsForm } from "./versions.js";
import { viewer } from "./viewer.js";
import { windowName, windowStrip } from "./window.js";

await useLink();

const REMEMBERED = 100, WINDOW_MS = 5000, LOADS_MS = 8000, EXPECTED_MS = 15_000, LIVE_SECONDS = 300;

// --- State
let targets = [], limits = null, profiling = null, failing = null, enter = false;
// A process that was just adopted: its PID, and until when to wait for it.
let expected = { pid: 0, until: 0 };
// On small screens: true while targets are being selected.
let choosing = false;
// Load is polled less often than targets.
let loads = { asked: 0, of: new Map() };
const lists = new Map(), singles = new Map(), windows = new Map();
const where = address(() => {
  render();
  if (asked !== wanted()) polling.anew();
});

/** Key of the displayed list of runs. */
const scope = ({ group, targets: ids } = where.state) => group ? `group ${group}` : ids.length === 1 ? `target ${ids[0]}` : "all";
function pathOf({ group, targets: ids }) {
  return group ? paths.group(group) : ids.length === 1 ? paths.runsOf(ids[0]) : paths.runs;
}
function remember(map, key, value) {
  map.delete(key);
  map.set(key, value);
  if (map.size > REMEMBERED) map.delete(map.keys().next().value);
}
const chosen = () => where.state.targets.map((id) => targets.find((target) => target.id === id)).filter(Boolean);
const idOf = (side) => side.startsWith("run:") ? side.slice(4) : "";
/** The displayed target, if it has a continuous profile. */
function alwaysOn({ group, targets: ids }) {
  const [id, ...others] = group ? [] : ids;
  return id && !others.length && targets.find((target) => target.id === id)?.continuous ? id : null;
}
const partOf = ({ window: text }) => {
  const [from, to] = text.split("-").map(Number);
  return { from, to };
};
const refOf = (id, { from, to }) => `window:${id}:${from}:${to}`;
/** Key of the data to request; the search text does not matter. */
const wanted = (state = where.state) => JSON.stringify([scope(state), looked(state), alwaysOn(state)]);
let asked = "";
/** The displayed runs. */
const looked = ({ run, before, after }) => [run, idOf(before), idOf(after)].filter(Boolean);
/** Host and PID of a run's target if known, since names are not unique. */
function placeOf(run) {
  const target = targets.find(({ id }) => id === run.target);
  return target ? `${target.pid}${target.host ? ` on ${plain(target.host)}` : ""}` : "";
}
const nameOf = (run) => [plain(run.targetName), placeOf(run), plain(run.mode), moment(run.triggerTime)].filter(Boolean).join(" · ");
const known = (id) => lists.get(scope())?.runs.find((run) => run.id === id) || singles.get(id)?.run;

function shownRuns() {
  const list = lists.get(scope());
  if (!list) return [];
  const ids = new Set(where.state.targets);
  return !where.state.group && ids.size > 1 ? list.runs.filter(({ target }) => ids.has(target)) : list.runs;
}

// --- Polling
const settle = (promise) => promise.then((value) => ({ value }), (error) => ({ error }));

async function poll(signal) {
  const state = where.state, key = scope(state);
  const open = looked(state);
  asked = wanted(state);
  const now = Date.now(), busy = !(now - loads.asked < LOADS_MS);
  const going = alwaysOn(state), due = going && !(Date.now() - windows.get(going)?.asked < WINDOW_MS);
  const [all, runs, kept, ...single] = await Promise.all([
    settle(ask(busy ? paths.loads : paths.targets, { signal })), settle(ask(pathOf(state), { signal })), due ? settle(ask(paths.window(going), { signal })) : {},
    ...open.filter((id) => !lists.get(key)?.runs.some((run) => run.id === id)).map((id) => settle(ask(paths.run(id), { signal })).then((result) => ({ ...result, id }))),
  ]);
  if (signal.aborted) return true;
  let trouble = null;
  const no = (error, status) => error instanceof Refusal && error.status === status;
  for (const { error } of [all, runs, kept, ...single]) if (no(error, 401)) {
    polling.stop();
    login.needed();
    return true;
  }
  if (all.value) {
    ({ targets, limits, profiling } = { targets: all.value.targets || [], limits: all.value.limits, profiling: all.value.profiling !== false });
    if (busy) loads = { asked: now, of: new Map(targets.map(({ id, load }) => [id, load])) };
    else for (const target of targets) target.load = loads.of.get(target.id);
    local.offer(all.value.local === true);
    hide(byId("store-open"), all.value.store !== true);
  }
  else if (no(all.error, 404)) profiling = false;
  else trouble = all.error;
  if (runs.value) remember(lists, key, { runs: runs.value.profilingList || runs.value.runs || [] });
  else if (no(runs.error, 404)) remember(lists, key, { runs: [], missing: runs.error.message });
  else trouble ||= runs.error;
  if (kept.value) remember(windows, going, { asked: Date.now(), told: kept.value });
  else if (no(kept.error, 404)) windows.delete(going);
  else if (kept.error) trouble ||= kept.error;
  for (const { id, value, error } of single) {
    if (value) remember(singles, id, { run: value });
    else if (no(error, 404)) remember(singles, id, { missing: error.message });
    else trouble ||= error;
  }
  failing = trouble && { since: failing?.since ?? Date.now(), error: trouble };
  render();
  // The first answer may show what else to request.
  if (!trouble && asked !== wanted()) polling.anew();
  return !trouble;
}
const polling = poller({
  ask: poll,
  busy: () => targets.some(({ run }) => run) || shownRuns().some(({ status }) => status === "RUNNING")
    || Date.now() < expected.until && !targets.some(({ pid, state }) => pid === expected.pid && state === "LIVE"),
});

// --- Actions
/** Runs an action and shows the service's message if it fails; returns true on success. */
async function doing(work) {
  try { await work(); } catch (error) {
    if (error instanceof Refusal && error.status === 401) login.needed();
    else toast(error.message);
    return false;
  } finally { polling.anew(); }
  return true;
}
/** Updates runs in all lists that contain them. */
function take(runs) {
  for (const run of runs) {
    for (const [key, list] of lists) if (key === "all" || key === `target ${run.target}` || run.group && key === `group ${run.group}`) {
      const at = list.runs.findIndex(({ id }) => id === run.id);
      if (at < 0) list.runs.unshift(run);
      else list.runs[at] = run;
    }
    const target = targets.find(({ id }) => id === run.target);
    if (target && run.status === "RUNNING") target.run = run.id;
    else if (target?.run === run.id) target.run = null;
  }
  render();
}
async function start(request) {
  const ids = where.state.targets;
  await doing(async () => {
    if (ids.length === 1) take([await ask(paths.runsOf(ids[0]), { method: "POST", body: request })]);
    else take((await ask(paths.runs, { method: "POST", body: { targets: ids, ...request } })).runs);
  });
}
const cancel = (run) => doing(async () => {
  const now = await ask(paths.cancel(run.id), { method: "POST" });
  if (now) take([now]);
});
const remove = (run) => doing(async () => {
  await ask(paths.run(run.id), { method: "DELETE" });
  for (const list of lists.values()) list.runs = list.runs.filter(({ id }) => id !== run.id);
  pair.drop(`run:${run.id}`);
  render();
});
const forget = (target) => doing(async () => {
  await ask(paths.target(target.id), { method: "DELETE" });
  targets = targets.filter(({ id }) => id !== target.id);
  where.go({ targets: [] });
});
function cancelCurrent() {
  const [only, ...others] = chosen(), row = table.current;
  if (row?.run().status === "RUNNING") row.cancel();
  else if (only && !others.length) table.rows.find((each) => each.run().status === "RUNNING")?.cancel();
}

// --- Rendering
const NOTHING = { run: "", window: "", label: "", live: "", look: "", event: "", before: "", after: "" };
function choose(ids, open = false) {
  choosing = !open;
  where.go({ targets: ids, group: "", ...NOTHING }, open);
}
const list = targetList({
  choose, filter: (change) => where.go(change, false),
  entered(id) {
    enter = true;
    if (scope() === `target ${id}`) render();
    else choose([id], true);
  },
});
const about = aboutLine({ forget });
const form = runForm({ start, problem: toast });
const pair = basket({ changed: () => render(), link: (before, after) => where.link({ ...NOTHING, before, after }) });
const strip = windowStrip({
  open: ({ from, to }) => where.go({ ...NOTHING, window: `${from}-${to}` }), sides: (id, range) => pair.sides(refOf(id, range)),
  compare(range, which) {
    const [id] = where.state.targets, ref = refOf(id, range);
    pair.put({ ref, name: () => sideName(ref) }, which);
  },
});
const table = runTable({
  link: (run) => where.link({ ...NOTHING, targets: where.state.targets.length || where.state.group ? where.state.targets : [run.target], run: run.id }),
  group: (run) => where.link({ ...NOTHING, targets: [], group: run.group }), open: (run) => where.link({ ...NOTHING, group: "", targets: [run.target] }),
  placeOf, cancel, remove, sides: (run) => pair.sides(`run:${run.id}`), compare: (run, which) => pair.put({ ref: `run:${run.id}`, name: () => nameOf(run) }, which),
});
const picture = viewer({ closed: close, key: pictureKey, moved: () => { if (live.on) render(); } });
const live = liveView({ redraw: () => render(), held: () => picture.held });
const together = versionsForm({
  view: (label, { from, to }) => where.go({ ...NOTHING, label, window: `${from}-${to}` }), compare: (before, after) => where.go({ ...NOTHING, before, after }),
});
byId("window-live").addEventListener("click", () => goLive());
const goLive = () => where.go({ ...NOTHING, live: String(LIVE_SECONDS) });
const login = session({ letIn: () => polling.start() });
const local = adoption({
  problem: toast,
  added(pid) {
    expected = { pid, until: Date.now() + EXPECTED_MS };
    polling.anew();
  },
});

function close() {
  const { run } = where.state;
  where.go(NOTHING);
  if (run) table.focus(run);
  else list.focus();
}
function showAbout(of) {
  const { group, targets: ids } = where.state, missing = lists.get(scope())?.missing;
  if (group) about.words("Group run", `${shownRuns().length} runs started together`);
  else if (of.length === 1 && ids.length === 1) about.target(of[0]);
  else if (ids.length === 1) about.words("Not found", profiling === null && !failing ? "…" : prose(missing || "This target no longer exists; select another one."));
  else if (ids.length) about.several(of);
  else if (targets.length || profiling === null) about.words("All targets", "Select one on the left, or several to profile them at the same time.");
  else about.words("No targets yet", `To add a program, run an agent on its machine: flightline agent --join ${new URL(".", document.baseURI).href.replace(/\/$/, "")} -p NAME`);
}
function emptyWords() {
  const list = lists.get(scope());
  if (!list) return failing ? "" : "…";
  if (where.state.targets.length) return list.missing ? "" : "No runs yet.";
  return where.state.group ? prose(list.missing || "These runs are no longer stored.") : "No runs yet.";
}
function showRuns() {
  const runs = shownRuns(), running = runs.filter(({ status }) => status === "RUNNING"), into = byId("history-actions");
  table.show(runs, { several: where.state.targets.length !== 1 || !!where.state.group, empty: emptyWords() });
  const all = into.firstElementChild || element("button", { type: "button", className: "quiet" });
  hide(all, running.length < 2);
  tell(all, `Cancel ${running.length} running`);
  all.onclick = () => { for (const run of running) cancel(run); };
  if (!all.isConnected) into.append(all);
}
/** Name of a side of a comparison. */
function sideName(ref) {
  const [, kind, id, from, to] = /^(windows?):(.*):(\d+):(\d+)$/s.exec(ref) || [], run = known(idOf(ref));
  if (kind === "windows") return `${plain(id)} · ${windowName({ from: Number(from), to: Number(to) })}`;
  if (id === undefined) return run ? nameOf(run) : plain(ref);
  return [plain(targets.find((target) => target.id === id)?.name ?? id), placeOf({ target: id }), windowName({ from: Number(from), to: Number(to) })].filter(Boolean).join(" · ");
}
const FILES = (range, fileOf, more) => FORMATS.map(([format, words]) => {
  const link = element("a", { href: fileOf(format, range, format === "jfr" ? "" : more), textContent: words, download: "" });
  link.dataset.format = format;
  return link;
});
/** An interval of a continuous profile. It stays fixed, however the window advances, until another one is selected. */
function showWindow(id, range, goesOn = false) {
  const { told } = windows.get(id) || {}, length = range.to - range.from, { event, look } = where.state;
  const at = (from) => ({ live: "", look: "", window: `${Math.round(from)}-${Math.round(from + length)}` });
  const more = event ? `&event=${encodeURIComponent(event)}` : "", fileOf = (...of) => paths.windowFile(id, ...of);
  strip.choose(id, range);
  picture.show({
    title: sideName(refOf(id, range)), path: fileOf("html", range, `&view=1${more}`), look, goesOn,
    address: (place) => where.link({ ...at(range.from), look: place }),
    steps: [
      { words: "‹ Earlier", off: !told || range.from <= told.from, act: () => where.go(at(range.from - length), false) },
      { words: "Later ›", off: !told || range.to >= told.to, act: () => where.go(at(range.from + length), false) },
      { words: "Latest", off: !told || range.to >= told.to, act: () => where.go(at(told.to - length), false) },
    ],
    links: FILES(range, fileOf, more),
  });
}
/** An interval of all targets with a label. */
function showTogether(label, range) {
  const { event, look } = where.state, more = event ? `&event=${encodeURIComponent(event)}` : "", fileOf = (...of) => paths.labelFile(label, ...of);
  picture.show({
    title: `${plain(label)} · ${windowName(range)}`, path: fileOf("html", range, `&view=1${more}`), look, address: (place) => where.link({ look: place }), links: FILES(range, fileOf, more),
  });
}
function showLive(id) {
  const range = live.range(id, Number(where.state.live) * 1000, windows.get(id)?.told);
  if (range) showWindow(id, range, true);
  else picture.show({ title: "Live", path: null, text: failing ? "" : targets.length && !alwaysOn(where.state) ? "This target has no continuous profile. To record one, run flightline agent --continuous." : "…" });
}
function showPicture() {
  if (!where.state.live) live.end();
  const { run: id, before, after, event } = where.state;
  if (before && after) {
    return picture.show({ title: `${sideName(before)} → ${sideName(after)}`, path: paths.compare(before, after), look: where.state.look, address: (look) => where.link({ look }) });
  }
  const { label, window: part, live: lasts, targets: [only] } = where.state;
  if (label && part) return showTogether(label, partOf(where.state));
  if (lasts && only && where.state.targets.length === 1) return showLive(only);
  if (where.state.window && where.state.targets.length === 1) return showWindow(where.state.targets[0], partOf(where.state));
  if (!id) return picture.hide();
  const run = known(id);
  if (!run) return picture.show({ title: "Run", path: null, text: singles.get(id)?.missing || (failing ? "" : "…") });
  const events = eventsOf(run), at = events.includes(event) ? event : events[0], there = (run.files || []).includes("html");
  const elapsed = Math.floor((run.elapsed || 0) / 1000), asked = at === ownEvent(run) ? "" : at;
  picture.show({
    title: `${nameOf(run)} · ${run.effectiveMode && run.effectiveMode !== run.mode ? `as ${plain(run.effectiveMode)} · ` : ""}${seconds(run.status === "CANCELLED" ? elapsed : run.duration)}`,
    path: there ? paths.view(id, asked) : null,
    text: run.status === "RUNNING" ? `${elapsed} of ${run.duration} s. The flame graph appears when the run ends.` : `${STATUS[run.status] || plain(run.status)}. ${run.message || "There is no recording."}`,
    events: events.map((name, i) => ({ name, words: plain(name) || "off-CPU", pressed: name === at, act: () => where.go({ event: i ? name : "" }, false) })),
    links: fileLinks(run, asked), look: where.state.look, address: (look) => where.link({ look }),
  });
}
/** Shows that the displayed target's load has risen, with a link to the comparison. */
function showRisen(id, told) {
  const rise = told && risen(targets.find((target) => target.id === id)?.load);
  hide(byId("window-risen"), !rise);
  if (!rise) return;
  const length = Math.min(LIVE_SECONDS * 1000, Math.max(told.to - rise.since, 60_000));
  tell(byId("risen-words"), `CPU time ${timesText(rise.times)} since ${moment(rise.since)}`);
  const [before, after] = [{ from: Math.max(told.from, rise.since - length), to: rise.since }, { from: rise.since, to: Math.max(rise.since + 1, told.to) }];
  mark(byId("risen-open"), "href", where.link({ ...NOTHING, before: refOf(id, before), after: refOf(id, after) }));
}
function showState() {
  const of = failing && (failing.error instanceof Unreachable ? `The service has been unreachable since ${moment(failing.since)} – retrying`
    : `The service has returned errors since ${moment(failing.since)} – retrying`);
  tell(byId("state"), of || "");
  mark(byId("state"), "title", of ? prose(failing.error.message) : null);
  document.body.classList.toggle("failing", !!failing);
  hide(byId("banner"), profiling !== false);
}
function render() {
  const of = chosen(), { targets: ids, group } = where.state;
  mark(document.body, "data-pane", group || ids.length && !choosing ? "main" : "side");
  hide(byId("show-chosen"), !ids.length);
  tell(byId("show-chosen"), `Show ${ids.length} selected`);
  document.title = of.length === 1 ? `${plain(of[0].name)} – Flightline` : "Flightline";
  showState();
  list.show(targets, ids, where.state);
  showAbout(of);
  hide(byId("form"), !!group || !ids.length);
  form.show(of, limits, profiling === false ? "Profiling on demand is off." : "");
  pair.show();
  const going = alwaysOn(where.state), told = going && windows.get(going)?.told;
  strip.show(going, told && told.to > told.from ? told : null);
  showRisen(going, told);
  together.show(targets, !group && ids.length !== 1);
  showRuns();
  showPicture();
  mark(byId("split"), "inert", picture.open ? "" : null);
  if (enter && lists.has(scope())) {
    enter = false;
    table.focus();
  }
}

// --- Keys
const actions = {
  search: () => { byId("search").focus(); byId("search").select(); },
  profile: () => form.submit(), form: () => form.focus(), cancel: cancelCurrent, runs: () => table.focus(), targets: () => list.focus(),
  compare: () => byId("basket-open").href && byId("basket-open").click(),
  back() {
    if (picture.open) close();
    else if (!dismiss() && !byId("side").contains(document.activeElement)) list.focus();
  },
  live() {
    if (live.on) live.forward();
    else if (!picture.open && alwaysOn(where.state)) goLive();
  },
  freeze: () => { if (live.on) live.toggle(); },
  share: () => picture.share(),
  save: (key) => picture.save({ S: "html", J: "jfr", F: "folded" }[key]),
  step: (key) => picture.step(key === "[" ? 0 : 1),
  help: () => byId("help").showModal(),
};
const OF_PICTURE = ["freeze", "share", "save", "step"];
/** A key that the flame graph does not use. */
function pictureKey(key) {
  const action = picture.open && actionOf({ key });
  if (action === "live" || OF_PICTURE.includes(action)) actions[action](key);
}
document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.altKey || event.ctrlKey || event.metaKey || document.querySelector("dialog[open]")) return;
  const action = actionOf(event), at = document.activeElement;
  if (typing(at)) {
    if (event.key === "Escape") at.blur();
    return;
  }
  if (picture.open ? ["back", "help", "live", ...OF_PICTURE].includes(action) : action && !OF_PICTURE.includes(action)) {
    event.preventDefault();
    return actions[action](event.key);
  }
  if (picture.open) return;
  if (byId("targets") === at ? list.key(event) : at.closest("#runs-body") ? table.key(event) : (event.key === "j" || event.key === "k") && (list.focus(), list.key(event))) event.preventDefault();
});
byId("help-open").addEventListener("click", actions.help);
byId("back").addEventListener("click", () => where.go({ targets: [], group: "", ...NOTHING }));
byId("show-chosen").addEventListener("click", () => { choosing = false; render(); });

tellKeys();
render();
polling.start();
