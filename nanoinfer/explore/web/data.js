// ---- data.js: the payload, unpacked ------------------------------------------------------------
// Written by nanoinfer/explore/pack.py, whose docstring lists every column.

import { Bars } from "./bars.js";
import { joined, unpack } from "./columns.js";
import { clamp, grouped } from "./dom.js";
/** @import { Chunk, Columns, Marks, Meta, Numbers, Payload, Sequence } from "./types.js" */

const PER_FRAME = ["prefill", "decode", "wasted", "offset", "used", "headline"];
const NAMED = ["phase", "stop", "decode_stop"];
const TEXTS = ["sentences", "ended_reason"];
const RAGGED = {
  queue: ["which", "position", "seq"],
  table: ["seq", "keep", "more"],
  findable: ["block"],
  changed: ["block"],
  arrived: ["seq"],
  ended: ["seq"],
  preempted: ["victim", "on_behalf_of", "blocks", "tokens", "self"],
};

/** A trace as the views read it. It grows when a chunk is appended. */
export class Trace {
  label = "Engine step";

  constructor(/** @type {Meta} */ meta) {
    this.meta = meta;
    this.frames = 0;
    this.steps = 0;
    this.size = meta.steps_per_frame;
    this.column = /** @type {{[name: string]: Numbers}} */ ({}); // every numeric column
    this.end = /** @type {{[name: string]: Numbers}} */ ({}); // ragged columns: end of each frame's entries
    this.words = /** @type {{[name: string]: string[]}} */ ({});
    for (const name of [...NAMED, ...TEXTS]) this.words[name] = [];
    this.marks = /** @type {Marks} */ ({ preemption: [], hit: [], refusal: [] });
    this.sequences = /** @type {Map<number, Sequence>} */ (new Map());
    this.bars = new Bars(meta.bar_kinds);
  }

  append(/** @type {Chunk} */ chunk, /** @type {Columns} */ columns) {
    this.frames = chunk.end;
    this.steps = chunk.steps;
    for (const name of PER_FRAME) this._join(name, columns);
    for (const name of NAMED) this.words[name] = this.words[name].concat(Array.from(columns[name], (i) => columns[`${name}_table`][i]));
    for (const name of TEXTS) this.words[name] = this.words[name].concat(columns[name]);
    for (const [name, parts] of Object.entries(RAGGED)) this._joinRagged(name, parts, columns);
    this._join("table_block", columns);
    for (const [name, frames] of Object.entries(this.marks)) frames.push(...columns.marks[name]);
    this.bars.replaceFrom(chunk.start, columns);
    this._describe(columns);
  }

  _join(/** @type {string} */ name, /** @type {Columns} */ columns) {
    this.column[name] = joined(this.column[name] ?? [], columns[name]);
  }

  /** @param {string} name @param {string[]} parts @param {Columns} columns */
  _joinRagged(name, parts, columns) {
    for (const part of parts) this._join(`${name}_${part}`, columns);
    const counts = columns[`${name}_count`];
    const ends = new Int32Array(counts.length);
    let end = this.end[name]?.at(-1) ?? 0;
    for (let i = 0; i < counts.length; i++) ends[i] = end += counts[i];
    this.end[name] = joined(this.end[name] ?? [], ends);
  }

  _describe(/** @type {Columns} */ columns) {
    for (const told of columns.sequences) this.sequences.set(told.id, { ...this.sequence(told.id), ...told });
    eachSlice(columns, "prompt", (id, ids) => (this.sequence(id).promptIds = ids));
    eachSlice(columns, "sample", (id, ids, i) => {
      const sequence = this.sequence(id);
      if (!sequence.samples) sequence.sampleFirst = columns.sample_first[i];
      if (sequence.samples === sequence.sampleIds.length) sequence.sampleIds = joined(sequence.sampleIds, ids);
      sequence.samples += columns.sample_total[i];
    });
  }

  sequence(/** @type {number} */ id) {
    const known = this.sequences.get(id);
    if (known) return known;
    const sequence = /** @type {Sequence} */ ({ id, prompt_tokens: 0, promptIds: [], sampleIds: new Int32Array(0), sampleFirst: 0, samples: 0 });
    this.sequences.set(id, sequence);
    return sequence;
  }

  /** [first, end) of a ragged column's entries in `frame`. @param {string} name @param {number} frame */
  range(name, frame) {
    return [frame > 0 ? this.end[name][frame - 1] : 0, this.end[name][frame]];
  }

  /** The entries of one ragged column in `frame`, as a plain array. @param {string} name @param {string} part @param {number} frame */
  entries(name, part, frame) {
    return Array.from(this.column[`${name}_${part}`].subarray(...this.range(name, frame)));
  }

  /** Of all sentences about a frame the one that says what ran. @param {number} frame */
  headline(frame) {
    return this.words.sentences[frame].split("\n")[this.column.headline[frame]];
  }

  firstStep(/** @type {number} */ frame) {
    return frame * this.size;
  }

  lastStep(/** @type {number} */ frame) {
    return Math.min((frame + 1) * this.size, this.steps) - 1;
  }

  frameOf(/** @type {number} */ step) {
    return clamp(Math.floor(step / this.size), 0, Math.max(0, this.frames - 1));
  }

  /** "step 12", or "steps 100-149" where a frame is several steps. @param {number} frame */
  nameOf(frame) {
    return this.nameOfRange(frame, frame);
  }

  /** "step 12 / 40". @param {number} frame */
  progress(frame) {
    return `${this.nameOf(frame)} / ${grouped(this.steps - 1)}`;
  }

  nameOfRange(/** @type {number} */ from, /** @type {number} */ to) {
    const [first, last] = [this.firstStep(from), this.lastStep(to)];
    return first === last ? `step ${grouped(first)}` : `steps ${grouped(first)}\u2013${grouped(last)}`;
  }
}

/** A trace with all chunks of a payload. @returns {Promise<Trace>} @param {Payload} payload */
export async function traceOf(payload) {
  const trace = new Trace(payload.meta);
  for (const chunk of payload.chunks) trace.append(chunk, await unpack(chunk));
  return trace;
}

/** Visits each sequence's token ids in a chunk. @param {Columns} columns @param {string} name @param {(id: number, ids: Numbers, i: number) => void} use */
function eachSlice(columns, name, use) {
  let start = 0;
  for (const [i, id] of columns[`${name}_seq`].entries()) {
    const end = start + columns[`${name}_count`][i];
    use(id, columns[`${name}_ids`].slice(start, end), i);
    start = end;
  }
}
