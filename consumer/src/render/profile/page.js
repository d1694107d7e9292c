"use strict";
// The page: one state, which actions change and the address holds, and the views that show it.
(async () => {
  const { profile, frames, trees, times } = await profileData();
  const { names } = frames, functions = names.length, { difference } = profile, { ratio } = difference || {}, past = new Past();
  const isTimed = times.some(Boolean);
  const region = (difference || isTimed) && { after: regionLabel(frames, ratio ? `[no ${ratio.of}]` : "[only before]"), before: regionLabel(frames, "[only after]") };
  const handles = new Handles(frames);
  const first = firstState(profile.inverted ? "icicle" : "flame");
  if (profile.palette) first.palette = profile.palette;
  if (difference) Object.assign(first, { widths: difference.widths, by: difference.by, palette: difference.colors });
  let state = { ...first }, words = "", current = -1, idle = true;
  const details = byId("details"), field = byId("search");
  // Without a box to describe, the total.
  const say = (text) => {
    idle = text === "\u00a0";
    details.textContent = idle ? describeBox(base(), frames, unit(), -1) : text;
  };

  // --- Views
  const inGraph = (view = state.view) => ["flame", "icicle", "reverse"].includes(view);
  const strip = matchMap(byId("map"), () => byId("scroller").clientWidth);
  const menu = boxMenu();
  const ask = (of) => (box, event) => menu.open(event, of().scroller, [
    ["Copy name", () => copy()], ["Copy stack", () => copyStack(of().graph.tree, box)],
    ["Search for it", () => change({ q: `^${escaped(names[of().graph.tree.label[box]])}$`, ignore: false })],
    ["Callers and callees", () => opened(() => of().graph.tree)(box)], ...transformItems(of().graph.tree.label[box]),
  ]);
  const transformItems = (label) => label >= functions ? [] : [
    ["Collapse: hide its callees", () => transform("collapse")],
    ...recurses(label) ? [["Collapse direct recursion", () => transform("recursion")]] : [],
    ["Merge into its callers", () => transform("merge")],
  ];
  const opened = (tree) => (box) => change({ view: "sandwich", fn: handles.of(tree().label[box]), zoom: [] });
  const graph = flameGraph({
    canvas: byId("canvas"), scroller: byId("scroller"), spacer: byId("spacer"), tip: byId("tip"), say,
    drawn: (from, span) => strip.window(from, span),
    zoomed: (box) => { if (!applying) change({ zoom: handles.path(graph.tree, box) }); },
    focused: (box) => {
      current = box < 0 || graph.tree.of && graph.tree.of[box] < 0 ? -1 : graph.tree.label[box];
      outer.changed();
    },
    opened: (box) => opened(() => graph.tree)(box), asked: ask(() => ({ graph, scroller: byId("scroller") })),
  });
  const pane = (id) => {
    const scroller = byId(id), own = flameGraph({
      canvas: scroller.querySelector("canvas"), scroller, spacer: scroller.querySelector(".spacer"), tip: byId("tip"), say,
      zoomed: (box) => { byId("reset").hidden = box < 0; },
      focused: (box) => { if (box >= 0) current = own.tree.label[box]; },
      opened: (box) => opened(() => own.tree)(box), asked: ask(() => ({ graph: own, scroller })),
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
  const chart = isTimed && flameChart({
    canvas: byId("chart-canvas"), scroller: byId("chart-scroll"), spacer: byId("chart-scroll").firstElementChild, tip: byId("tip"), say,
    zoomed: (range, how) => change({ at: range }, how), focused: (box) => { current = base().label[box]; }, opened: (box) => opened(base)(box),
  });
  // CPU samples, even if another event is shown, and their measure in ns.
  const cpuTimes = profile.times && times[profile.times.cpu], cpuMeasure = cpuTimes && profile.measures.find(({ event, unit, at }) => event === profile.times.cpu && unit === "ns" && cpuTimes.knows(at));
  const cpu = cpuMeasure ? { times: cpuTimes, measure: cpuMeasure.at } : null;
  const linked = linkedGraphs({
    into: byId("three"), tip: byId("tip"), say,
    zoomed: (box) => change({ zoom: handles.path(base(), box) }), focused: (box) => { if (box >= 0) current = base().label[box]; }, opened: (box) => opened(base)(box),
  });
  const outer = framed({
    scroller: byId("scroller"), text: () => stateText(state, first), path: () => inGraph() && graph.focused >= 0 ? handles.path(graph.tree, graph.focused) : [],
    looked: () => state.view !== first.view || !!(state.zoom.length || state.q || state.filters.length || state.transforms.length || state.time || state.at || state.threads.length),
  });
  const graphs = [graph, callers, callees];
  const shown = () => ({ sandwich: document.activeElement === byId("callees") ? callees : callers, three: linked.current }[state.view] || graph);

  const heat = isTimed && heatMap({ canvas: byId("heat-map"), scroller: byId("heat-scroll"), side: byId("heat-axis"), say, picked: (...of) => picked(...of) });

  const { once, event, timed, measures, present, measure, unit, lanes, whole, pair, palette, base, byWeight, drawn, foundBoxes, stacked, recurses, reverse, sums, middle, wanted } =
    derived({ profile, frames, trees, times, functions, region, handles, state: () => state });

  // By default, lines are ordered by weight, and graphs by name.
  const orderOf = (view) => view === "tree" ? "lines" : "order";

  // --- From the state to the view
  let applying = false, said = -1, listed = -1;
  function apply() {
    applying = true;
    byId("views").querySelector("[data-view=three]").hidden = !whole() || !!ratio;
    if (state.view === "three" && (ratio || !whole()) || state.view === "chart" && !timed()) state.view = first.view;
    const { view } = state, colours = palette(), paint = once("paint", colours, () => painter(colours, frames));
    document.body.dataset.view = view;
    for (const tab of byId("views").children) tab.setAttribute("aria-selected", tab.dataset.view === view);
    tellEvent();
    tellPalettes();
    byId("palette").value = colours;
    byId("order").value = state[orderOf(view)];
    byId("widths").value = state.widths;
    byId("by").value = state.by;
    document.body.classList.toggle("compared", !!pair());
    if (state.theme) document.documentElement.classList.toggle("dark", state.theme === "dark");
    const naming = Object.hasOwn(NAMINGS, state.names) ? state.names : first.names;
    for (const one of graphs) {
      one.colours(colours);
      one.name(naming);
    }
    const empty = !(base().all > 0);
    byId("empty").hidden = !empty;
    byId("empty").textContent = empty ? "No stack matches. Press Undo or remove a filter above." : "";
    if (inGraph()) showGraph();
    if (view === "three") showThree(colours, naming);
    if (view === "sandwich") showSandwich();
    if (view === "top" || view === "sandwich") showTable(paint);
    if (view === "tree") tree.show(frames, base(), unit(), wanted(), paint, state.lines === "name");
    if (view === "chart") showChart(paint, naming);
    byId("reset").hidden = !((inGraph() || view === "three") && state.zoom.length) && !(view === "chart" && state.at);
    tellLegend();
    tellFilters();
    tellMatches();
    if (isTimed) showHeat();
    if (idle || said !== measure()) say("\u00a0");
    said = measure();
    applying = false;
    outer.changed();
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
  function showThree(colours, naming) {
    const palettes = Object.hasOwn(CHANGE_PALETTES, colours) ? ["kind", colours] : [colours, "change"];
    linked.show({ frames, pair: pair(), all: base(), byWeight: byWeight(), unit: unit(), palettes, naming, inverted: state.turned, zoom: state.zoom, found: wanted(), handles });
  }
  /** The event and the measure; if the event changed, also its measures, headline and threads. */
  function tellEvent() {
    const of = event(), times = timed();
    // The page has the durations of all events only, not those of a selection.
    const isPart = state.filters.length || times && (state.time || state.than || state.threads.length);
    byId("latency-covers").textContent = isPart ? " (all events: filters do not apply)" : "";
    byId("event").value = profile.events[of].name;
    if (listed !== of) {
      listed = of;
      byId("measure").textContent = "";
      for (const i of measures()) option("measure", profile.measures[i].name, profile.measures[i].name);
      byId("measures").hidden = !!difference || measures().length < 2;
      byId("subtitle").textContent = profile.subtitle || profile.events[of].subtitle || "";
      showLatency(byId("latency"), profile.events[of].latency);
      byId("heat-open").hidden = byId("views").lastElementChild.hidden = !times;
      if (times) listThreads(times);
    }
    byId("measure").value = profile.measures[measure()].name;
  }
  function listThreads(times) {
    heat.load(times);
    byId("thread-list").textContent = "";
    for (const { name, samples } of [...times.lanes].sort((a, b) => b.samples - a.samples)) {
      const label = element("label"), box = element("input");
      [box.type, box.value] = ["checkbox", name];
      box.addEventListener("change", () => change({ threads: [...byId("thread-list").querySelectorAll("input:checked")].map(({ value }) => value) }));
      label.append(box, ` ${name} (${grouped.format(samples)})`);
      byId("thread-list").append(label);
    }
  }
  function showChart(paint, naming) {
    const times = timed(), time = profile.measures[measures().find((i) => profile.measures[i].unit === "ns" && times.knows(profile.measures[i].at))]?.at ?? -1;
    chart.show({ frames, tree: base(), times, lanes: stacked(), measure: time, cpu, range: state.time, view: state.at, paint, naming, wanted: wanted(), regex: state.q ? regexOf(state.q, state.ignore) : null,
      others: state.threads.length ? [] : times.lasting.others });
    const { leftOut } = times.lasting;
    byId("chart-note").hidden = !leftOut;
    byId("chart-note").textContent = leftOut ? `Only the longest events are shown; ${grouped.format(leftOut)} shorter ones are omitted.` : "";
  }
  function showHeat() {
    const times = timed();
    byId("heat").hidden = !state.heat || !times;
    byId("heat-open").setAttribute("aria-expanded", state.heat);
    if (!state.heat || !times) return;
    const { threads } = state, [ms, count] = SCALES[heat.scale];
    heat.show({ lanes: lanes(), range: state.time, than: state.than, wanted: foundBoxes() });
    byId("heat-title").textContent = `Column: ${lengthText(ms * count)}; cell: ${lengthText(ms)}, up to ${amountIn("samples", heat.most)}`;
    byId("threads").firstElementChild.textContent = threads.length ? `${lanes().length} of ${times.lanes.length} threads` : times.lanes.length === 1 ? "1 thread" : `All ${times.lanes.length} threads`;
    for (const box of byId("thread-list").querySelectorAll("input")) box.checked = threads.includes(box.value);
  }
  function tellPalettes() {
    const list = byId("palette"), both = !!whole();
    if (list.dataset.both === String(both)) return;
    list.dataset.both = both;
    list.textContent = "";
    for (const [id, { title }] of Object.entries(both ? { ...CHANGE_PALETTES, ...PALETTES } : PALETTES)) option("palette", id, title);
  }
  function showTable(paint) {
    const of = pair(), content = of ? changeColumns(frames, of, unit()) : once("columns", base(), () => functionColumns(frames, base(), unit(), sums()));
    table.show(frames, content, wanted(), state.sort, of && CHANGE_PALETTES[palette()] ? content.colour : paint, state.view === "sandwich" ? middle() : undefined);
  }
  function showSandwich() {
    const label = middle(), key = base();
    const [up, down] = [true, false].map((upwards) => once([upwards, byWeight(), label].join(), key, () => around(key, names.length, label, upwards, byWeight())));
    byId("middle").textContent = names[label];
    if (callers.tree !== up) { callers.load(frames, up, unit()); callers.home(); }
    if (callees.tree !== down) { callees.load(frames, down, unit()); callees.home(); }
    [callers, callees].forEach((one) => one.mark(wanted()));
    current = label;
  }
  /** Weight and subtrees of `found` in a tree. A lazily merged tree may have more of them later. */
  const latest = new WeakMap();
  function matchedIn(of, found) {
    const known = latest.get(of);
    if (known && known.found === found) return known;
    const towers = [], grain = of.all / 8192;
    // Subtrees closer than a pixel are merged.
    const weight = of.matched(found, (from, width) => {
      const last = towers.length - 2;
      if (last >= 0 && from - towers[last] - towers[last + 1] < grain) towers[last + 1] = from + width - towers[last];
      else towers.push(from, width);
    }), told = { found, weight, towers };
    if (of instanceof CallTree) latest.set(of, told);
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
      const of = matchedIn(base(), found), shows = present(), hit = found.reduce((sum, is, label) => sum + (is && shows[label]), 0);
      const both = pair(), count = `${grouped.format(hit)} ${hit === 1 ? "function" : "functions"}`;
      words = both ? `Matched: ${changeText(both, unit(), both.change(both.before.matched(found), both.after.matched(found)))} (${count})`
        : `Matched: ${percentOf(of.weight, base().whole)} (${amountIn(unit(), of.weight)}, ${count})`;
    }
    if (found && state.view === "chart" && timed().lasting.names.length) words += ` · ${amountIn("events", chart.eventsMatched())}`;
    byId("matched").textContent = words;
    if (inGraph()) strip.mark(found ? matchedIn(graph.tree, found).towers : [], graph.tree.all);
  }
  /** Groups of a palette that occur in the current view. */
  const shownGroups = ({ group }) => once("groups" + palette(), base(), () => {
    const shows = present();
    return new Set(names.map((name, label) => shows[label] ? group(name, frames.kinds[label], frames.application) : null));
  });
  function tellLegend() {
    const of = (PALETTES[palette()] || PALETTES.kind), legend = byId("legend"), both = pair();
    legend.textContent = "";
    if (both && CHANGE_PALETTES[palette()]) return both.legend().forEach(([of, title]) => tellColour(title, both.colour(of, "")));
    const entries = typeof of.legend === "function" ? of.legend(frames.application) : of.legend || [];
    for (const [name, title, kinds] of entries) {
      if (of.byName) {
        if (names.includes(name)) tellColour(title, of.of(name, "", kinds));
        continue;
      }
      if (of.group && !shownGroups(of).has(of.group(name, kinds, frames.application))) continue;
      tellColour(title, of.of(name, "", kinds, false, frames.application));
    }
    // Shown above the stacks of the chart.
    if (state.view === "chart" && cpu) tellColour("CPU use of a thread", CPU_COLOUR);
    if (state.view === "chart") LASTING.forEach(([title, colour], kind) => { if (timed().lasting.of.includes(kind)) tellColour(title, colour); });
  }
  function tellColour(title, colour) {
    const entry = element("span", "", title), mark = element("i");
    mark.style.background = css(colour);
    entry.prepend(mark);
    byId("legend").append(entry);
  }
  function tellFilters() {
    // The selected range is shown below the map, because the map must not move during a selection.
    const times = timed(), list = byId("filters"), chosen = times && state.heat ? byId("heat-chosen") : list;
    for (const of of [list, byId("heat-chosen")]) of.textContent = "";
    const chip = (into, text, without) => {
      const made = element("button", "chip", text + " ×");
      made.type = "button";
      made.title = "Remove this";
      made.addEventListener("click", () => change(without));
      into.append(made);
    };
    if (times && state.time) chip(chosen, rangeText(state.time), { time: null });
    if (times && state.than) chip(chosen, `compared with ${rangeText(state.than)}`, { than: null });
    if (times) state.threads.forEach((name) => chip(chosen, name, { threads: state.threads.filter((other) => other !== name) }));
    state.filters.forEach(({ keep, source }, i) => chip(list, `${keep ? "only" : "without"} ${source}`, { filters: state.filters.filter((_, other) => other !== i) }));
    state.transforms.forEach(({ kind, fn }, i) => chip(list, `${TRANSFORMS[kind].text} ${fn}`, { transforms: state.transforms.filter((_, other) => other !== i) }));
    const last = list.children.length ? list : chosen;
    if (last.children.length) {
      const both = pair(), all = trees[measure()].whole;
      last.append(element("span", "left", both ? changeText(both, unit(), both.all()) : `${percentOf(base().all, all)} of ${amountIn(unit(), all)}`));
    }
    byId("undo").disabled = !past.before.length;
    byId("redo").disabled = !past.behind.length;
  }

  // --- From actions to the state
  let typed = 0;
  /**
   * `how`: "quiet" continues the previous action, and is undone with it; "passing" continues at once, without changing the
   * address.
   */
  function change(part, how) {
    typed = 0;
    const before = stateText(state, first);
    state = { ...state, ...part };
    const now = stateText(state, first);
    if (now !== before && !how) past.add(before);
    if (how !== "passing") remember(now);
    apply();
  }
  function remember(text) {
    // Browsers refuse this if a page may not have an address, or changes it too often.
    try { history.replaceState(null, "", text ? "#" + text : location.pathname + location.search); } catch { /* shown all the same */ }
  }
  const read = (text) => {
    const told = stateOf(text, first);
    told.transforms = told.transforms.filter(({ fn }) => handles.label(fn) >= 0);
    // Ignores threads that no event has.
    told.threads = told.threads.filter((name) => times.some((of) => of && of.lanes.some((lane) => lane.name === name)));
    return told;
  };
  function back(way) {
    const text = past.go(way, stateText(state, first));
    if (text === undefined) return;
    state = read(text);
    remember(text);
    apply();
  }
  function show(view) {
    if (view === "three" && (ratio || !whole())) return say("There is nothing to compare. Run flightline diff with two profiles, or select two ranges of the heat map.");
    const same = inGraph(view) && inGraph() && (view === "reverse") === (state.view === "reverse");
    const fn = view === "sandwich" && current >= 0 ? handles.of(current) : state.fn;
    change({ view, fn, turned: false, zoom: same ? state.zoom : [] });
    focusView();
  }
  const escaped = (text) => text.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&");
  /** By the search, or else by the current function. */
  function filter(keep) {
    const source = wanted() ? state.q : current >= 0 ? `^${escaped(names[current])}$` : "";
    if (!source) return;
    change({ filters: [...state.filters, { keep, source, ignore: wanted() ? state.ignore : false }], q: "", zoom: [] });
  }
  /** Transforms the tree by the current function. */
  function transform(kind) {
    if (current < 0 || current >= functions) return say("No function is selected. Click a box, or move to one with the arrow keys.");
    if (kind === "recursion" && !recurses(current)) return say(`${names[current]} does not call itself directly. Calls through other functions (a → b → a) are not collapsed.`);
    const fn = handles.of(current), part = { transforms: [...state.transforms, { kind, fn }] };
    if (kind === "merge") {
      Object.assign(part, { zoom: state.zoom.filter((one) => one !== fn), fn: state.fn === fn ? "" : state.fn });
      current = -1;
    }
    change(part);
  }
  function next(step) {
    if (!wanted()) return;
    if (state.view === "tree") return nextLine(step);
    if (state.view === "top") return table.key({ key: step > 0 ? "ArrowDown" : "ArrowUp", preventDefault() {} });
    const inChart = state.view === "chart", [at, of] = inChart ? chart.nextEvent(step) : shown().nextMatch(step);
    byId("matched").textContent = of ? `${words} · ${grouped.format(at)} / ${grouped.format(of)}` : inChart ? `${words} · no event` : `${words} · not in this view`;
  }
  function nextLine(step) {
    const of = base(), found = wanted(), is = (i) => i >= 0 && i < of.count && of.total[i] > 0 && found[of.label[i]];
    let i = tree.current < 0 && step < 0 ? of.count : tree.current;
    do i += step; while (i >= 0 && i < of.count && !is(i));
    if (is(i)) tree.reveal(i);
  }
  async function copy(text = current < 0 ? "" : names[current]) {
    if (!text) return;
    try { await navigator.clipboard.writeText(text); say(`Copied: ${text}`); } catch { say(`Could not copy: ${text}`); }
  }
  /** As a line of folded text: from the root, however the tree is merged. */
  function copyStack(of = state.view === "tree" ? base() : shown().tree, box = state.view === "tree" ? tree.current : shown().focused) {
    if (!of || box < 0) return;
    const path = pathTo(of, box).map((at) => names[of.label[at]]);
    copy((of.ends ? path.reverse() : path).join(";"));
  }
  const turnOver = () => {
    if (state.view === "flame" || state.view === "icicle") change({ view: state.view === "flame" ? "icicle" : "flame", turned: false });
    else if (state.view === "reverse" || state.view === "three") change({ turned: !state.turned });
  };
  const nextOf = (id, list = byId(id)) => {
    list.selectedIndex = (list.selectedIndex + 1) % list.options.length;
    list.dispatchEvent(new Event("change"));
  };
  const reset = () => {
    if (inGraph() || state.view === "three") change({ zoom: [] });
    else if (state.view === "chart") change({ at: null });
    else [callers, callees].forEach((one) => one.zoom(-1));
  };
  const nameBoxes = () => {
    const ways = Object.keys(NAMINGS), to = ways[(ways.indexOf(state.names) + 1) % ways.length];
    change({ names: to });
    say(`Names on boxes: ${to} (${NAMINGS[to]})`);
  };
  const theme = () => change({ theme: document.documentElement.classList.contains("dark") ? "light" : "dark" });
  function picked(range, other, how) {
    const part = range === null ? { time: null, than: null } : other ? { than: range } : { time: range };
    change({ ...part, at: null }, how);
  }
  const openHeat = () => {
    if (!timed()) return say("This page has no timestamps of samples.");
    change({ heat: !state.heat });
    if (state.heat) byId("heat-scroll").focus({ preventScroll: true });
  };
  const actions = {
    heat: openHeat, flame: () => show("flame"), reverse: () => show("reverse"), sandwich: () => show("sandwich"), three: () => show("three"), top: () => show("top"),
    tree: () => show("tree"), chart: () => timed() && show("chart"), invert: turnOver, event: () => nextOf("event"), measure: () => nextOf("measure"), palette: () => nextOf("palette"), order: () => nextOf("order"), names: nameBoxes, theme,
    search: () => { field.focus(); field.select(); }, next: () => next(1), before: () => next(-1),
    keep: () => filter(true), drop: () => filter(false), collapse: () => transform("collapse"), recursion: () => transform("recursion"), merge: () => transform("merge"), reset, copy: () => copy(), stack: () => copyStack(), undo: () => back(true), redo: () => back(false),
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
    if (at === byId("heat-scroll") && heat.key(event)) return showHeat();
    if (at === byId("chart-scroll") && chart.key(event)) return;
    if (at === byId("table") && table.key(event)) return;
    if (at === byId("outline") && tree.key(event)) return;
    const viewer = { scroller: graph, callers, callees }[at.id] || linked.at(at);
    if (viewer && (event.key.startsWith("Arrow") || event.key === "Enter")) { viewer.key(event); return; }
    if (!action) return event.ctrlKey || event.metaKey || event.altKey ? undefined : outer.key(event);
    event.preventDefault();
    // Passes an Escape without a function here to a page that shows this one in a frame.
    if (event.key === "Escape" && byId("reset").hidden && window.parent !== window) window.parent.postMessage("flightline:escape", "*");
    actions[action]();
  });
  const focusView = () => byId({ sandwich: "callers", three: "linked-after", top: "table", tree: "outline", chart: "chart-scroll" }[state.view] || "scroller").focus({ preventScroll: true });

  function searched() {
    // Continuous typing is a single step for undo.
    change({ q: field.value, ignore: byId("case").checked }, Date.now() - typed < 1000 ? "quiet" : "");
    typed = Date.now();
  }
  field.addEventListener("input", searched);
  byId("case").addEventListener("change", searched);
  for (const tab of byId("views").children) tab.addEventListener("click", () => show(tab.dataset.view));
  const buttons = { "heat-open": "heat", before: "before", after: "next", keep: "keep", drop: "drop", reset: "reset", undo: "undo", redo: "redo", theme: "theme", "help-open": "help" };
  for (const [id, action] of Object.entries(buttons)) byId(id).addEventListener("click", actions[action]);
  byId("palette").addEventListener("change", (event) => change({ palette: event.target.value }));
  byId("order").addEventListener("change", (event) => change({ [orderOf(state.view)]: event.target.value }));
  for (const id of ["event", "measure", "widths", "by"]) byId(id).addEventListener("change", (event) => change({ [id]: event.target.value }));
  window.addEventListener("hashchange", () => { state = read(location.hash.slice(1)); apply(); });
  window.addEventListener("resize", strip.redraw);

  // Prints the whole graph in light colours.
  let wasDark = false;
  window.addEventListener("beforeprint", () => {
    wasDark = document.documentElement.classList.contains("dark");
    document.documentElement.classList.remove("dark");
    for (const one of [...graphs, ...linked.graphs]) one.unroll(true);
  });
  window.addEventListener("afterprint", () => {
    document.documentElement.classList.toggle("dark", wasDark);
    for (const one of [...graphs, ...linked.graphs]) one.unroll(false);
  });

  // --- Constant parts
  const option = (list, value, text) => {
    const made = element("option", "", text);
    made.value = value;
    byId(list).append(made);
  };
  profile.events.forEach(({ name }, i) => {
    const { unit: of, total } = profile.measures.find(({ event: at }) => at === i);
    option("event", name, `${name} (${amountIn(of, total)})`);
  });
  byId("events").hidden = profile.events.length < 2;
  document.body.classList.toggle("bare", !frames.modules.some(Boolean));
  document.body.classList.toggle("ratio", !!ratio);
  tellKeys(byId("keys"));
  if (isTimed) {
    // Next to the selection that they refer to, where they move nothing.
    byId("heat-bar").append(...document.querySelectorAll(".two"));
    byId("finer").addEventListener("click", () => { heat.turn(heat.scale - 1); showHeat(); });
    byId("coarser").addEventListener("click", () => { heat.turn(heat.scale + 1); showHeat(); });
  }
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const follow = () => {
    if (!state.theme) document.documentElement.classList.toggle("dark", system.matches);
    strip.redraw();
    // Colours of changes depend on the background.
    if ((isTimed || whole()) && "ready" in document.documentElement.dataset) apply();
  };
  system.addEventListener("change", follow);

  state = read(location.hash.slice(1));
  follow();
  apply();
  say("\u00a0");
  if (inGraph() && !state.zoom.length) graph.toBranch();
  outer.begin(graph.inverted, (path) => { if (inGraph()) graph.focus(handles.follow(graph.tree, path)); });
  document.documentElement.dataset.ready = "";
  warmUp(trees[0], names.length);
})().catch((error) => {
  byId("empty").hidden = false;
  byId("empty").textContent = `This browser cannot show the page: ${error.message}`;
  throw error;
});
