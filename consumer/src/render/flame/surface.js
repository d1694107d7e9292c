"use strict";
/**
 * Rows of boxes as pixels. All lines of a row are equal, so one is computed and copied: thousands of boxes cost no more than a
 * few. Only one row's pixels are in memory at a time, so they stay in the processor's cache. Colours are `0xaabbggrr`; positions
 * are in pixels of the page.
 */
class Surface {
  constructor(canvas, rowHeight) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.rowHeight = rowHeight;
    this.width = this.height = 0;
    this.ratio = 1;
    this.lines = [];
  }

  /** Adapts the size; returns whether it changed, in which case the canvas is empty. */
  resize(width, height) {
    this.ratio = window.devicePixelRatio || 1;
    [this.width, this.height] = [width, height];
    const across = Math.max(1, Math.round(width * this.ratio)), down = Math.max(1, Math.round(height * this.ratio));
    if (this.band && this.canvas.width === across && this.canvas.height === down) return false;
    this.canvas.width = across;
    this.canvas.height = down;
    this.canvas.style.width = width + "px";
    this.canvas.style.height = height + "px";
    this.band = this.context.createImageData(across, Math.max(1, Math.round((this.rowHeight - 1) * this.ratio)));
    this.pixels = new Uint32Array(this.band.data.buffer);
    this.lines = [];
    return true;
  }

  begin() {
    for (const line of this.lines) if (line) line.used = false;
  }

  line(level) {
    let line = this.lines[level];
    if (!line) this.lines[level] = line = { pixels: new Uint32Array(this.band.width), used: false, hair: -1, cover: 0 };
    if (!line.used) {
      line.pixels.fill(0);
      line.used = true;
      line.hair = -1;
    }
    return line;
  }

  box(level, from, to, colour) {
    const { ratio } = this, start = Math.round(from * ratio), gap = to - from > 3 ? Math.max(1, Math.round(0.7 * ratio)) : 0;
    this.line(level).pixels.fill(colour, start, Math.max(start + 1, Math.round(to * ratio) - gap));
  }

  /** Draws thin boxes of one pixel as one line, as dark as their total width; one in `strong` as dark as possible. */
  hair(level, from, width, colour, strong) {
    const line = this.line(level), pixel = Math.floor(from * this.ratio);
    if (line.hair !== pixel) {
      line.hair = pixel;
      line.cover = 0;
      line.pixels[pixel] = colour;
    }
    line.cover += width * this.ratio;
    if (strong) line.pixels[pixel] = colour;
    else if (line.pixels[pixel] >>> 24 !== 255 || line.cover >= 1) {
      const alpha = Math.min(255, (0.15 + 0.85 * line.cover) * (colour >>> 24));
      line.pixels[pixel] = ((line.pixels[pixel] & 0xffffff) | (alpha << 24)) >>> 0;
    } else line.pixels[pixel] = ((colour & 0xffffff) | ((0.15 * (colour >>> 24)) << 24)) >>> 0;
  }

  /** Shows the rows; `top(level)` is the position of one. Further drawing is on top of them. */
  show(top) {
    const { ratio, band, pixels, context, canvas } = this;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, canvas.width, canvas.height);
    for (let level = 0; level < this.lines.length; level++) {
      const line = this.lines[level];
      if (!line || !line.used) continue;
      const first = Math.round(top(level) * ratio);
      if (first >= canvas.height || first + band.height <= 0) continue;
      for (let at = 0; at < pixels.length; at += band.width) pixels.set(line.pixels, at);
      context.putImageData(band, 0, first);
    }
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
  }
}

/** Fits names to the available width. Each letter is measured once. */
class Letters {
  constructor(context, font) {
    [this.context, this.font] = [context, font];
    this.letters = new Map();
    this.names = [];
    this.kinds = "";
    this.naming = "full";
    this.texts = [];
  }

  /** Sets the names to fit; with their kinds of code, Java names are shortened by `naming`. */
  of(names, kinds = "", naming = "full") {
    if (names === this.names && naming === this.naming) return;
    [this.names, this.kinds, this.naming, this.texts] = [names, kinds, naming, []];
  }

  width(letter) {
    let width = this.letters.get(letter);
    if (width === undefined) {
      this.context.font = this.font;
      this.letters.set(letter, (width = this.context.measureText(letter).width));
    }
    return width;
  }

  measured(text) {
    let width = 0;
    // Longer names never fit as a whole.
    for (let i = 0; i < text.length && i < 1000; i++) width += this.width(text[i]);
    return { text, width };
  }

  /** Returns how many letters of a text fit, from its beginning or from its end. */
  count(text, room, fromEnd) {
    let left = room, i = 0;
    while (i < text.length && (left -= this.width(fromEnd ? text[text.length - 1 - i] : text[i])) >= 0) i++;
    return i;
  }

  fitted(label, room) {
    const { whole, method } = this.texts[label] ??= this.prepared(label);
    for (const { text, width } of whole) if (width <= room) return text;
    const { text } = whole[whole.length - 1], cut = room - this.width("…");
    if (method) {
      // The end of a Java name is most informative: shows as much of the class as fits before the method.
      const end = this.count(text, cut, true);
      if (end > method.text.length + 1) return "…" + text.slice(-end);
      if (method.width <= room) return method.text;
    }
    const last = method ? method.text : text, i = this.count(last, cut, false);
    return i < 2 ? "" : last.slice(0, i) + "…";
  }
  prepared(label) {
    const { whole, method } = boxTexts(this.names[label], this.kinds[label], this.naming);
    return { whole: whole.map((text) => this.measured(text)), method: method && this.measured(method) };
  }
}
