"use strict";
(() => {
  const profile = JSON.parse(byId("profile").textContent);
  const scroller = byId("scroller"), field = byId("search");
  const flame = flameGraph({
    canvas: byId("canvas"),
    scroller,
    spacer: byId("spacer"),
    tip: byId("tip"),
    say: (text) => { byId("details").textContent = text; },
    zoomed: (node) => { byId("reset").hidden = node < 0; },
  });

  function search() {
    const regex = expression();
    const found = flame.search(regex || null);
    byId("matched").textContent = regex === false ? "not a regular expression" : found;
  }

  document.addEventListener("keydown", (event) => {
    const typing = document.activeElement === field;
    const find = event.key === "f" && (event.ctrlKey || event.metaKey);
    if (find || (event.key === "/" && !typing)) {
      event.preventDefault();
      field.focus();
      field.select();
      return;
    }
    if (event.key === "Escape") {
      if (typing && field.value) { field.value = ""; search(); }
      else if (typing) scroller.focus();
      else flame.zoom(-1);
      return;
    }
    if (typing) {
      if (event.key === "Enter") { scroller.focus(); flame.nextMatch(event.shiftKey ? -1 : 1); }
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (!flame.key(event) && event.key === "d") toggleTheme();
  });

  field.addEventListener("input", search);
  byId("case").addEventListener("change", search);
  byId("reset").addEventListener("click", () => flame.zoom(-1));
  byId("invert").addEventListener("click", flame.invert);
  byId("subtitle").textContent = profile.subtitle || "";
  flame.load(profile, boxes("nodes", profile.count), profile);
  if (profile.inverted) flame.invert();
  else scroller.scrollTop = scroller.scrollHeight;
  const toggleTheme = themes(flame.redraw);
})();
