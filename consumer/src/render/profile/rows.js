"use strict";
/**
 * A list of many rows in `scroller`; only visible rows are elements. `make(i)` returns the element of a row. The style's `--row`
 * is the height of rows.
 */
function rowList(scroller, make) {
  const body = document.createElement("div");
  body.className = "rows";
  scroller.append(body);
  const height = 22;
  let count = 0, shown = "";
  function draw(anew) {
    const first = Math.max(0, Math.floor(scroller.scrollTop / height) - 5);
    const last = Math.min(count, first + Math.ceil(scroller.clientHeight / height) + 10);
    if (!anew && shown === first + "-" + last) return;
    shown = first + "-" + last;
    body.textContent = "";
    for (let i = first; i < last; i++) {
      const row = make(i);
      row.style.top = i * height + "px";
      body.append(row);
    }
  }
  scroller.addEventListener("scroll", () => draw(false));
  new ResizeObserver(() => draw(false)).observe(scroller);
  return {
    show(rows) {
      count = rows;
      body.style.height = count * height + "px";
      draw(true);
    },
    redraw: () => draw(true),
    reveal(i) {
      // A heading may cover the top rows.
      const head = body.offsetTop;
      if (i * height < scroller.scrollTop) scroller.scrollTop = i * height;
      else if ((i + 1) * height + head > scroller.scrollTop + scroller.clientHeight) scroller.scrollTop = (i + 1) * height + head - scroller.clientHeight;
    },
  };
}

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}
