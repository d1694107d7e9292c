// DOM helpers. External data is always inserted as text.

export const byId = (id) => document.getElementById(id);

/** Creates an element with properties and children; strings become text nodes. */
export function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

/** Sets text only if it changed, so that the user's selection stays. */
export function tell(into, text) {
  if (into.textContent !== text) into.textContent = text;
}

/** Sets an attribute only if it changed; null removes it. */
export function mark(of, name, value) {
  if (value === null) of.removeAttribute(name);
  else if (of.getAttribute(name) !== String(value)) of.setAttribute(name, value);
}

/** Hides or shows an element. */
export const hide = (of, hidden) => mark(of, "hidden", hidden ? "" : null);

/** Makes `wanted` the children of `parent`, in this order. Elements already in place are not moved, so they keep focus and selection. */
export function arrange(parent, wanted) {
  const keep = new Set(wanted);
  for (const child of [...parent.children]) if (!keep.has(child)) child.remove();
  let at = parent.firstElementChild;
  for (const child of wanted) {
    if (child === at) at = at.nextElementSibling;
    else parent.insertBefore(child, at);
  }
}

/** Returns true if keystrokes go into a text field. */
export const typing = (at = document.activeElement) =>
  !!at && (at.tagName === "INPUT" && at.type !== "checkbox" || at.tagName === "SELECT" || at.tagName === "TEXTAREA");
