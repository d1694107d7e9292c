"use strict";
/** The strip above a graph: positions of the matches in the whole graph, and the visible part. */
function matchMap(canvas, widthOf) {
  const context = canvas.getContext("2d");
  let towers = [], all = 1, from = 0, span = 1;
  function draw() {
    const width = widthOf(), ratio = window.devicePixelRatio || 1, height = 8;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = width + "px";
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const style = getComputedStyle(document.documentElement);
    context.fillStyle = style.getPropertyValue("--field");
    context.fillRect(0, 0, width, height);
    context.fillStyle = "rgb(230,0,230)";
    // Subtrees are ordered from left to right; thin ones are one pixel wide.
    let painted = -1;
    for (let i = 0; i < towers.length; i += 2) {
      const x0 = Math.floor(towers[i] / all * width), x1 = Math.max(x0 + 1, Math.round((towers[i] + towers[i + 1]) / all * width));
      if (x1 <= painted) continue;
      context.fillRect(Math.max(x0, painted), 1, x1 - Math.max(x0, painted), height - 2);
      painted = x1;
    }
    if (span < all) {
      context.strokeStyle = style.getPropertyValue("--focus");
      context.lineWidth = 2;
      context.strokeRect(from / all * width + 1, 1, Math.max(2, span / all * width - 2), height - 2);
    }
  }
  return {
    /** `towers`: start and width of each matching subtree; `all`: width of the whole. */
    mark(newTowers, newAll) {
      [towers, all] = [newTowers, newAll || 1];
      draw();
    },
    window(newFrom, newSpan) {
      if (from === newFrom && span === newSpan) return;
      [from, span] = [newFrom, newSpan];
      draw();
    },
    redraw: draw,
  };
}
