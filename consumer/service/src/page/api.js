// Requests to the service and its answers.

/** The service refused; contains its messages. */
export class Refusal extends Error {
  constructor(status, sentences) {
    super(sentences.join(" "));
    this.status = status;
    this.sentences = sentences;
  }
}

/** The service did not answer. */
export class Unreachable extends Error {}

const PATIENCE_MS = 15_000;

/** Returns the JSON answer of a path, or null if it is empty. `signal` aborts the request. */
export const ask = async (path, more) => (await said(path, more)).answer;

/** Returns the answer as text. */
export const askText = async (path, more) => (await said(path, { ...more, isText: true })).text;

async function said(path, { method = "GET", body, signal, patience = PATIENCE_MS, isText = false } = {}) {
  const late = AbortSignal.timeout(patience);
  const options = { method, signal: signal ? AbortSignal.any([signal, late]) : late, credentials: "same-origin", cache: "no-cache" };
  if (body !== undefined) Object.assign(options, { body: JSON.stringify(body), headers: { "Content-Type": "application/json" } });
  let response, text;
  try {
    response = await fetch(path, options);
    text = await response.text();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Unreachable(late.aborted ? "The service did not answer in time." : "The service cannot be reached.");
  }
  let answer = null;
  try { if (text) answer = JSON.parse(text); } catch { /* reported below, or not needed */ }
  if (response.ok) {
    if (text && answer === null && !isText) throw new Unreachable("The answer did not come from a Flightline service.");
    return { answer, text };
  }
  const sentences = Array.isArray(answer?.errors) ? answer.errors.filter((each) => typeof each === "string" && each) : [];
  throw new Refusal(response.status, sentences.length ? sentences : [`The service answered ${response.status} ${response.statusText}`.trim() + "."]);
}

const part = encodeURIComponent;

export const paths = {
  targets: "v1/targets",
  loads: "v1/targets?load=1",
  target: (id) => `v1/targets/${part(id)}`,
  runs: "v1/runs",
  runsOf: (target) => `v1/targets/${part(target)}/runs`,
  group: (id) => `v1/runs?group=${part(id)}`,
  run: (id) => `v1/runs/${part(id)}`,
  cancel: (id) => `v1/runs/${part(id)}/cancel`,
  file: (id, format, event) => `v1/runs/${part(id)}/files/${part(format)}${event ? `?event=${part(event)}` : ""}`,
  view: (id, event) => `v1/runs/${part(id)}/files/html?view=1${event ? `&event=${part(event)}` : ""}`,
  window: (target) => `v1/targets/${part(target)}/window`,
  windowFile: (target, format, { from, to }, more = "") => `v1/targets/${part(target)}/window/files/${part(format)}?from=${from}&to=${to}${more}`,
  labelFile: (label, format, { from, to }, more = "") => `v1/window/files/${part(format)}?label=${part(label)}&from=${from}&to=${to}${more}`,
  compare: (before, after) => `v1/compare/html?before=${part(before)}&after=${part(after)}`,
  session: "v1/session",
  processes: "v1/processes",
};

/** Paths of store queries. */
export const stored = Object.fromEntries([["whole", ""], ...["values", "flame", "diff", "top", "share", "sql"].map((what) => [what, `/${what}`])].map(([what, path]) => [what, `v1/store${path}`]));
