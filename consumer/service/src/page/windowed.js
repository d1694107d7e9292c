// A list of any length that creates elements only for the visible items.
import { arrange, element } from "./dom.js";

const BEYOND = 6;

/**
 * `items` of `show` are `{ key, height }`; `make(item)` creates the element of a key once, `update(made, item)` updates it. An element
 * lives while it is visible, and stays the same when its position changes.
 */
export function windowed(scroller, { make, update }) {
  const body = element("div", { className: "rows" });
  body.setAttribute("role", "presentation");
  scroller.append(body);
  let items = [], tops = [], height = 0, made = new Map();

  /** Index of the first item that ends below `y`. */
  function at(y) {
    let low = 0, high = items.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (tops[middle] + items[middle].height > y) high = middle;
      else low = middle + 1;
    }
    return low;
  }
  function draw() {
    const first = Math.max(0, at(scroller.scrollTop) - BEYOND);
    const last = Math.min(items.length, at(scroller.scrollTop + scroller.clientHeight) + 1 + BEYOND);
    const kept = new Map(), rows = [];
    for (let i = first; i < last; i++) {
      const item = items[i], row = made.get(item.key) || make(item);
      update(row, item);
      if (row.top !== tops[i]) row.style.transform = `translateY(${row.top = tops[i]}px)`;
      kept.set(item.key, row);
      rows.push(row);
    }
    made = kept;
    arrange(body, rows);
  }
  let asked = false;
  scroller.addEventListener("scroll", () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => { asked = false; draw(); });
  });
  new ResizeObserver(draw).observe(scroller);

  return {
    show(all) {
      items = all;
      tops = [];
      height = 0;
      for (const item of items) {
        tops.push(height);
        height += item.height;
      }
      body.style.height = height + "px";
      draw();
    },
    redraw: draw,
    reveal(index, middle = false) {
      const item = items[index];
      if (!item) return;
      if (middle) scroller.scrollTop = tops[index] - (scroller.clientHeight - item.height) / 2;
      const top = tops[index], under = top + item.height - scroller.clientHeight;
      // Also show the head of the group.
      const from = items[index - 1]?.head ? top - items[index - 1].height : top;
      if (from < scroller.scrollTop) scroller.scrollTop = from;
      else if (under > scroller.scrollTop) scroller.scrollTop = under;
      draw();
    },
    /** Number of items that fit. */
    get page() { return Math.max(1, Math.floor(scroller.clientHeight / (items.at(-1)?.height || 1)) - 1); },
  };
}
