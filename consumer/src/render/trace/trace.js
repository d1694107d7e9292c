// The page: the selection, the visible time, and the effects of keys, pointer and address.
(() => {
  const model = traceModel();
  const { spans, count } = model;
  const field = byId("search"), tip = byId("tip");
  const say = (text) => { byId("details").textContent = text; };
  const view = {
    from: 0, to: model.lasts, selected: -1, hovered: -1, within: true, measure: MEASURES[0], matches: null,
    x(time, width) {
      const left = NAMES(width);
      return left + (time - this.from) / (this.to - this.from) * (width - left);
    },
    time(x, width) {
      const left = NAMES(width);
      return this.from + (x - left) / Math.max(1, width - left) * (this.to - this.from);
    },
  };
  const bars = spanBars(byId("bars"), model, view), lanes = threadLanes(byId("lanes"), model, view);
  const flame = flameGraph({
    canvas: byId("canvas"), scroller: byId("scroller"), spacer: byId("spacer"), tip, say,
    zoomed: (node) => { byId("reset").hidden = node < 0; },
  });
  const details = spanDetails(model, view, flame, select);
  const redraw = () => { bars.redraw(); lanes.redraw(); };

  // --- Address: it contains the view, so that it can be shared.
  let quiet = false;
  function remember() {
    if (quiet) return;
    const parts = new URLSearchParams();
    if (view.from > 0 || view.to < model.lasts) parts.set("t", `${Math.round(view.from)}-${Math.round(view.to)}`);
    if (view.selected >= 0) parts.set("span", spans.id[view.selected]);
    if (view.measure !== usual) parts.set("measure", view.measure.key);
    if (!view.within) parts.set("alone", "1");
    if (field.value) parts.set("q", field.value);
    if (byId("case").checked) parts.set("i", "1");
    history.replaceState(null, "", "#" + parts);
  }
  function recall() {
    quiet = true;
    const parts = new URLSearchParams(location.hash.slice(1));
    const [from, to] = (parts.get("t") || "").split("-").map(Number);
    show(from || 0, to > 0 ? to : model.lasts);
    view.measure = MEASURES.find((m) => m.key === parts.get("measure")) || usual;
    view.within = parts.get("alone") !== "1";
    byId("measure").value = view.measure.key;
    byId("within").checked = view.within;
    field.value = parts.get("q") || "";
    byId("case").checked = parts.get("i") === "1";
    select(model.byKey.has(parts.get("span")) ? model.byKey.get(parts.get("span")) : -1);
    search();
    quiet = false;
  }

  // --- Time
  function show(from, to) {
    const shortest = Math.min(100, model.lasts);
    let length = Math.min(Math.max(to - from, shortest), model.lasts);
    if (!Number.isFinite(length)) length = model.lasts;
    view.from = Math.max(0, Math.min(Number.isFinite(from) ? from : 0, model.lasts - length));
    view.to = view.from + length;
    byId("whole").hidden = view.from <= 0 && view.to >= model.lasts;
    redraw();
    remember();
  }
  function zoom(factor, at = (view.from + view.to) / 2) {
    const length = (view.to - view.from) * factor, part = (at - view.from) / (view.to - view.from);
    show(at - length * part, at + length * (1 - part));
  }
  const pan = (part) => {
    const by = (view.to - view.from) * part, from = Math.max(0, Math.min(view.from + by, model.lasts - (view.to - view.from)));
    show(from, from + view.to - view.from);
  };
  const whole = () => show(0, model.lasts);
  function zoomTo(i) {
    if (i < 0) return;
    const room = Math.max((spans.end[i] - spans.start[i]) * 0.03, 50);
    show(spans.start[i] - room, spans.end[i] + room);
  }

  // --- Selection
  function select(i) {
    view.selected = i;
    if (i >= 0) {
      bars.reveal(i);
      say(bars.describe(i).replaceAll("\n", "; "));
    } else say("\u00a0");
    details();
    flame.search(expression() || null);
    redraw();
    remember();
  }
  function measured() {
    details();
    search();
    lanes.redraw();
    remember();
  }

  // --- Search: in names of spans, and of functions in the flame graph.
  function search() {
    const regex = expression();
    view.matches = null;
    byId("flame-matched").textContent = flame.search(regex || null);
    if (regex) {
      view.matches = Uint8Array.from(model.about.spanNames, (name) => regex.test(name) ? 1 : 0);
      let found = 0;
      for (let i = 0; i < count; i++) found += view.matches[spans.name[i]];
      byId("matched").textContent = `${found} of ${count} spans`;
    } else byId("matched").textContent = regex === false ? "not a regular expression" : "";
    redraw();
    remember();
  }
  function next(step) {
    if (!view.matches) return;
    for (let tried = 1, i = view.selected; tried <= count; tried++) {
      i = ((i < 0 && step < 0 ? 0 : i) + step + count) % count;
      if (view.matches[spans.name[i]]) { select(i); return; }
    }
  }

  // --- Keyboard
  document.addEventListener("keydown", (event) => {
    const at = document.activeElement, typing = at === field;
    if ((event.key === "f" && (event.ctrlKey || event.metaKey)) || (event.key === "/" && !typing)) {
      event.preventDefault();
      field.focus();
      field.select();
      return;
    }
    if (event.key === "Escape") {
      if (typing && field.value) { field.value = ""; search(); }
      else if (typing) byId("bars").focus();
      else if (at === byId("scroller")) flame.zoom(-1);
      else if (view.from > 0 || view.to < model.lasts) whole();
      else select(-1);
      return;
    }
    if (typing) {
      if (event.key === "Enter") { byId("bars").focus(); next(event.shiftKey ? -1 : 1); }
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || at === byId("measure")) return;
    if (at === byId("scroller") && flame.key(event)) return;
    // Keys that scroll or press the focused element retain this effect.
    const chart = at === byId("bars") || at === byId("lanes") || at === document.body;
    const keys = {
      "+": () => zoom(0.7), "=": () => zoom(0.7), "-": () => zoom(1 / 0.7), 0: whole,
      n: () => next(1), N: () => next(-1), d: toggleTheme, i: flame.invert,
      w: () => byId("within").click(),
      m: () => {
        const list = byId("measure");
        list.selectedIndex = (list.selectedIndex + 1) % list.options.length;
        list.dispatchEvent(new Event("change"));
      },
      ...(chart && {
        ArrowUp: () => select(Math.max(0, view.selected - 1)),
        ArrowDown: () => select(Math.min(count - 1, view.selected + 1)),
        ArrowLeft: () => pan(-0.1), ArrowRight: () => pan(0.1),
        PageUp: () => pan(-0.9), PageDown: () => pan(0.9),
        Home: () => select(0), End: () => select(count - 1),
        Enter: () => zoomTo(view.selected),
      }),
    };
    if (!Object.hasOwn(keys, event.key)) return;
    event.preventDefault();
    keys[event.key]();
  });

  // --- Pointer: it describes the object below it; a click selects, a drag moves in time or, on the axis, selects a time; the
  // wheel zooms where there is nothing to scroll, and with Ctrl.
  function tell(event, text) {
    tip.textContent = text;
    tip.hidden = !text;
    if (!text) return;
    say(text.replaceAll("\n", "; "));
    placeTip(tip, event);
  }
  function pointed(chart, spanAt, describeAt) {
    const { canvas, scroller } = chart;
    let drag = null;
    const place = (event) => {
      const bounds = canvas.getBoundingClientRect();
      return [event.clientX - bounds.left, event.clientY - bounds.top];
    };
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      const [x, y] = place(event);
      drag = { x, from: view.from, to: view.to, axis: y < RULER, moved: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      const [x, y] = place(event);
      if (drag && (drag.moved || Math.abs(x - drag.x) > 4)) {
        drag.moved = true;
        tell(event, "");
        const per = (drag.to - drag.from) / Math.max(1, chart.width - NAMES(chart.width));
        if (drag.axis) tell(event, `${duration(Math.abs(x - drag.x) * per)}`);
        else show(drag.from - (x - drag.x) * per, drag.to - (x - drag.x) * per);
        return;
      }
      const hovered = chart === bars ? bars.at(x, y) : -1;
      if (hovered !== view.hovered) { view.hovered = hovered; bars.redraw(); }
      tell(event, describeAt(x, y));
    });
    canvas.addEventListener("pointerup", (event) => {
      const was = drag, [x, y] = place(event);
      drag = null;
      if (!was) return;
      if (was.moved && was.axis) {
        const ends = [view.time(was.x, chart.width), view.time(x, chart.width)].sort((a, b) => a - b);
        show(...ends);
      } else if (!was.moved) {
        const span = spanAt(x, y);
        if (span >= 0) select(span);
      }
    });
    canvas.addEventListener("pointercancel", () => { drag = null; });
    canvas.addEventListener("dblclick", () => zoomTo(view.selected));
    canvas.addEventListener("pointerleave", () => { tip.hidden = true; if (view.hovered >= 0) { view.hovered = -1; bars.redraw(); } });
    canvas.addEventListener("wheel", (event) => {
      const [x, y] = place(event), sideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
      const scrolls = scroller.scrollHeight > scroller.clientHeight + 1 && y >= RULER && !event.ctrlKey && !event.metaKey;
      if (scrolls && !sideways) return;
      event.preventDefault();
      const by = event.deltaY || event.deltaX;
      if (sideways) pan(Math.sign(by) * 0.1);
      else zoom(by > 0 ? 1 / 0.8 : 0.8, view.time(Math.max(x, NAMES(chart.width)), chart.width));
    }, { passive: false });
  }
  pointed(bars, (x, y) => bars.at(x, y), (x, y) => {
    const i = bars.at(x, y);
    return i < 0 ? "" : bars.describe(i);
  });
  pointed(lanes, (x, y) => {
    const box = lanes.at(x, y);
    return box ? lanes.spanAt(box) : -1;
  }, (x, y) => {
    const box = lanes.at(x, y);
    return box ? lanes.describe(box) : "";
  });

  // --- Controls
  for (const measure of MEASURES) {
    if (!model.weigh(-1, true, measure).whole) continue;
    const option = document.createElement("option");
    option.value = measure.key;
    option.textContent = measure.name;
    byId("measure").append(option);
  }
  const usual = MEASURES.find((m) => m.key === byId("measure").value) || MEASURES[0];
  byId("measure").addEventListener("change", (event) => {
    view.measure = MEASURES.find((m) => m.key === event.target.value) || usual;
    measured();
  });
  byId("within").addEventListener("change", (event) => { view.within = event.target.checked; measured(); });
  field.addEventListener("input", search);
  byId("case").addEventListener("change", search);
  byId("whole").addEventListener("click", whole);
  byId("reset").addEventListener("click", () => flame.zoom(-1));
  byId("invert").addEventListener("click", flame.invert);
  window.addEventListener("hashchange", recall);

  // --- Texts
  const { about } = model, seen = new Set(model.samples.what);
  WHAT.forEach(({ name, colour }, i) => {
    if (!seen.has(i)) return;
    const mark = document.createElement("span"), text = document.createElement("b");
    mark.style.color = colour;
    text.textContent = name;
    mark.append(text);
    byId("legend").append(mark);
  });
  const left = Object.entries(about.leftOut).filter(([, number]) => number > 0).map(([what, number]) => `${number} ${what}`);
  byId("subtitle").textContent = `${about.began}, ${duration(model.lasts)}: ${plural(count, "span")}, ${plural(model.lanes.length, "thread")}, ` +
    plural(model.spent(-1).samples, "sample") + (left.length ? `; omitted to limit the size: ${left.join(", ")}` : "");

  // --- Layout: as much room as the content needs, up to a part of the window.
  function divide() {
    const room = byId("panels").clientHeight;
    bars.scroller.style.height = Math.min(bars.content(), room * 0.4) + "px";
    lanes.scroller.style.height = Math.min(lanes.content(), room * 0.3) + "px";
  }
  // Prints everything that fits on one sheet, in light colours.
  window.addEventListener("beforeprint", () => {
    document.documentElement.classList.remove("dark");
    for (const chart of [bars, lanes]) {
      chart.scroller.style.height = Math.min(chart.content(), 800) + "px";
      chart.resize();
    }
    byId("scroller").style.height = "400px";
  });
  window.addEventListener("afterprint", () => { byId("scroller").style.height = ""; divide(); });
  window.addEventListener("resize", divide);
  divide();
  const toggleTheme = themes(() => { redraw(); flame.redraw(); });
  recall();
  byId("bars").focus();
})();
