// What went wrong, until it has been read.
import { byId, element } from "./dom.js";
import { prose } from "./text.js";

const MOST = 5;

/** A message that stays until it is dismissed; the same one again takes its own place. */
export function toast(text) {
  const into = byId("toasts"), words = prose(text);
  for (const other of [...into.children]) if (other.dataset.words === words) other.remove();
  const close = element("button", { type: "button", className: "quiet", textContent: "×" });
  close.setAttribute("aria-label", "Dismiss");
  const made = element("div", { className: "toast" }, element("p", { textContent: words }), close);
  made.setAttribute("role", "alert");
  made.dataset.words = words;
  close.addEventListener("click", () => made.remove());
  into.append(made);
  while (into.children.length > MOST) into.firstElementChild.remove();
}

/** Takes the latest one away; whether there was one. */
export function dismiss() {
  const last = byId("toasts").lastElementChild;
  last?.remove();
  return !!last;
}
