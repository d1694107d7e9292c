// The selected span: its properties and its flame graph.

function spanDetails(model, view, flame, select) {
  const { spans } = model;

  function element(name, text, of) {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (of) of.append(made);
    return made;
  }

  function facts() {
    const box = byId("facts"), i = view.selected;
    box.textContent = "";
    element("h2", i < 0 ? "All spans of the trace" : model.nameOf(i), box);
    if (i >= 0) {
      const inferred = spans.flags[i] & INFERRED;
      const untimed = spans.flags[i] & UNTIMED ? "; its end was not recorded, so it is drawn up to its last sample" : "";
      element("p", `${inferred ? "inferred from samples: " : ""}from ${duration(spans.start[i])} for ` +
        duration(spans.end[i] - spans.start[i]) + untimed, box);
    }
    // The sums of an inferred span are part of its parent's, so its samples are added up here.
    const inferred = i >= 0 && spans.flags[i] & INFERRED;
    const sums = (within) => inferred
      ? Object.fromEntries(MEASURES.map((m) => [m.key, model.weigh(i, within, m).whole])) : model.spent(i, within);
    const own = sums(i < 0), all = i < 0 || inferred ? null : sums(true);
    const table = element("table", undefined, box), head = element("tr", undefined, table);
    for (const text of ["", i < 0 ? "total" : "this span", ...(all ? ["with child spans"] : [])]) element("th", text, head).className = text && "number";
    for (const measure of MEASURES) {
      if (!own[measure.key] && !(all && all[measure.key])) continue;
      const row = element("tr", undefined, table);
      element("th", measure.name, row);
      for (const of of all ? [own, all] : [own]) element("td", amountOf(measure, of[measure.key]), row).className = "number";
    }
    if (i < 0) return;
    const { own: weights, whole } = model.weigh(i, view.within, view.measure);
    const top = functions(weights);
    if (top.length) {
      element("h3", `Top functions by ${view.measure.name}`, box);
      const table = element("table", undefined, box);
      for (const [label, weight] of top) {
        const row = element("tr", undefined, table);
        element("td", (100 * weight / whole).toFixed(1) + " %", row).className = "number";
        element("td", model.frames.names[label], row);
      }
    }
    const pairs = [["span", spans.id[i]]];
    if (model.parent[i] >= 0) pairs.push(["parent span", model.nameOf(model.parent[i])]);
    const lanes = new Set((model.scopesOf.get(i) || []).map((s) => model.scopes.lane[s]));
    if (spans.lane[i] >= 0) lanes.add(spans.lane[i]);
    if (lanes.size) pairs.push([lanes.size > 1 ? "threads" : "thread", [...lanes].map((l) => `${model.lanes[l].name} ${model.lanes[l].id || ""}`).join(", ")]);
    if (spans.callers[i]) pairs.push(["called by", spans.callers[i].join(" ← ")]);
    pairs.push(...Object.entries(spans.labels[i] || {}));
    element("h3", "Attributes", box);
    const list = element("table", undefined, box);
    for (const [key, value] of pairs) {
      const row = element("tr", undefined, list);
      element("th", key, row);
      element("td", value, row);
    }
    if (model.parent[i] >= 0) {
      const button = element("button", "Select the parent span", box);
      button.type = "button";
      button.addEventListener("click", () => select(model.parent[i]));
    }
  }

  /** Functions with the largest weights. */
  function functions(own) {
    const by = new Map();
    own.forEach((weight, node) => {
      if (weight > 0) by.set(model.calls.label[node], (by.get(model.calls.label[node]) || 0) + weight);
    });
    return [...by].sort((a, b) => b[1] - a[1]).slice(0, 8);
  }

  function graph() {
    const { own, whole } = model.weigh(view.selected, view.within || view.selected < 0, view.measure);
    const nothing = whole <= 0;
    byId("nothing").hidden = !nothing;
    byId("scroller").hidden = nothing;
    if (nothing) {
      const others = MEASURES.filter((m) => model.weigh(view.selected, view.within || view.selected < 0, m).whole > 0);
      byId("nothing").textContent = `No samples of ${view.measure.name} in ${view.selected < 0 ? "this trace" : "this span without its child spans"}. ` +
        (others.length ? `There are samples of ${others.map((m) => m.name).join(", ")}.` : view.within || view.selected < 0 ? "" : "Select “including child spans” above to add theirs.");
    }
    byId("reset").hidden = true;
    flame.load(model.frames, new CallTree(model.callsOf(own), whole), view.measure.unit);
    if (!nothing) flame.toBranch();
  }

  return () => { facts(); graph(); };
}
