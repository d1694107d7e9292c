// Asking again and again.

const BUSY_MS = 1000, IDLE_MS = 5000, MOST_MS = 15_000;

/**
 * Calls `ask(signal)`, once at a time: soon again while `busy()`, else at leisure, never while the page is hidden, and ever more rarely
 * as long as it fails. `ask` answers whether all went well.
 */
export function poller({ ask, busy }) {
  let timer = 0, failures = 0, current = null, stopped = true;

  function delay(took) {
    if (failures) return Math.min(MOST_MS, BUSY_MS * 2 ** (failures - 1));
    // A service that is slow to answer is not asked all the time.
    return Math.max(busy() ? BUSY_MS : IDLE_MS, Math.min(MOST_MS, 5 * took));
  }
  async function round() {
    clearTimeout(timer);
    current?.abort();
    if (stopped || document.hidden) return;
    const mine = current = new AbortController(), began = performance.now();
    let well = false;
    try { well = await ask(mine.signal); } catch (error) { if (!mine.signal.aborted) console.error(error); }
    if (mine.signal.aborted) return;
    current = null;
    failures = well ? 0 : failures + 1;
    if (!stopped && !document.hidden) timer = setTimeout(round, delay(performance.now() - began));
  }
  document.addEventListener("visibilitychange", () => { if (document.hidden) clearTimeout(timer); else round(); });

  return {
    start() { stopped = false; return round(); },
    stop() {
      stopped = true;
      clearTimeout(timer);
      current?.abort();
    },
    /** Now, and what is under way does not count: it was asked before what has changed since. */
    anew: round,
  };
}
