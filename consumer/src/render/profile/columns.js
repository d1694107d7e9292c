"use strict";
/**
 * Decodes the boxes of a page, as written by `render/columns.rs`: label and depth of each, and own weights by measure. Uses
 * 32-bit weights and 16-bit labels if they fit, which halves the memory to read for each change of a view.
 */
function columnsOf(bytes, { count, names, measures }) {
  const order = byFrequency(bytes.subarray(0, names)), shape = bytes.subarray(names, names + count);
  let at = names + count;
  const label = new (names < 65530 ? Uint16Array : Uint32Array)(count);
  if (names <= 1) label.fill(0);
  else if (names <= 256) for (let i = 0; i < count; i++) label[i] = order[bytes[at + i]];
  else if (names <= 65536) for (let i = 0; i < count; i++) label[i] = order[(bytes[at + i] << 8) | bytes[at + count + i]];
  else {
    const planes = names <= 1 << 24 ? 3 : 4;
    for (let i = 0; i < count; i++) {
      let number = 0;
      for (let plane = 0; plane < planes; plane++) number = number * 256 + bytes[at + plane * count + i];
      label[i] = order[number];
    }
  }
  for (let last = names - 1; last > 0; last = Math.floor(last / 256)) at += count;
  const number = numbers(bytes.subarray(at)), depth = new Uint32Array(count);
  for (let i = 0, level = 0; i < count; i++) {
    const down = shape[i] >> 1;
    level -= down < 127 ? down : 127 + number();
    depth[i] = level++;
  }
  const owns = measures.map(({ total }) => {
    const own = new (total < 4294967296 ? Uint32Array : Float64Array)(count);
    for (let i = 0; i < count; i++) if (shape[i] & 1) own[i] = number();
    return own;
  });
  return { label, depth, owns };
}

/** Positions of names by their numbers; names with a larger bit length first. */
function byFrequency(bits) {
  const begins = new Uint32Array(34), order = new Uint32Array(bits.length);
  for (let name = 0; name < bits.length; name++) begins[32 - bits[name] + 1]++;
  for (let of = 1; of < begins.length; of++) begins[of] += begins[of - 1];
  for (let name = 0; name < bits.length; name++) order[begins[32 - bits[name]]++] = name;
  return order;
}
