// What is shown, as the fragment of the address has it: a link that can be shared, and that the browser goes back to.

const ONE = ["group", "run", "window", "label", "live", "look", "event", "before", "after", "q", "by"];

// Such a part of a path would lead elsewhere.
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

/** The address: `changed(state)` is told of each change, ours and the browser's. Another page has other parts. */
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
    /** As a link that changes these parts of what is shown. */
    link: (change) => put({ ...state, ...change }),
    /** The same without telling of it. */
    quietly(change) {
      state = { ...state, ...change };
      try { history.replaceState(null, "", put(state)); } catch { /* as below */ }
    },
    /** Goes there; `push`: so that the browser can go back. */
    go(change, push = true) {
      const next = { ...state, ...change }, text = put(next);
      if (text === put(state)) return;
      state = next;
      // A browser may refuse to do this too often; what is shown is what was asked for all the same.
      try { history[push ? "pushState" : "replaceState"](null, "", text === "#" ? location.pathname + location.search : text); } catch { /* see above */ }
      changed(state);
    },
  };
}
