// Descriptions of the modes.

/** Mode: description, meaning of its interval, event of its flame graph. */
export const MODES = {
  ITIMER: ["CPU time, sampled by one timer for the process. Needs no perf events, so it also works in containers.", "10ms or 99hz of CPU time", "cpu"],
  CPU: ["CPU time of each thread, with kernel frames if perf events are permitted. Otherwise uses timers, which the run reports.", "10ms or 99hz of CPU time", "cpu"],
  WALL: ["Samples all threads, running or waiting, at a fixed wall-clock interval. Shows where time goes besides CPU time.", "50ms between samples", "wall"],
  ALLOC: ["Allocated memory, by the functions that allocate it.", "512k bytes between samples", "alloc"],
  LOCK: ["Waits for locks: which thread waited, how long, and where.", "1ms, the shortest wait", "lock"],
  IO: ["Slow reads and writes of files and sockets, with the path or peer.", "10ms, the shortest call", "io"],
  LIVE: ["Memory that was allocated and not freed: shows leaks and growth.", "512k bytes between samples", "live"],
  THROW: ["C++ exceptions and Rust panics, by the place that throws them.", "", "throw"],
  OFF_CPU: ["Off-CPU time from the scheduler: where threads wait, block or are preempted, and for how long.", "1ms, the shortest wait", ""],
};

export const FIRST_MODE = "ITIMER";

const EVENTS = { cpu: "cpu", ctimer: "cpu", itimer: "cpu", wall: "wall", alloc: "alloc", live: "live", lock: "lock", io: "io", throw: "throw" };

/** Default event of a flame graph; "" means a graph of its own. */
export const ownEvent = (run) => MODES[run.mode]?.[2] ?? "";

// Other events with stacks: starts of threads, and the raw events of the mode's own graph.
const MINOR = /^(jdk\.|flightline\.(Open|OffCpu$))/;

/** Events of a run's recording that are worth a flame graph: that of its mode first. */
export function eventsOf(run) {
  const own = ownEvent(run), told = (run.events || []).filter((name) => typeof name === "string" && name && !MINOR.test(name));
  if (told.length) return own === "" || told.includes(own) ? [own, ...told.filter((name) => name !== own)] : told;
  // While nothing has been recorded: the requested events.
  return [...new Set([own, ...(run.engines || []).map((engine) => EVENTS[String(engine).split(/[@=:]/)[0]]).filter(Boolean)])];
}

export const STATUS = { RUNNING: "Running", FINISHED: "Finished", CANCELLED: "Cancelled", FAILED: "Failed" };

export const FORMATS = [["html", "HTML"], ["jfr", "JFR"], ["folded", "folded"], ["pprof", "pprof"], ["otlp", "OTLP"]];

/**
 * For each mode, on how many of these targets it is available, and why not on the others. A target that does not list a mode is
 * not counted as lacking it.
 */
export function possible(targets) {
  const names = new Set(Object.keys(MODES));
  for (const target of targets) for (const { mode } of target.modes || []) names.add(mode);
  return [...names].map((mode) => {
    const reasons = new Map();
    let on = 0;
    for (const target of targets) {
      const known = (target.modes || []).find((each) => each.mode === mode);
      if (!known || known.available) on++;
      else reasons.set(known.reason || "not available there", (reasons.get(known.reason || "not available there") || 0) + 1);
    }
    return { mode, on, of: targets.length, reasons: [...reasons.keys()] };
  });
}
