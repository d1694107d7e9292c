"use strict";
/**
 * What a page that shows this one in a frame hears: where the reader is, so that a later picture can begin there, and the keys that have no
 * use here. `text()`: the state for an address, `path()`: what is current, `looked()`: whether the reader has gone anywhere.
 */
function framed({ scroller, text, path, looked }) {
  const given = new URLSearchParams(location.hash.slice(1)), outside = window.parent !== window;
  let home = null, asked = false, told = "";
  // From the root on: what is above it grows.
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
    /** When all is drawn: goes to where the reader was in an earlier picture. */
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
