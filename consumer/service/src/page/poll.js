// Periodic polling.

const BUSY_MS = 1000, IDLE_MS = 5000, MOST_MS = 15_000;

/**
 * Calls `ask(signal)`, one call at a time: frequently while `busy()`, otherwise slowly, never while the page is hidden, and with increasing
 * delays while it fails. `ask` returns true on success.
 */
export function poller({ ask, busy }) {
  let timer = 0, failures = 0, current = null, stopped = true;

  function delay(took) {
    if (failures) return Math.min(MOST_MS, BUSY_MS * 2 ** (failures - 1));
    // Poll a slow service less often.
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
    /** Polls now and aborts the request in progress, which started before the change. */
    anew: round,
  };
}
