// A run as a table row. The row is created once and updated, so that focus and selection stay.
import { paths } from "./api.js";
import { arrange, element, hide, mark, tell } from "./dom.js";
import { FORMATS, STATUS } from "./modes.js";
import { iso, labelsOf, moment, plain, prose, size } from "./text.js";

const SUCCESS = "Profiling Successful";

const button = (text, title, act) => {
  const made = element("button", { type: "button", className: "quiet", textContent: text, title });
  made.addEventListener("click", act);
  return made;
};

/** Links to a run's files, for `event` if given. */
export function fileLinks(run, event = "") {
  return FORMATS.filter(([format]) => (run.files || []).includes(format)).map(([format, words]) => {
    // The recording is always complete, whichever event is shown.
    const href = paths.file(run.id, format, format === "jfr" ? "" : event);
    const link = element("a", { href, textContent: words, download: "" });
    link.dataset.format = format;
    return link;
  });
}

/** `link(run)` is the address of its view, `placeOf(run)` the host of its target; `cancel` and `remove` return promises; `side(run)` is "before", "after" or "". */
export function runRow({ link, group, open, placeOf, cancel, remove, sides, compare }) {
  let run = null, sure = false, waiting = false, files = "", done = "";
  const time = element("time"), under = element("a", { className: "link group", textContent: "group" });
  const target = element("a", { className: "link" }), place = element("span", { className: "under" }), mode = element("span"), truth = element("span", { className: "under truth" }), more = element("span", { className: "under more" });
  const length = element("span"), bar = element("span", { className: "bar" }), meter = element("span", { className: "meter" }, bar);
  const dot = element("span", { className: "dot" }), status = element("span"), message = element("p", { className: "message" });
  const links = element("span", { className: "links" }), bytes = element("span", { className: "bytes" }), tags = element("span", { className: "tags" });
  const view = element("a", { className: "button", textContent: "View" });
  const one = button("A", "Compare: before (a)", () => compare(run, "before")), other = button("B", "Compare: after (b)", () => compare(run, "after"));
  const end = button("Cancel", "", () => (run.status === "RUNNING" ? wait(cancel) : sure ? wait(remove) : ask(true)));
  // Grid layout removes the table semantics of rows, so set the roles.
  const cell = (name, ...children) => element("td", { className: name, role: "cell" }, ...children);
  const made = element("tr", { tabIndex: -1, role: "row" },
    cell("when", time, under), cell("of", target, place), cell("mode", mode, truth, more), cell("length", length, meter), cell("status", dot, status),
    cell("result", message, links, bytes, tags), cell("acts", element("span", { className: "acts" }, view, element("span", { className: "pair" }, one, other), end)));
  meter.setAttribute("role", "progressbar");
  end.addEventListener("blur", () => ask(false));
  end.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !sure) return;
    event.stopPropagation();
    ask(false);
  });

  /** Deletion requires a second click in the same place. */
  function ask(now) {
    sure = now;
    tellEnd();
  }
  async function wait(act) {
    if (waiting) return;
    waiting = true;
    tellEnd();
    try { await act(run); } finally {
      waiting = sure = false;
      tellEnd();
    }
  }
  function tellEnd() {
    const running = run.status === "RUNNING";
    tell(end, running ? (waiting ? "Cancelling…" : "Cancel") : waiting ? "Deleting…" : sure ? "Delete permanently?" : "Delete");
    mark(end, "aria-busy", waiting);
    mark(end, "class", sure && !running ? "quiet sure" : "quiet");
    mark(end, "title", running ? "Stop the run now and keep its recording (c)" : sure ? "Press again; Escape keeps it" : null);
  }
  function tellFiles() {
    const now = JSON.stringify(run.files || []);
    if (now === files) return;
    files = now;
    arrange(links, fileLinks(run));
  }

  made.update = (now) => {
    run = now;
    const running = run.status === "RUNNING", total = run.duration || 0, elapsed = Math.min(total, Math.floor((run.elapsed || 0) / 1000));
    mark(made, "data-status", run.status);
    tell(time, moment(run.triggerTime));
    mark(time, "title", iso(run.triggerTime));
    mark(time, "datetime", iso(run.triggerTime));
    hide(under, !run.group);
    mark(under, "href", group(run));
    tell(target, plain(run.targetName));
    mark(target, "href", open(run));
    tell(place, placeOf(run));
    tell(mode, plain(run.mode));
    tell(truth, run.effectiveMode && run.effectiveMode !== run.mode ? `as ${plain(run.effectiveMode)}` : "");
    mark(truth, "title", truth.textContent ? `Recorded as ${plain(run.effectiveMode)}. ${prose(run.message)}` : null);
    tell(more, [run.interval && `at ${plain(run.interval)}`, (run.engines || []).length && `with ${run.engines.map(plain).join(", ")}`].filter(Boolean).join(", "));
    tell(length, running || run.status === "CANCELLED" ? `${elapsed} of ${total} s` : `${total} s`);
    hide(meter, !running);
    const width = (total ? 100 * Math.min(1, (run.elapsed || 0) / 1000 / total) : 0) + "%";
    if (done !== width) bar.style.width = done = width;
    for (const [name, value] of [["aria-valuemin", 0], ["aria-valuemax", total], ["aria-valuenow", elapsed], ["aria-label", "Time recorded, in seconds"]]) mark(meter, name, value);
    mark(dot, "class", "dot " + String(run.status).toLowerCase());
    tell(status, STATUS[run.status] || plain(run.status));
    const said = run.status === "FINISHED" && run.message === SUCCESS ? "" : prose(run.message);
    hide(message, !said);
    tell(message, said);
    tellFiles();
    const there = (run.files || []).length > 0;
    tell(bytes, there && run.bytes ? size(run.bytes) : "");
    tell(tags, labelsOf(run.labels).map(([key, value]) => `${key}=${value}`).join(" · "));
    for (const each of [view, one, other]) hide(each, !(run.files || []).includes("html"));
    mark(view, "href", link(run));
    const side = sides(run);
    mark(one, "aria-pressed", side.includes("before"));
    mark(other, "aria-pressed", side.includes("after"));
    mark(made, "aria-label", `${mode.textContent} run of ${target.textContent}, ${time.textContent}, ${status.textContent}`);
    for (const [what, words] of [[view, "View"], [one, "Compare as A:"], [other, "Compare as B:"]]) mark(what, "aria-label", `${words} ${made.getAttribute("aria-label")}`);
    tellEnd();
  };
  made.run = () => run;
  made.cancel = () => { if (run.status === "RUNNING") wait(cancel); };
  made.view = () => { if (!view.hidden) view.click(); };
  return made;
}
