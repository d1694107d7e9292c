// The real service, and an agent controlled by a test: it joins, receives commands, and delivers an existing
// recording.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { flightline } from "./page.mjs";

/** Starts `flightline serve` with these arguments, and waits until it answers; `url` ends with a slash. */
export async function serve(...args) {
  const open = args.some((arg) => arg.includes("token")) ? [] : ["--no-token"];
  const child = spawn(flightline, ["serve", ...open, ...args], { stdio: ["ignore", "ignore", "pipe"] });
  let said = "";
  child.stderr.setEncoding("utf8");
  for await (const part of child.stderr.iterator({ destroyOnReturn: false })) {
    said += part;
    const at = /(https?:\/\/[^\s,]+),/.exec(said);
    if (!at) continue;
    child.stderr.resume();
    return { url: `${at[1]}/`, async stop(signal = "SIGTERM") { child.kill(signal); if (child.exitCode === null && child.signalCode === null) await once(child, "exit"); } };
  }
  throw new Error(`the service did not begin: ${said}`);
}

const MODES = ["CPU", "WALL", "ALLOC", "LOCK", "ITIMER", "IO", "LIVE", "THROW", "OFF_CPU"];

export class Agent {
  /** Joins; `more` describes its process, `impossible` gives reasons by mode. */
  static async join(url, name, more = {}, impossible = {}, token = null) {
    const agent = Object.assign(new Agent(), { url, token, commands: [], heard: 0, waiting: [], ended: new AbortController() });
    const modes = MODES.map((mode) => impossible[mode] ? { mode, available: false, reason: impossible[mode] } : { mode, available: true });
    const hello = { protocol: 1, key: `${name} ${more.pid || 4711}`, name, host: "db1", pid: 4711, startTime: Date.now() - 60_000, labels: {}, modes, ...more };
    const welcome = await agent.ask("POST", "v1/agents", JSON.stringify(hello));
    Object.assign(agent, { id: welcome.target, secret: welcome.secret });
    agent.listening = agent.listen();
    return agent;
  }
  async ask(method, path, body) {
    const headers = { ...(this.secret ? { "X-Flightline-Agent": this.secret } : {}), ...(this.token ? { Authorization: `Bearer ${this.token}` } : {}) };
    const response = await fetch(this.url + path, { method, headers, body, signal: this.ended.signal }), text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return text ? JSON.parse(text) : null;
  }
  async listen() {
    while (!this.ended.signal.aborted) {
      try {
        const { commands } = await this.ask("GET", `v1/agents/${this.id}/commands?after=${this.heard}`);
        for (const command of commands) {
          this.heard = Math.max(this.heard, command.number);
          this.commands.push(command);
        }
      } catch (error) {
        if (this.ended.signal.aborted) return;
        throw error;
      }
      this.waiting.splice(0).forEach((wake) => wake());
    }
  }
  /** The next command that it receives. */
  async told() {
    while (!this.commands.length) await new Promise((wake) => this.waiting.push(wake));
    return this.commands.shift();
  }
  progress(run, what) { return this.ask("POST", `v1/agents/${this.id}/runs/${run}`, JSON.stringify(what)); }
  deliver(run, bytes, message = "") { return this.ask("PUT", `v1/agents/${this.id}/runs/${run}/recording?message=${encodeURIComponent(message)}`, bytes); }
  gone(message) { return this.ask("POST", `v1/agents/${this.id}/gone`, JSON.stringify({ message })); }
  /** Stops polling. */
  async vanish() {
    this.ended.abort();
    await this.listening;
  }
}
