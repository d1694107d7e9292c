"use strict";
/**
 * Two counters of the same stacks, compared like two profiles: widths are those of the second, colours show its ratio to the
 * first, as in `difference/ratio.rs`. `ratio` has their names (`of`, `over`), the name of the quotient, and the factor `fullest`
 * at which colours are strongest.
 */
class Ratio extends Pair {
  constructor(from) {
    super(from);
    this.ratio = from.ratio;
  }
  of(before, after) {
    return new Ratio({ ...this, before, after });
  }

  /** Red for a higher ratio than in total, blue for a lower one; grey if the difference may be chance. */
  colour(change, name) {
    const { noise, before, after } = change, log = Math.log(after / before) / Math.log(this.ratio.fullest);
    if (noise || !before && !after || log === 0 || Number.isNaN(log)) return super.colour({ noise: true }, name);
    const full = this.colours[log > 0 ? 0 : 1], strength = 0.2 + 0.8 * Math.sqrt(Math.min(1, Math.abs(log))), ground = this.dark ? 70 : 255;
    return pixel(...full.map((part) => ground + (part - ground) * strength));
  }

  /** `1.25 cycles per instruction`. */
  quotient({ recorded, after }) {
    return recorded > 0 ? `${two.format(after / recorded)} ${this.ratio.name}` : `no ${this.ratio.over}`;
  }
  text({ recorded, before, after, noise }) {
    const { of, over } = this.ratio;
    return `${amountIn(of, after)}, ${percentOf(after, this.whole)}; ${amountIn(over, recorded)}; ${this.quotient({ recorded, after })}${noise && !(Math.abs(after / before - 1) < 0.005) ? "; may be that of all" : ""}`;
  }

  /** Colours and their descriptions. */
  legend() {
    const all = this.scale, { fullest, name } = this.ratio;
    return [
      [{ before: 1, after: fullest }, `${two.format(all * fullest)} ${name}, or more`],
      [{ before: fullest, after: 1 }, `${two.format(all / fullest)}, or less`],
      [{ noise: true }, `${two.format(all)} average, or not distinguishable from it`],
    ];
  }

  /** Columns of a table: both counters of each function, and the quotient. */
  columns(frames, all) {
    const change = (label) => (this.own ? all.self : all.whole)(label), { of, over, name } = this.ratio;
    const value = (label) => { const { recorded, after } = change(label); return recorded > 0 ? after / recorded : -1; };
    const column = (key, title, weight, whole) => ({
      key, title, note: `${this.own ? "self" : "total"}, ${title}`, compare: (a, b) => weight(change(b)) - weight(change(a)) || a - b,
      cell: (cell, label) => weighty(cell, title, weight(change(label)), whole),
    });
    const quotient = {
      key: "delta", title: "Ratio", note: name + "; ~ not distinguishable from the average", compare: (a, b) => value(b) - value(a) || a - b,
      cell: (cell, label) => {
        const told = change(label);
        cell.append((told.recorded > 0 ? two.format(value(label)) : "–") + (told.noise ? " ~" : ""));
        if (!told.noise) cell.classList.add(told.after > told.before ? "more" : "less");
      },
    };
    return [...nameColumns(frames), column("before", over, ({ recorded }) => recorded, this.whole / this.scale), column("after", of, ({ after }) => after, this.whole), quotient];
  }
}

/** Compares two profiles, or two counters. */
const compare = (from) => from.ratio ? new Ratio(from) : new Pair(from);
