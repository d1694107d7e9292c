// Elements. Everything that comes from elsewhere goes in as text.

export const byId = (id) => document.getElementById(id);

/** An element with properties and children; texts among these become text. */
export function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

/** Texts are only touched when they change, so that what a reader has marked stays marked. */
export function tell(into, text) {
  if (into.textContent !== text) into.textContent = text;
}

/** The same of an attribute; null takes it away. */
export function mark(of, name, value) {
  if (value === null) of.removeAttribute(name);
  else if (of.getAttribute(name) !== String(value)) of.setAttribute(name, value);
}

/** Whether it is there at all. */
export const hide = (of, hidden) => mark(of, "hidden", hidden ? "" : null);

/** Makes the children of `parent` those of `wanted`, in this order. What is in its place is not moved: it keeps focus and selection. */
export function arrange(parent, wanted) {
  const keep = new Set(wanted);
  for (const child of [...parent.children]) if (!keep.has(child)) child.remove();
  let at = parent.firstElementChild;
  for (const child of wanted) {
    if (child === at) at = at.nextElementSibling;
    else parent.insertBefore(child, at);
  }
}

/** Whether what is typed goes into a field. */
export const typing = (at = document.activeElement) =>
  !!at && (at.tagName === "INPUT" && at.type !== "checkbox" || at.tagName === "SELECT" || at.tagName === "TEXTAREA");
