"use strict";
async function inflated(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/**
 * The data of a page: `profile` describes it, `frames` has names, modules and kinds by label, in order of names, `trees` has one
 * tree for each measure of each event, `times` the times of samples for each event, null if they are not known. Each measure gets
 * `at`, its position in its event.
 */
async function profileData() {
  const profile = JSON.parse(byId("profile").textContent);
  const [text, columns] = await Promise.all([inflated(bytesOf("frames")), inflated(bytesOf("boxes"))]);
  const frames = { ...JSON.parse(new TextDecoder().decode(text)), application: profile.application }, { label, depth, owns } = columnsOf(columns, profile);
  const base = new CallTree({ label, depth, own: owns[0] }, profile.measures[0].total);
  const trees = owns.map((own, i) => i ? base.weighed(own, profile.measures[i].total) : base);
  profile.measures.forEach((measure, i) => { measure.at = i - profile.measures.findIndex(({ event }) => event === measure.event); });
  const times = profile.times ? timesOf(profile.times, await inflated(bytesOf("times"))) : profile.events.map(() => null);
  return { profile, frames, trees, times };
}

/** Handles of functions in addresses: names, with the module if several functions have the name. */
class Handles {
  constructor(frames) {
    this.frames = frames;
    this.labels = new Map();
    this.several = new Set();
    frames.names.forEach((name, label) => {
      if (this.labels.has(name)) this.several.add(name);
      else this.labels.set(name, label);
    });
    frames.names.forEach((name, label) => {
      if (this.several.has(name)) this.labels.set(this.of(label), label);
    });
  }
  of(label) {
    const name = this.frames.names[label];
    return this.several.has(name) ? `${name} in ${this.frames.modules[label] || "?"} (${this.frames.kinds[label]})` : name;
  }
  label(handle) {
    return this.labels.get(handle) ?? -1;
  }
  path(tree, box) {
    return pathTo(tree, box).map((i) => this.of(tree.label[i]));
  }
  /** Returns the box at the end of a path, or of the part of it that exists. */
  follow(tree, path) {
    let box = -1;
    for (const handle of path) {
      const label = this.label(handle);
      let child = tree.first(box);
      while (child >= 0 && tree.label[child] !== label) child = tree.next(child);
      if (child < 0) break;
      box = child;
    }
    return box;
  }
}

/** Adds a label for the region of stacks that exist in only one of two profiles. */
function regionLabel(frames, name) {
  frames.names.push(name);
  frames.modules.push("");
  frames.kinds += "m";
  return frames.names.length - 1;
}
