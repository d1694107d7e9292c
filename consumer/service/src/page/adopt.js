// Processes of the service's machine that can be adopted as targets.
import { ask, paths } from "./api.js";
import { byId, element, hide, mark, tell } from "./dom.js";
import { plain } from "./text.js";
import { windowed } from "./windowed.js";

const ROW = 40;

/** Calls `added(pid)` after the service has adopted a process, or `problem(text)`. */
export function adoption({ added, problem }) {
  const dialog = byId("adopt"), search = byId("adopt-search"), scroller = byId("adopt-list");
  let all = [], items = [], at = 0, busy = false;
  const list = windowed(scroller, {
    make() {
      const name = element("bdi", { className: "name" }), pid = element("span", { className: "pid" }), under = element("span", { className: "under" });
      const made = element("div", { className: "process" }, name, pid, under);
      made.setAttribute("role", "option");
      made.tell = ({ process, index }) => {
        made.index = index;
        made.id = `process-${index}`;
        made.classList.toggle("current", index === at);
        mark(made, "aria-selected", index === at);
        tell(name, plain(process.name));
        tell(pid, String(process.pid));
        tell(under, [plain(process.user), plain(process.command)].filter(Boolean).join(" · "));
        made.title = plain(process.command);
      };
      made.addEventListener("click", () => take(made.index));
      return made;
    },
    update: (made, item) => made.tell(item),
  });

  function lay() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = all.filter(({ name, pid, command, user }) => {
      const hay = `${name}\n${pid}\n${command}\n${user}`.toLowerCase();
      return words.every((word) => hay.includes(word));
    });
    items = found.map((process, index) => ({ key: process.pid, height: ROW, process, index }));
    tell(byId("adopt-words"), items.length ? "Press Enter or click a process to add it as a target." : all.length ? "No process matches." : "The service has no permission to record any process.");
    moveTo(0);
  }
  function moveTo(index) {
    at = Math.max(0, Math.min(items.length - 1, index));
    list.show(items);
    list.reveal(at);
    mark(scroller, "aria-activedescendant", items.length ? `process-${at}` : null);
    mark(search, "aria-activedescendant", items.length ? `process-${at}` : null);
  }
  async function take(index) {
    const process = items[index]?.process;
    if (!process || busy) return;
    busy = true;
    tell(byId("adopt-words"), `Adding ${plain(process.name)} (${process.pid})…`);
    try {
      await ask(paths.targets, { method: "POST", body: { pid: process.pid } });
      dialog.close();
      added(process.pid);
    } catch (error) {
      dialog.close();
      problem(error.message);
    } finally {
      busy = false;
    }
  }
  async function open() {
    try {
      all = (await ask(paths.processes)).processes || [];
      search.value = "";
      dialog.showModal();
      lay();
    } catch (error) { problem(error.message); }
  }
  dialog.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: list.page, PageUp: -list.page }[event.key];
    if (step) moveTo(at + step);
    else if (event.key === "Enter" && event.target !== byId("adopt-close")) take(at);
    else return;
    event.preventDefault();
  });
  search.addEventListener("input", lay);
  byId("adopt-close").addEventListener("click", () => dialog.close());
  byId("adopt-open").addEventListener("click", open);
  return {
    /** Processes are offered only if the service was started with --local. */
    offer(local) { hide(byId("adopt-open"), !local); },
  };
}
