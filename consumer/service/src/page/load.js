// A target's recent load: a sparkline, and whether it has risen.

const BEFORE = 3, AFTER = 2, TIMES = 1.5, SURE = 5;

/**
 * Returns since when the number of samples has risen, until now, and by which factor: `{ since, times }`, or null. The standard deviation of a
 * count is its square root; changes within noise are not reported.
 */
export function risen(load) {
  if (!load || !Array.isArray(load.samples)) return null;
  const known = load.samples.map((samples, i) => [i, samples]).filter(([, samples]) => Number.isFinite(samples) && samples >= 0);
  const sums = [0];
  for (const [, samples] of known) sums.push(sums.at(-1) + samples);
  let best = null;
  for (let at = BEFORE; at <= known.length - AFTER; at++) {
    const before = sums[at] / at, count = known.length - at, after = (sums.at(-1) - sums[at]) / count;
    const sure = (after - before) / Math.sqrt(Math.max(1, sums[at]) / at ** 2 + Math.max(1, after * count) / count ** 2);
    // A single peak is not a rise.
    const middle = () => known.slice(at).map(([, samples]) => samples).sort((a, b) => a - b)[(count - 1) >> 1];
    if (after >= TIMES * before && sure >= SURE && !(sure <= best?.sure) && middle() >= TIMES * before) best = { sure, since: load.from + known[at][0] * load.step, times: before > 0 ? after / before : Infinity };
  }
  return best && { since: best.since, times: best.times };
}

export const timesText = (times) => Number.isFinite(times) ? `${times < 10 ? times.toFixed(1) : Math.round(times)}×` : "from nothing";

const WIDTH = 60, HEIGHT = 14;

/** Returns the outline of a sparkline of 60 by 14, with gaps where data is missing. */
export function outline({ samples }) {
  const most = samples.reduce((most, each) => Math.max(most, each || 0), 1), wide = WIDTH / samples.length;
  const place = (number) => Number(number.toFixed(1));
  return samples.map((each, i) => Number.isFinite(each) ? `M${place(i * wide)} ${HEIGHT}V${place(HEIGHT - 1 - (HEIGHT - 1) * each / most)}H${place((i + 1) * wide)}V${HEIGHT}Z` : "").join("");
}
