"use strict";
/** A duration with three digits: 950 ns, 12.3 µs, 4.56 ms, 7.89 s. */
function durationOf(nanos) {
  const [size, unit] = nanos < 1e3 ? [1, "ns"] : nanos < 1e6 ? [1e3, "µs"] : nanos < 1e9 ? [1e6, "ms"] : [1e9, "s"], value = nanos / size;
  return `${size === 1 ? value : value.toFixed(value < 10 ? 2 : value < 100 ? 1 : 0)} ${unit}`;
}

/**
 * Shows percentiles of all events of the recording, and the histogram when `into` is opened. Hidden for events without durations.
 */
function showLatency(into, latency) {
  into.hidden = !latency;
  if (!latency) return;
  const { count, minNanos, p50Nanos, p90Nanos, p99Nanos, maxNanos, meanNanos, exact, buckets } = latency;
  const figures = [["p50", p50Nanos], ["p99", p99Nanos], ["max", maxNanos]].map(([name, nanos]) => `${name} ${durationOf(nanos)}`);
  into.querySelector("summary span").textContent = figures.join(", ");
  into.querySelector("p").textContent = `${grouped.format(count)} events: min ${durationOf(minNanos)}, mean ${durationOf(meanNanos)}, p90 ${durationOf(p90Nanos)}`
    + (exact ? "" : "; percentiles may be up to 0.8 % too low");
  const body = into.querySelector("tbody"), most = Math.max(...buckets.map((bucket) => bucket.count));
  body.textContent = "";
  for (const { fromNanos, toNanos, count } of buckets) {
    const row = element("tr"), bar = element("meter"), last = element("td");
    for (const text of [durationOf(fromNanos), durationOf(toNanos), grouped.format(count)]) row.append(element("td", "", text));
    [bar.max, bar.value] = [most, count];
    last.append(bar);
    row.append(last);
    body.append(row);
  }
}
