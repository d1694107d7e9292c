"use strict";
/**
 * Times of an event's samples by thread: `lanes` have `at` (ticks since the start, in order), `stack` (the box at which it ends)
 * and, by measure of the event, `weights`, a single number if all weights are equal; some have duration events, as `lasting`.
 * Time ranges are `[from, to]` in ms, `to` exclusive.
 */
class Times {
  /**
   * `page`: the tick, the last tick and the threads of all events; `told`: the event's own data; `number()` returns the next
   * number of the columns.
   */
  constructor(page, told, number) {
    const column = (made, add) => {
      for (let i = 0, last = 0; i < made.length; i++) made[i] = last = add ? last + number() : number();
      return made;
    };
    const boxes = column(new Uint32Array(told.stacks), false);
    this.tick = page.tick / 1e6;
    this.lanes = told.lanes.map(([thread, samples]) => ({ thread, ...page.threads[thread], samples, weights: [] }));
    for (const lane of this.lanes) lane.at = column(new Uint32Array(lane.samples), true);
    for (const lane of this.lanes) {
      const { stack } = Object.assign(lane, { stack: column(new Uint32Array(lane.samples), false) });
      for (let i = 0; i < stack.length; i++) stack[i] = boxes[stack[i]];
    }
    told.weights.forEach((each, measure) => {
      // False: the weights of single samples by this measure are not known.
      for (const lane of this.lanes) lane.weights[measure] = each ?? column(new Float64Array(lane.samples), false);
    });
    // The end of the tick of the last sample of all events.
    this.end = (page.last + 1) * this.tick;
    this.usualGap = usualGap(this.lanes.map(({ at }) => at));
    this.samples = this.lanes.reduce((all, { samples }) => all + samples, 0);
  }

  /** Returns whether a measure is known for each sample. */
  knows(measure) {
    return this.lanes.length > 0 && this.lanes[0].weights[measure] !== false;
  }

  /** The lanes of some threads; without names, all lanes. */
  of(names) {
    return names.length ? this.lanes.filter(({ name }) => names.includes(name)) : this.lanes;
  }

  /** Positions in a lane of the samples in a range. */
  within({ at }, range) {
    const position = (ms) => {
      let low = 0, high = at.length;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (at[middle] * this.tick < ms) low = middle + 1;
        else high = middle;
      }
      return low;
    };
    return range ? [position(range[0]), position(range[1])] : [0, at.length];
  }

  /** Own weights, like `all`, of the samples in a range and some lanes, and the number of samples. */
  own(all, measure, range, lanes) {
    const own = new all.constructor(all.length);
    let samples = 0;
    for (const lane of lanes) {
      const [from, to] = this.within(lane, range), { stack } = lane, weights = lane.weights[measure];
      samples += to - from;
      if (typeof weights === "number") for (let i = from; i < to; i++) own[stack[i]] += weights;
      else for (let i = from; i < to; i++) own[stack[i]] += weights[i];
    }
    return { own, samples };
  }

  /** Number of samples in each of `count` intervals of `ms`; if `wanted` is given, only of those that end at its boxes. */
  cells(ms, count, lanes, wanted) {
    const cells = new Uint32Array(count), scale = this.tick / ms;
    for (const { at, stack } of lanes) {
      for (let i = 0; i < at.length; i++) if (!wanted || wanted[stack[i]]) cells[Math.min(count - 1, Math.floor(at[i] * scale + 1e-9))]++;
    }
    return cells;
  }
}

/** Reads the columns of a page: the times of each event, null if they are not known. */
function timesOf(told, bytes) {
  const number = numbers(bytes), all = told.sets.map((set) => set && new Times(told, set, number));
  lastingOf(told, all.filter(Boolean), bytes, number);
  return all;
}

/** Formats a time. */
function momentText(ms, digits = 2) {
  const s = ms / 1000;
  return s < 60 ? s.toFixed(digits) + " s" : `${Math.floor(s / 60)}:${(s % 60).toFixed(digits).padStart(digits + 3, "0")} min`;
}
const rangeText = ([from, to], digits) => `${momentText(from, digits)} to ${momentText(to, digits)}`;

/** Parses a range in an address, `from-to` in ms; null if it is invalid. */
function rangeOf(text) {
  const parts = /^(\d{1,12}(?:\.\d{1,3})?)-(\d{1,12}(?:\.\d{1,3})?)$/.exec(text || "");
  return parts && Number(parts[1]) < Number(parts[2]) ? [Number(parts[1]), Number(parts[2])] : null;
}
