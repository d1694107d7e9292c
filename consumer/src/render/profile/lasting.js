"use strict";
/** Kinds of duration events, in the numbering of `render/times/lasting.rs`, and their colours. */
const LASTING = [["Span", pixel(120, 205, 190)], ["Lock", pixel(190, 160, 230)], ["I/O", pixel(130, 180, 240)], ["GC", pixel(240, 190, 110)]];
/** Rows of a lane; further events are in the last one. */
const MOST_ROWS = 24;

/** Duration events of a thread, in order of start: times in ms, numbers of names, and rows, nested ones below their parents. */
class Lasting {
  constructor(from, count, number) {
    this.starts = new Float64Array(count);
    this.ends = new Float64Array(count);
    this.name = new Uint32Array(count);
    this.row = new Uint8Array(count);
    for (let i = 0, at = from; i < count; i++) this.starts[i] = at += number();
    for (let i = 0; i < count; i++) this.ends[i] = (this.starts[i] + number()) / 1000;
    for (let i = 0; i < count; i++) this.starts[i] /= 1000;
    for (let i = 0; i < count; i++) this.name[i] = number();
    this.place();
  }

  place() {
    const { starts, ends } = this, last = [];
    for (let i = 0; i < starts.length; i++) {
      const goesOn = (row) => row < last.length && ends[last[row]] > starts[i];
      let row = 0;
      for (let above = 0; above < last.length; above++) if (goesOn(above) && ends[last[above]] >= ends[i]) row = above + 1;
      while (goesOn(row)) row++;
      this.row[i] = row = Math.min(row, MOST_ROWS - 1);
      last[row] = i;
    }
    this.rows = last.length;
  }

  /** The event of a row that is nearest to a time. */
  nearest(row, ms) {
    let found = -1, least = Infinity;
    for (let i = 0; i < this.starts.length; i++) {
      const far = Math.max(this.starts[i] - ms, ms - this.ends[i], 0);
      if (this.row[i] === row && far < least) [found, least] = [i, far];
    }
    return found;
  }

  /** The next event in the same row; -1 if there is none. */
  next(event, step) {
    let i = event + step;
    while (i >= 0 && i < this.row.length && this.row[i] !== this.row[event]) i += step;
    return i < this.row.length ? i : -1;
  }

  /** Pieces to draw of a range: `[row, x0, x1, event]`; of the events within one pixel the one that covers most of it. */
  stretches([from, to], width) {
    const scale = width / (to - from), made = [], last = [];
    for (let i = 0; i < this.starts.length && this.starts[i] < to; i++) {
      if (this.ends[i] < from) continue;
      const row = this.row[i], x0 = Math.max(0, (this.starts[i] - from) * scale), x1 = Math.min(width, (this.ends[i] - from) * scale), before = last[row];
      if (before && x1 - x0 < 1 && Math.floor(before[1]) === Math.floor(x0) && before[2] - before[1] <= 1) {
        if (x1 - x0 > before[2] - before[1]) [before[2], before[3]] = [Math.max(before[2], x1), i];
      } else made.push(last[row] = [row, x0, Math.max(x1, x0 + 0.5), i]);
    }
    return made;
  }
}

/**
 * Reads the duration events into the lanes of all events of the page. Each gets `lasting`: their names and kinds, how many were
 * left out, the end of the last one, and lanes of threads without samples of the event.
 */
function lastingOf({ events: told, threads }, all, bytes, number) {
  const lasting = threads.map((_, thread) => told && told.lanes[thread] ? new Lasting(told.from, told.lanes[thread], number) : null);
  const names = told ? JSON.parse(new TextDecoder().decode(bytes.subarray(bytes.length - told.names))) : [];
  let end = 0;
  for (const of of lasting) if (of) for (const at of of.ends) end = Math.max(end, at);
  for (const times of all) {
    const sampled = new Set(times.lanes.map(({ thread }) => thread)), none = new Uint32Array(0);
    for (const lane of times.lanes) if (lasting[lane.thread]) lane.lasting = lasting[lane.thread];
    const others = threads.map((of, thread) => ({ thread, ...of, samples: 0, at: none, stack: none, weights: [], lasting: lasting[thread] }));
    times.lasting = {
      names: names.map(([, name]) => name), of: names.map(([of]) => of), end, leftOut: told ? told.leftOut : 0,
      others: others.filter(({ thread, lasting: events }) => events && !sampled.has(thread)),
    };
  }
}
