// Formatting. Names, labels and messages are untrusted: characters that reverse, hide or break text are shown
// as escapes.

// Control characters, direction marks, zero-width characters; U+E0000 and above are tags.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu;
const LONGEST = 1000;

const shown = (c) => {
  const code = c.codePointAt(0);
  return code < 32 ? String.fromCharCode(0x2400 + code) : `\\u{${code.toString(16)}}`;
};

/** Formats a name as one line of visible characters. */
export function plain(text) {
  const all = String(text ?? "");
  return (all.length > LONGEST ? all.slice(0, LONGEST) + "…" : all).replace(UNSEEN, shown);
}

/** Formats a message likewise, but keeps its line breaks. */
export const prose = (text) => String(text ?? "").trim().split(/\r?\n/).slice(0, 20).map(plain).join("\n");

export const labelsOf = (labels) => Object.entries(labels || {}).map(([key, value]) => [plain(key), plain(value)]);

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

const isTime = (ms) => Number.isFinite(ms) && ms > 0 && ms < 8.64e15;
export const iso = (ms) => isTime(ms) ? new Date(ms).toISOString() : "";

/** Formats a time in the local time zone, with the day if it is not today. */
export function moment(ms, now = Date.now()) {
  if (!isTime(ms)) return "–";
  const at = new Date(ms), time = clock.format(at);
  return at.toDateString() === new Date(now).toDateString() ? time : `${day.format(at)}, ${time}`;
}

export function seconds(count) {
  const whole = Math.max(0, Math.floor(count));
  if (whole < 120) return `${whole} s`;
  if (whole < 7200) return `${Math.floor(whole / 60)} min`;
  return whole < 172800 ? `${Math.floor(whole / 3600)} h` : `${Math.floor(whole / 86400)} days`;
}

export function size(bytes) {
  if (!(bytes >= 1000)) return `${bytes || 0} B`;
  const units = ["kB", "MB", "GB", "TB"];
  let value = bytes, at = -1;
  while (value >= 1000 && at < units.length - 1) {
    value /= 1000;
    at++;
  }
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${units[at]}`;
}

export const count = (number, one, many = one + "s") => `${number.toLocaleString("en-US")} ${number === 1 ? one : many}`;
