"use strict";
// The page: one state, which actions change and the address holds, and the views that show it.
(async () => {
  const { profile, frames, trees } = await profileData();
  const { names } = frames, functions = names.length, handles = new Handles(frames), past = new Past();
  const first = firstState(profile.inverted ? "icicle" : "flame"), { difference } = profile;
  first.measure = profile.measures[0].name;
  if (difference) Object.assign(first, { widths: difference.widths, by: difference.by, palette: difference.colors });
  const region = { after: regionLabel(frames, "[only before]"), before: regionLabel(frames, "[only after]") };
  let state = { ...first }, words = "", current = -1;
  const details = byId("details"), field = byId("search");
  // Where there is nothing to say, what all of it is.
  const say = (text) => { details.textContent = text === "\u00a0" ? describeBox(base(), frames, unit(), -1) : text; };

  // --- Views
  const inGraph = (view = state.view) => ["flame", "icicle", "reverse"].includes(view);
  const strip = matchMap(byId("map"), () => byId("scroller").clientWidth);
  const opened = (tree) => (box) => change({ view: "sandwich", fn: handles.of(tree().label[box]), zoom: [] });
  const graph = flameGraph({
    canvas: byId("canvas"), scroller: byId("scroller"), spacer: byId("spacer"), tip: byId("tip"), say,
    drawn: (from, span) => strip.window(from, span),
    zoomed: (box) => { if (!applying) change({ zoom: handles.path(graph.tree, box) }); },
    focused: (box) => { current = box < 0 || graph.tree.of && graph.tree.of[box] < 0 ? -1 : graph.tree.label[box]; },
    opened: (box) => opened(() => graph.tree)(box),
  });
  const pane = (id) => {
    const scroller = byId(id), own = flameGraph({
      canvas: scroller.querySelector("canvas"), scroller, spacer: scroller.querySelector(".spacer"), tip: byId("tip"), say,
      zoomed: (box) => { byId("reset").hidden = box < 0; },
      focused: (box) => { if (box >= 0) current = own.tree.label[box]; },
      opened: (box) => opened(() => own.tree)(box),
    });
    return own;
  };
  const callers = pane("callers"), callees = pane("callees");
  callees.invert(true);
  const table = topTable({
    scroller: byId("table"), head: byId("table-head"),
    chosen: (label, text) => {
      current = label;
      say(text);
      if (state.view === "sandwich") change({ fn: handles.of(label) });
    },
    opened: (label) => change({ view: "sandwich", fn: handles.of(label), zoom: [] }),
    sorted: (by) => change({ sort: by }),
  });
  const tree = outline({ scroller: byId("outline"), head: byId("tree-head"), chosen: (box, text) => { current = base().label[box]; say(text); } });
  const graphs = [graph, callers, callees];
  const shown = () => ({ sandwich: document.activeElement === byId("callees") ? callees : callers }[state.view] || graph);

  // --- What is derived from the state, kept until it changes
  const kept = new Map();
  function once(key, value, make) {
    const of = kept.get(key);
    if (of && of.value === value) return of.made;
    const made = make();
    kept.set(key, { value, made });
    return made;
  }
  const measure = () => Math.max(0, profile.measures.findIndex(({ name }) => name === state.measure));
  const unit = () => profile.measures[measure()].unit;
  const wantedBy = (regex) => Uint8Array.from(names, (name, label) => label < functions && regex.test(name) ? 1 : 0);
  const filtered = (tree) => state.filters.reduce((of, { keep, source, ignore }) => {
    const left = of.weighed(of.kept(wantedBy(regexOf(source, ignore)), keep));
    // A stack without a frame has no match.
    if (!keep) left.all = left.whole = left.boxed + of.all - of.boxed;
    return left;
  }, tree);
  /** What is compared, as a whole; null if nothing is. */
  const whole = difference ? new Pair({ ...difference, before: trees[1], after: trees[0] }) : null;
  function pair() {
    if (!whole) return null;
    const of = once("pair", JSON.stringify(state.filters), () => whole.of(filtered(whole.before), filtered(whole.after)));
    of.own = state.by === "self";
    of.dark = document.documentElement.classList.contains("dark");
    of.colours = CHANGE_COLOURS[state.palette] || CHANGE_COLOURS.change;
    return of;
  }
  function base() {
    const of = pair();
    // Nothing of either profile is without a width.
    if (of) return once("larger", of, () => of.tree("larger"));
    return once("base", JSON.stringify([measure(), state.filters]), () => filtered(trees[measure()]));
  }
  /** What the flame graph shows: of two profiles one, and what the other has more than it beside that. */
  function drawn() {
    const of = pair();
    if (!of || state.widths === "larger") return base();
    return once("drawn" + state.widths, of, () => of.withRegion(state.widths, region[state.widths]));
  }
  const reverse = () => once("reverse", base(), () => reversed(base(), names.length));
  const heaviest = () => once("heaviest", base(), () => {
    const { self } = base().byLabel(names.length);
    return self.indexOf(self.reduce((most, weight) => Math.max(most, weight), 0));
  });
  const middle = () => {
    const label = handles.label(state.fn);
    return label >= 0 ? label : heaviest();
  };
  function wanted() {
    const regex = state.q ? regexOf(state.q, state.ignore) : null;
    return once("wanted", state.q + "\0" + state.ignore, () => regex && wantedBy(regex));
  }

  // --- From the state to what is seen
  let applying = false;
  function apply() {
    applying = true;
    const { view } = state, paint = once("paint", state.palette, () => painter(state.palette, frames));
    document.body.dataset.view = view;
    for (const tab of byId("views").children) tab.setAttribute("aria-selected", tab.dataset.view === view);
    byId("measure").value = profile.measures[measure()].name;
    byId("palette").value = state.palette;
    byId("widths").value = state.widths;
    byId("by").value = state.by;
    document.body.classList.toggle("compared", !!pair());
    if (state.theme) document.documentElement.classList.toggle("dark", state.theme === "dark");
    graphs.forEach((one) => one.colours(state.palette));
    const empty = !(base().all > 0);
    byId("empty").hidden = !empty;
    byId("empty").textContent = empty ? "No stack passes the filters. Undo, or take one away above." : "";
    if (inGraph()) showGraph();
    if (view === "sandwich") showSandwich();
    if (view === "top" || view === "sandwich") showTable(paint);
    if (view === "sandwich") table.mark(middle());
    if (view === "tree") tree.show(frames, base(), unit(), wanted(), paint);
    byId("reset").hidden = !(inGraph() && state.zoom.length);
    tellLegend();
    tellFilters();
    tellMatches();
    applying = false;
  }
  function showGraph() {
    const of = state.view === "reverse" ? reverse() : drawn();
    if (graph.tree !== of || graph.unit !== unit()) graph.load(frames, of, unit());
    const inverted = (state.view !== "flame") !== state.turned;
    if (graph.inverted !== inverted) graph.invert(inverted);
    const box = handles.follow(of, state.zoom);
    if (graph.zoomed !== box) graph.zoom(box);
    graph.mark(wanted());
  }
  function showTable(paint) {
    const of = pair(), content = of ? changeColumns(frames, of, unit()) : once("columns", base(), () => functionColumns(frames, base(), unit()));
    table.show(frames, content, wanted(), state.sort, of && CHANGE_PALETTES[state.palette] ? content.colour : paint);
  }
  function showSandwich() {
    const label = middle(), key = base();
    const up = once("callers" + label, key, () => around(key, names.length, label, true));
    const down = once("callees" + label, key, () => around(key, names.length, label, false));
    byId("middle").textContent = names[label];
    if (callers.tree !== up) { callers.load(frames, up, unit()); callers.home(); }
    if (callees.tree !== down) { callees.load(frames, down, unit()); callees.home(); }
    [callers, callees].forEach((one) => one.mark(wanted()));
    current = label;
  }
  /** What `found` weighs in a tree, and its towers. One that is merged as it is looked at may have more of them later. */
  let latest = {};
  function matchedIn(of, found) {
    if (latest.of === of && latest.found === found) return latest;
    const towers = [], weight = of.matched(found, (from, width) => towers.push(from, width)), told = { of, found, weight, towers };
    if (of instanceof CallTree) latest = told;
    return told;
  }
  function tellMatches() {
    const found = wanted(), bad = state.q !== "" && !regexOf(state.q, state.ignore);
    if (document.activeElement !== field || field.value === "") field.value = state.q;
    byId("case").checked = state.ignore;
    field.classList.toggle("bad", bad);
    for (const id of ["before", "after", "keep", "drop"]) byId(id).disabled = !found;
    words = bad ? "not a regular expression" : "";
    if (found) {
      const of = matchedIn(base(), found);
      let hit = 0;
      for (const is of found) hit += is;
      const both = pair(), count = `${grouped.format(hit)} ${hit === 1 ? "function" : "functions"}`;
      words = both ? `Matched: ${changeText(both, unit(), both.change(both.before.matched(found), both.after.matched(found)))} (${count})`
        : `Matched: ${percentOf(of.weight, base().whole)} (${amountIn(unit(), of.weight)}, ${count})`;
    }
    byId("matched").textContent = words;
    if (inGraph()) strip.mark(found ? matchedIn(graph.tree, found).towers : [], graph.tree.all);
  }
  function tellLegend() {
    const of = (PALETTES[state.palette] || PALETTES.kind), legend = byId("legend"), both = pair();
    legend.textContent = "";
    if (both && CHANGE_PALETTES[state.palette]) return tellChanges(legend, both);
    for (const [name, title, kind] of of.legend || []) {
      if (!frames.kinds.includes(kind) || (kind === "n" && frames.kinds.length < 2)) continue;
      const entry = element("span", "", title), mark = element("i");
      mark.style.background = css(of.of(name, "", kind));
      entry.prepend(mark);
      legend.append(entry);
    }
  }
  function tellChanges(legend, both) {
    const most = percentOf(both.most, both.whole);
    for (const [delta, title] of [[both.most, `up to ${most} more`], [-both.most, `up to ${most} less`], [0, "no change, or chance"]]) {
      const entry = element("span", "", title), mark = element("i");
      mark.style.background = css(both.colour({ delta }, ""));
      entry.prepend(mark);
      legend.append(entry);
    }
  }
  function tellFilters() {
    byId("filters").textContent = "";
    state.filters.forEach(({ keep, source }, i) => {
      const chip = element("button", "chip", `${keep ? "only" : "without"} ${source} ×`);
      chip.type = "button";
      chip.title = "Take this filter away";
      chip.addEventListener("click", () => change({ filters: state.filters.filter((_, other) => other !== i) }));
      byId("filters").append(chip);
    });
    if (state.filters.length) {
      const both = pair(), all = trees[measure()].whole;
      byId("filters").append(element("span", "left", both ? changeText(both, unit(), both.all()) : `${percentOf(base().all, all)} of ${amountIn(unit(), all)}`));
    }
    byId("undo").disabled = !past.before.length;
    byId("redo").disabled = !past.behind.length;
  }

  // --- From actions to the state
  let typed = 0;
  /** `quiet`: it goes on with what the action before began, and is undone with it. */
  function change(part, quiet) {
    typed = 0;
    const before = stateText(state, first);
    state = { ...state, ...part };
    const now = stateText(state, first);
    if (now !== before && !quiet) past.add(before);
    remember(now);
    apply();
  }
  function remember(text) {
    // Browsers refuse where a page may not have an address, or changes it too often.
    try { history.replaceState(null, "", text ? "#" + text : location.pathname + location.search); } catch { /* shown all the same */ }
  }
  function back(way) {
    const text = past.go(way, stateText(state, first));
    if (text === undefined) return;
    state = stateOf(text, first);
    remember(text);
    apply();
  }
  function show(view) {
    const same = inGraph(view) && inGraph() && (view === "reverse") === (state.view === "reverse");
    const fn = view === "sandwich" && current >= 0 ? handles.of(current) : state.fn;
    change({ view, fn, turned: false, zoom: same ? state.zoom : [] });
    byId({ sandwich: "callers", top: "table", tree: "outline" }[view] || "scroller").focus({ preventScroll: true });
  }
  /** By the search, or by the current function if there is none. */
  function filter(keep) {
    const escaped = (text) => text.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&");
    const source = wanted() ? state.q : current >= 0 ? `^${escaped(names[current])}$` : "";
    if (!source) return;
    change({ filters: [...state.filters, { keep, source, ignore: wanted() ? state.ignore : false }], q: "", zoom: [] });
  }
  function next(step) {
    if (!wanted()) return;
    if (state.view === "tree") return nextLine(step);
    if (state.view === "top") return table.key({ key: step > 0 ? "ArrowDown" : "ArrowUp", preventDefault() {} });
    const [at, of] = shown().nextMatch(step);
    byId("matched").textContent = of ? `${words} · ${grouped.format(at)} / ${grouped.format(of)}` : `${words} · not in this view`;
  }
  function nextLine(step) {
    const of = base(), found = wanted(), is = (i) => i >= 0 && i < of.count && of.total[i] > 0 && found[of.label[i]];
    let i = tree.current < 0 && step < 0 ? of.count : tree.current;
    do i += step; while (i >= 0 && i < of.count && !is(i));
    if (is(i)) tree.reveal(i);
  }
  async function copy() {
    if (current < 0) return;
    const name = names[current];
    try { await navigator.clipboard.writeText(name); say(`Copied: ${name}`); } catch { say(`Could not copy: ${name}`); }
  }
  const turnOver = () => {
    if (state.view === "flame" || state.view === "icicle") change({ view: state.view === "flame" ? "icicle" : "flame", turned: false });
    else if (state.view === "reverse") change({ turned: !state.turned });
  };
  const nextOf = (id) => {
    const list = byId(id);
    list.selectedIndex = (list.selectedIndex + 1) % list.options.length;
    list.dispatchEvent(new Event("change"));
  };
  const reset = () => {
    if (inGraph()) change({ zoom: [] });
    else [callers, callees].forEach((one) => one.zoom(-1));
  };
  const theme = () => change({ theme: document.documentElement.classList.contains("dark") ? "light" : "dark" });
  const actions = {
    flame: () => show("flame"), reverse: () => show("reverse"), sandwich: () => show("sandwich"), top: () => show("top"),
    tree: () => show("tree"), invert: turnOver, measure: () => nextOf("measure"), palette: () => nextOf("palette"), theme,
    search: () => { field.focus(); field.select(); }, next: () => next(1), before: () => next(-1),
    keep: () => filter(true), drop: () => filter(false), reset, copy, undo: () => back(true), redo: () => back(false),
    help: () => byId("help").showModal(),
  };

  document.addEventListener("keydown", (event) => {
    if (byId("help").open) return;
    const at = document.activeElement, typing = at === field;
    const action = actionOf(event);
    if (typing) {
      if (action === "search" && event.ctrlKey) { event.preventDefault(); field.select(); }
      else if (event.key === "Escape" && field.value) { field.value = ""; searched(); }
      else if (event.key === "Escape" || event.key === "Enter") {
        focusView();
        if (event.key === "Enter") next(event.shiftKey ? -1 : 1);
      }
      return;
    }
    if (at.tagName === "SELECT") return;
    if (at === byId("table") && table.key(event)) return;
    if (at === byId("outline") && tree.key(event)) return;
    const viewer = { scroller: graph, callers, callees }[at.id];
    if (viewer && (event.key.startsWith("Arrow") || event.key === "Enter")) { viewer.key(event); return; }
    if (!action) return;
    event.preventDefault();
    actions[action]();
  });
  const focusView = () => byId({ sandwich: "callers", top: "table", tree: "outline" }[state.view] || "scroller").focus();

  function searched() {
    // All that is typed in one go is undone in one go.
    change({ q: field.value, ignore: byId("case").checked }, Date.now() - typed < 1000);
    typed = Date.now();
  }
  field.addEventListener("input", searched);
  byId("case").addEventListener("change", searched);
  for (const tab of byId("views").children) tab.addEventListener("click", () => show(tab.dataset.view));
  const buttons = { before: "before", after: "next", keep: "keep", drop: "drop", reset: "reset", undo: "undo", redo: "redo", theme: "theme", "help-open": "help" };
  for (const [id, action] of Object.entries(buttons)) byId(id).addEventListener("click", actions[action]);
  byId("palette").addEventListener("change", (event) => change({ palette: event.target.value }));
  for (const id of ["measure", "widths", "by"]) byId(id).addEventListener("change", (event) => change({ [id]: event.target.value }));
  window.addEventListener("hashchange", () => { state = stateOf(location.hash.slice(1), first); apply(); });
  window.addEventListener("resize", strip.redraw);

  // On paper all of the graph, in light colours.
  let wasDark = false;
  window.addEventListener("beforeprint", () => {
    wasDark = document.documentElement.classList.contains("dark");
    document.documentElement.classList.remove("dark");
    for (const one of graphs) one.unroll(true);
  });
  window.addEventListener("afterprint", () => {
    document.documentElement.classList.toggle("dark", wasDark);
    for (const one of graphs) one.unroll(false);
  });

  // --- What does not change
  byId("subtitle").textContent = profile.subtitle || "";
  const option = (list, value, text) => {
    const made = element("option", "", text);
    made.value = value;
    byId(list).append(made);
  };
  for (const { name } of profile.measures) option("measure", name, name);
  byId("measures").hidden = !!difference || profile.measures.length < 2;
  for (const [id, { title }] of Object.entries(difference ? { ...CHANGE_PALETTES, ...PALETTES } : PALETTES)) option("palette", id, title);
  document.body.classList.toggle("bare", !frames.modules.some(Boolean));
  tellKeys(byId("keys"));
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const follow = () => {
    if (!state.theme) document.documentElement.classList.toggle("dark", system.matches);
    strip.redraw();
    // Changes fade into the ground.
    if (whole && "ready" in document.documentElement.dataset) apply();
  };
  system.addEventListener("change", follow);

  state = stateOf(location.hash.slice(1), first);
  follow();
  apply();
  say("\u00a0");
  if (inGraph() && !state.zoom.length) graph.toBranch();
  document.documentElement.dataset.ready = "";
})().catch((error) => {
  byId("empty").hidden = false;
  byId("empty").textContent = `This browser cannot show the page: ${error.message}`;
  throw error;
});
