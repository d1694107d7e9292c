// The form for runs: mode, duration and advanced options. Polling updates options and messages, never what
// the user has typed.
import { byId, element, hide, mark, tell } from "./dom.js";
import { FIRST_MODE, MODES, possible } from "./modes.js";
import { count, plain, prose } from "./text.js";

const STEP = 30;

/** Waits for `start(request)`; `problem(text)` reports invalid input. */
export function runForm({ start, problem }) {
  const form = byId("form"), mode = byId("mode"), duration = byId("duration"), button = byId("profile");
  const options = new Map();
  let known = [], touched = false, starting = false, why = "", most = 300;

  function labels() {
    const all = {};
    for (const each of byId("labels").value.split(",").map((text) => text.trim()).filter(Boolean)) {
      const at = each.indexOf("=");
      if (at < 1) throw new Error(`Write labels as key=value, separated by commas; “${each}” is not a label.`);
      all[each.slice(0, at).trim()] = each.slice(at + 1).trim();
    }
    return all;
  }
  function request() {
    const typed = duration.value, made = { mode: mode.value, duration: typed.trim() === "" || Number.isNaN(Number(typed)) ? typed : Number(typed) };
    const interval = byId("interval").value.trim(), engines = byId("engines").value.split(",").map((text) => text.trim()).filter(Boolean), all = labels();
    if (interval) made.interval = interval;
    if (engines.length) made.engines = engines;
    if (Object.keys(all).length) made.labels = all;
    return made;
  }
  async function submit() {
    if (starting || why) return;
    let made;
    try { made = request(); } catch (error) { return problem(error.message); }
    starting = true;
    tellButton();
    try { await start(made); } finally {
      starting = false;
      tellButton();
    }
  }
  // Not `disabled`: screen readers lose their position when a focused button is disabled.
  function tellButton() {
    mark(button, "aria-busy", starting);
    mark(button, "aria-disabled", starting || !!why);
    tell(button, starting ? "Starting…" : "Profile");
    tell(byId("profile-words"), starting ? "" : why);
  }
  function tellMode() {
    const of = known.find((each) => each.mode === mode.value), words = MODES[mode.value];
    tell(byId("mode-words"), words ? words[0] : "");
    mark(byId("interval"), "placeholder", words?.[1] || "default");
    return of;
  }
  function step(by) {
    const now = Number(duration.value) || 0;
    // From 1 up to 30, not to 31.
    const next = by > 0 ? Math.floor(now / STEP) * STEP + STEP : Math.ceil(now / STEP) * STEP - STEP;
    duration.value = Math.max(1, Math.min(most, next));
  }

  form.addEventListener("submit", (event) => { event.preventDefault(); submit(); });
  mode.addEventListener("change", () => { touched = true; tellAll(); });
  duration.addEventListener("keydown", (event) => {
    const by = { ArrowUp: 1, ArrowDown: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    step(by);
  });
  byId("longer").addEventListener("click", () => step(1));
  byId("less").addEventListener("click", () => step(-1));
  byId("more-open").addEventListener("click", () => {
    const open = byId("more").hidden;
    hide(byId("more"), !open);
    mark(byId("more-open"), "aria-expanded", open);
    tell(byId("more-open"), open ? "Less" : "More");
  });

  let refusal = "", targets = [];
  function tellOptions() {
    known = possible(targets);
    for (const { mode: name, on, of, reasons } of known) {
      if (!options.has(name)) {
        const made = element("option", { value: name });
        options.set(name, made);
        mode.append(made);
      }
      const option = options.get(name), none = of > 0 && on === 0;
      if (option.disabled !== none) option.disabled = none;
      tell(option, none ? `${plain(name)} – ${plain(reasons[0])}` : on < of ? `${plain(name)} – on ${on} of ${of}` : plain(name));
    }
    for (const [name, option] of options) if (!known.some((each) => each.mode === name)) {
      option.remove();
      options.delete(name);
    }
    if (!touched) {
      const can = known.filter(({ on, of }) => on > 0 || of === 0);
      mode.value = (can.find((each) => each.mode === FIRST_MODE) || can[0] || known[0]).mode;
    }
  }
  /** Distinct reasons why modes are unavailable, each with its modes. */
  function tellReasons() {
    const by = new Map();
    for (const { mode: name, on, of, reasons } of known) for (const reason of on < of ? reasons : []) {
      if (!by.has(reason)) by.set(reason, []);
      by.get(reason).push(on ? `${plain(name)} on ${of - on} of ${of}` : plain(name));
    }
    tell(byId("mode-reasons"), [...by].map(([reason, names]) => `Not available: ${names.join(", ")} – ${prose(reason)}`).join("\n"));
  }
  function tellAll() {
    const of = tellMode(), live = targets.filter(({ state }) => state !== "GONE"), busy = live.filter(({ run }) => run);
    if (refusal) why = refusal;
    else if (!targets.length) why = "Select a target.";
    else if (!live.length) why = targets.length === 1 ? "The target has ended." : "All selected targets have ended.";
    else if (of && of.of > 0 && of.on === 0) why = `${plain(of.mode)} is not available here; select another mode.`;
    else if (busy.length === live.length) why = live.length === 1 ? "The target is being profiled." : "All selected targets are being profiled.";
    else why = "";
    tellButton();
  }

  return {
    /** `no`: why no run can be started, if so. */
    show(of, limits, no) {
      targets = of;
      refusal = no;
      most = limits?.maxDurationSeconds || 300;
      mark(duration, "max", most);
      tell(byId("duration-words"), `In seconds, up to ${most}.`);
      mark(duration, "title", `1 to ${count(most, "second")}`);
      tellOptions();
      tellReasons();
      tellAll();
    },
    submit,
    focus: () => mode.focus(),
  };
}
