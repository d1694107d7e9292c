"use strict";
/**
 * Messages to a page that shows this one in a frame: the reader's position, so that a later picture can start there, and keys
 * without a function here. `text()`: the state for an address, `path()`: the current path, `looked()`: whether the reader has
 * navigated.
 */
function framed({ scroller, text, path, looked }) {
  const given = new URLSearchParams(location.hash.slice(1)), outside = window.parent !== window;
  let home = null, asked = false, told = "";
  // Distance from the root, because the part above it grows.
  const ofRoot = (inverted) => Math.round(inverted ? scroller.scrollTop : scroller.scrollHeight - scroller.clientHeight - scroller.scrollTop);
  let inverted = false, over = false;
  function tell() {
    asked = false;
    const scrolled = Math.abs(ofRoot(inverted) - home) > 2, parts = new URLSearchParams(text()), on = path();
    if (on.length) parts.set("on", joined(on));
    if (scrolled) parts.set("top", ofRoot(inverted));
    const now = { flightline: "state", state: parts.toString(), held: over || scrolled || on.length > 0 || looked() };
    if (JSON.stringify(now) === told) return;
    told = JSON.stringify(now);
    window.parent.postMessage(now, "*");
  }
  const changed = () => {
    if (!outside || home === null || asked) return;
    asked = true;
    requestAnimationFrame(tell);
  };
  const pointed = (now) => () => {
    if (over === now) return;
    over = now;
    changed();
  };
  document.documentElement.addEventListener("mousemove", pointed(true));
  document.documentElement.addEventListener("mouseleave", pointed(false));
  return {
    changed,
    key({ key }) { if (outside && key.length === 1) window.parent.postMessage({ flightline: "key", key }, "*"); },
    /** When everything is drawn: restores the reader's position from an earlier picture. */
    begin(of, focus) {
      inverted = of;
      home = ofRoot(inverted);
      if (given.get("on")) focus(parted(given.get("on")));
      const top = Number(given.get("top"));
      if (given.has("top") && top >= 0) scroller.scrollTop = inverted ? top : scroller.scrollHeight - scroller.clientHeight - top;
      scroller.addEventListener("scroll", changed);
      changed();
    },
  };
}
