"use strict";
/** A bar of CPU use spans at least the CPU time of this many samples: shorter bars would show the sampling instead of the use. */
const SAMPLES_PER_BAR = 10;
const CPU_COLOUR = pixel(70, 140, 200);

/** The CPU use of a thread over time. Each sample represents the CPU time that ended at it, of which `measure` is in ns. */
class CpuUse {
  constructor(times, { at, weights }, measure) {
    const of = weights[measure], ends = [], busy = [];
    let all = 0;
    for (let i = 0; i < at.length; i++) {
      const ms = (typeof of === "number" ? of : of[i]) / 1e6;
      all += ms;
      // Samples of one tick represent consecutive CPU time before it.
      if (i && at[i] === at[i - 1]) busy[busy.length - 1] += ms;
      else {
        ends.push((at[i] + 1) * times.tick);
        busy.push(ms);
      }
    }
    [this.ends, this.busy] = [Float64Array.from(ends), Float64Array.from(busy)];
    this.longest = busy.reduce((most, ms) => Math.max(most, ms), 0);
    this.each = all / Math.max(1, at.length);
    this.end = times.end;
  }

  /** Bars of a range: their length in ms, the number of the first one, and shares of one processor, 0 to 1. */
  bars([from, to], width) {
    const bar = Math.max(3 * (to - from) / width, SAMPLES_PER_BAR * this.each) || 1, first = Math.floor(from / bar), count = Math.max(1, Math.ceil(to / bar) - first);
    const shares = new Float64Array(count), { ends, busy } = this;
    let low = 0, high = ends.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (ends[middle] <= first * bar) low = middle + 1;
      else high = middle;
    }
    for (let i = low; i < ends.length && ends[i] - this.longest < (first + count) * bar; i++) {
      const begin = ends[i] - busy[i];
      for (let k = Math.max(first, Math.floor(begin / bar)); k < first + count && k * bar < ends[i]; k++) {
        shares[k - first] += Math.max(0, Math.min(ends[i], (k + 1) * bar) - Math.max(begin, k * bar));
      }
    }
    // The last bar may extend beyond the recording.
    for (let k = 0; k < count; k++) shares[k] = Math.min(1, shares[k] / Math.max(1e-9, Math.min(bar, this.end - (first + k) * bar)));
    return { bar, first, shares };
  }
}
