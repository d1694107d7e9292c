"use strict";
const fnv = (text) => {
  let hash = 2166136261;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 16777619);
  return hash ^ (hash >>> 15);
};
/** Three numbers from 0 to 1 that depend only on the text. */
const thirds = (text) => {
  const hash = fnv(text);
  return [(hash & 1023) / 1023, ((hash >>> 10) & 1023) / 1023, ((hash >>> 20) & 1023) / 1023];
};
/** A colour as a pixel of image data, `0xaabbggrr`. */
const pixel = (r, g, b) => ((255 << 24) | (Math.round(b) << 16) | (Math.round(g) << 8) | Math.round(r)) >>> 0;
function hsl(hue, saturation, lightness) {
  const s = saturation / 100, l = lightness / 100, a = s * Math.min(l, 1 - l);
  const part = (n) => {
    const k = (n + hue / 30) % 12;
    return 255 * (l - a * Math.max(-1, Math.min(k - 3, 9 - k, 1)));
  };
  return pixel(part(0), part(8), part(4));
}
/** Returns whether dark letters are hard to read on it. */
const isDeep = (colour) => 0.3 * (colour & 255) + 0.59 * ((colour >> 8) & 255) + 0.11 * ((colour >> 16) & 255) < 110;
/** The colour for a style. */
const css = (colour) => `rgb(${colour & 255},${(colour >> 8) & 255},${(colour >> 16) & 255})`;
const LIGHT_DELIMITER = pixel(200, 200, 200), DARK_DELIMITER = pixel(140, 140, 140);
// A waker's frames have a suffix, and so has its delimiter.
const DELIMITERS = { "-": LIGHT_DELIMITER, "-_[w]": LIGHT_DELIMITER, "--": DARK_DELIMITER, "--_[w]": DARK_DELIMITER };

const hot = ([a, b, c]) => pixel(205 + 50 * a, 60 + 170 * b, 55 * c);
const aqua = ([a, b]) => pixel(50 + 60 * a, 165 + 55 * b, 165 + 55 * b);
const blue = ([a, b]) => pixel(100 + 60 * a, 130 + 65 * a, 205 + 50 * b);

/** Activities of a thread, as its markers name them. */
const DOING = {
  running: hsl(8, 84, 62), runnable: hsl(44, 92, 60), lock: hsl(276, 52, 66), disk: hsl(24, 60, 52), "page fault": hsl(330, 62, 66),
  network: hsl(214, 78, 64), pipe: hsl(180, 48, 52), events: hsl(205, 42, 76), sleep: hsl(150, 30, 70), child: hsl(96, 42, 60), other: hsl(230, 12, 66),
};
const DOING_LEGEND = Object.keys(DOING).map((what, at) => [at < 2 ? `[${what}]` : `[blocked: ${what}]`, at < 2 ? what : `blocked: ${what}`, "m"]);
const DOING_BY_NAME = new Map(DOING_LEGEND.map(([name], at) => [name, Object.values(DOING)[at]]));

/** Recordings do not contain the language; C++ and Rust write `::` between the parts of a name. */
const isCppOrRust = (name, kind) => (kind === "n" || kind === "u") && name.includes("::");
const KIND_GROUPS = { k: "kernel", t: "interpreted", j: "compiled", J: "compiled", i: "inlined", o: "inlined", c: "class", m: "marker" };

/**
 * Colours by label: `of(name, module, kind, woken, application)`, where `woken` is true above a chain's dark delimiter and `application` has the
 * packages of the application. A palette with `group` has an entry of its legend for each group. The same name of the same kind has the same colour in every picture.
 */
