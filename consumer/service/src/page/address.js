// Page state in the URL fragment: a link that can be shared and that supports the browser's history.

const ONE = ["group", "run", "window", "label", "live", "look", "event", "before", "after", "q", "by"];

// Such a path segment would change the path.
const isId = (text) => text !== "" && !/^\.+$/.test(text);

export function read(text) {
  const parts = new URLSearchParams(text.replace(/^#/, ""));
  const state = { targets: [...new Set(parts.getAll("target"))].filter(isId) };
  for (const key of ONE) state[key] = parts.get(key) ?? "";
  if (!/^\d{1,15}-\d{1,15}$/.test(state.window)) state.window = "";
  if (!/^[1-9]\d{1,4}$/.test(state.live)) state.live = "";
  for (const key of ["group", "run"]) if (!isId(state[key])) state[key] = "";
  return state;
}

export function write(state) {
  const parts = new URLSearchParams();
  for (const id of state.targets) parts.append("target", id);
  for (const key of ONE) if (state[key]) parts.set(key, state[key]);
  return "#" + parts;
}

/** Creates the address state. `changed(state)` is called on each change, by the page or by the browser. Other pages pass their own `read` and `write`. */
export function address(changed, { read: take, write: put } = { read, write }) {
  let state = take(location.hash);
  const follow = () => {
    const now = take(location.hash);
    if (put(now) === put(state)) return;
    state = now;
    changed(state);
  };
  window.addEventListener("popstate", follow);
  window.addEventListener("hashchange", follow);
  return {
    get state() { return state; },
    /** A link to the current view with these changes. */
    link: (change) => put({ ...state, ...change }),
    /** Changes the address without calling `changed`. */
    quietly(change) {
      state = { ...state, ...change };
      try { history.replaceState(null, "", put(state)); } catch { /* as below */ }
    },
    /** Navigates; with `push`, adds an entry to the browser's history. */
    go(change, push = true) {
      const next = { ...state, ...change }, text = put(next);
      if (text === put(state)) return;
      state = next;
      // A browser may refuse frequent history changes; the page shows the new state anyway.
      try { history[push ? "pushState" : "replaceState"](null, "", text === "#" ? location.pathname + location.search : text); } catch { /* see above */ }
      changed(state);
    },
  };
}
