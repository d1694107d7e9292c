// Errors, shown until dismissed.
import { byId, element } from "./dom.js";
import { prose } from "./text.js";

const MOST = 5;

/** Shows a message until it is dismissed; a repeated message replaces the first. */
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

/** Dismisses the latest message; returns true if there was one. */
export function dismiss() {
  const last = byId("toasts").lastElementChild;
  last?.remove();
  return !!last;
}