const PALETTES = {
  // SVGs have the same colours: keep the numbers of render/kinds.rs equal.
  kind: {
    title: "Kind of code",
    of(name, module, kind) {
      const t = thirds(name), [a, b] = t;
      switch (kind) {
        case "k": return hsl(22 + 8 * a, 94, 54 + 6 * b);
        case "t": return hsl(76 + 18 * a, 44, 78 + 6 * b);
        case "j": case "J": return hsl(104 + 24 * a, 50, 56 + 10 * b);
        case "i": case "o": return hsl(176 + 16 * a, 52, 60 + 10 * b);
        case "c": return hsl(286 + 14 * a, 44, 76 + 6 * b);
        case "m": return hsl(230, 10, 70 + 8 * b);
        default: return isCppOrRust(name, kind) ? hsl(50 + 8 * a, 84, 60 + 8 * b) : hsl(342 + 14 * a, 78, 68 + 7 * b);
      }
    },
    group: (name, kind) => kind === "u" ? "" : isCppOrRust(name, kind) ? "C++ and Rust" : KIND_GROUPS[kind] || "native",
    legend: [["native", "native", "n"], ["C++::name", "C++ and Rust", "n"], ["kernel", "kernel", "k"], ["java", "JIT-compiled", "j"], ["inlined", "inlined", "i"],
      ["interpreted", "interpreted", "t"], ["java.lang.Object", "class of the object", "c"], ["marker", "not code", "m"]],
  },
  origin: {
    title: "Application, library, JDK",
    of(name, module, kind, woken, application) {
      const [a, b] = thirds(name);
      switch (originOf(name, kind, application)) {
        case "application": return hsl(26 + 12 * a, 86, 62 + 8 * b);
        case "library": return hsl(208 + 14 * a, 62, 66 + 8 * b);
        case "JDK": return hsl(104 + 20 * a, 38, 62 + 8 * b);
        default: return hsl(230, 8, 76 + 6 * b);
      }
    },
    group: originOf,
    legend: (application) => [["A.a", application.length ? `application (${application.join(", ")})` : "application", "j"], ["library.A.a", "library", "j"],
      ["java.A.a", "JDK", "j"], ["native", "not Java", "n"]],
  },
  hot: { title: "Hot", of: (name) => hot(thirds(name)) },
  name: { title: "Name", of: (name) => { const [a, b, c] = thirds(name); return hsl(360 * a, 52 + 22 * b, 66 + 9 * c); } },
  module: {
    title: "Module",
    of: (name, module) => {
      if (!module) return hsl(230, 8, 74);
      const [a] = thirds(module), [, b, c] = thirds(name);
      return hsl(360 * a, 52 + 16 * b, 64 + 9 * c);
    },
  },
  io: { title: "I/O, off-CPU (blue)", of: (name) => blue(thirds(name)) },
  mem: { title: "Memory (green)", of: (name) => { const [a, b] = thirds(name); return pixel(90 * b, 175 + 55 * a, 30 + 130 * b); } },
  wakeup: { title: "Wake-ups (aqua)", of: (name) => aqua(thirds(name)) },
  doing: {
    title: "Running, runnable, blocked", byName: true, legend: DOING_LEGEND,
    of: (name) => DOING_BY_NAME.get(name) || hsl(230, 14, 76 + 8 * thirds(name)[0]),
  },
  chain: {
    title: "Chain (blue, aqua)", byPath: true,
    of: (name, module, kind, woken) => (woken || name.endsWith("_[w]") ? aqua : blue)(thirds(name)),
  },
};

/** Palettes of two profiles, by change instead of name. */
const CHANGE_PALETTES = {
  change: { title: "More red, less blue", box: (...of) => colourOfBox(...of) },
  "change-safe": { title: "More orange, less purple", box: (...of) => colourOfBox(...of) },
};

/** Returns the colour of labels by the palette `id`, or of boxes for a palette by box; caches the colours. */
function painter(id, frames) {
  const palette = CHANGE_PALETTES[id] || PALETTES[id] || PALETTES.kind, known = [[], []];
  return (label, woken, tree, box) => {
    if (palette.box && tree && tree.pair) return palette.box(tree, box, frames.names[label]);
    const of = known[palette.byPath && woken ? 1 : 0];
    if (of[label]) return of[label];
    const name = frames.names[label];
    const grey = Object.hasOwn(DELIMITERS, name) && DELIMITERS[name];
    return (of[label] = grey || (palette.of || PALETTES.kind.of)(name, frames.modules[label], frames.kinds[label], woken, frames.application || []));
  };
}
