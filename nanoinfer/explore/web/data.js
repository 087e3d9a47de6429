// ---- data.js: the payload, unpacked ------------------------------------------------------------
// Written by nanoinfer/explore/pack.py, whose docstring lists every column.

import { Bars } from "./bars.js";
import { joined, unpack } from "./columns.js";
import { clamp, grouped } from "./dom.js";

const HEADLINE = /^(Step \d+ \(|Steps \d)/; // the sentence that says what ran
const PER_FRAME = ["prefill", "decode", "wasted", "offset", "used"];
const NAMED = ["phase", "stop", "decode_stop"];
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
  constructor(meta) {
    this.meta = meta;
    this.frames = 0;
    this.steps = 0;
    this.size = meta.steps_per_frame;
    this.column = {}; // every numeric column, by name
    this.end = {}; // ragged columns: end of each frame's entries, by name
    this.phase = [];
    this.stop = [];
    this.decode_stop = [];
    this.sentences = [];
    this.endedReason = [];
    this.marks = { preemption: [], hit: [], refusal: [] };
    this.sequences = new Map();
    this.bars = new Bars(meta.bar_kinds);
  }

  /** @param {{start: number, end: number, steps: number}} chunk with its unpacked `columns` */
  append(chunk, columns) {
    this.frames = chunk.end;
    this.steps = chunk.steps;
    for (const name of PER_FRAME) this._join(name, columns);
    for (const name of NAMED) this[name] = this[name].concat(Array.from(columns[name], (i) => columns[`${name}_table`][i]));
    for (const [name, parts] of Object.entries(RAGGED)) this._joinRagged(name, parts, columns);
    this._join("table_block", columns);
    this.endedReason = this.endedReason.concat(columns.ended_reason);
    this.sentences = this.sentences.concat(columns.sentences);
    for (const name of Object.keys(this.marks)) this.marks[name] = this.marks[name].concat(columns.marks[name]);
    this.bars.replaceFrom(chunk.start, columns);
    this._describe(columns);
  }

  _join(name, columns) {
    this.column[name] = joined(this.column[name] ?? [], columns[name]);
  }

  _joinRagged(name, parts, columns) {
    for (const part of parts) this._join(`${name}_${part}`, columns);
    const counts = columns[`${name}_count`];
    const ends = new Int32Array(counts.length);
    let end = this.end[name]?.at(-1) ?? 0;
    counts.forEach((count, i) => (ends[i] = end += count));
    this.end[name] = joined(this.end[name] ?? [], ends);
  }

  _describe(columns) {
    for (const told of columns.sequences) {
      this.sequences.set(told.id, { ...this.sequence(told.id), ...told });
    }
    eachSlice(columns, "prompt", (id, ids) => (this.sequence(id).promptIds = ids));
    eachSlice(columns, "sample", (id, ids, i) => {
      const sequence = this.sequence(id);
      if (!sequence.samples) sequence.sampleFirst = columns.sample_first[i];
      if (sequence.samples === sequence.sampleIds.length) sequence.sampleIds = joined(sequence.sampleIds, ids);
      sequence.samples += columns.sample_total[i];
    });
  }

  sequence(id) {
    if (!this.sequences.has(id)) {
      this.sequences.set(id, { id, prompt_tokens: 0, promptIds: [], sampleIds: [], sampleFirst: 0, samples: 0 });
    }
    return this.sequences.get(id);
  }

  /** [first, end) of a ragged column's entries in `frame`. */
  range(name, frame) {
    return [frame > 0 ? this.end[name][frame - 1] : 0, this.end[name][frame]];
  }

  /** The entries of one ragged column in `frame`, as a plain array. */
  entries(name, part, frame) {
    return Array.from(this.column[`${name}_${part}`].subarray(...this.range(name, frame)));
  }

  /** Of all sentences about a frame the one that says what ran. */
  headline(frame) {
    return this.sentences[frame].split("\n").find((line) => HEADLINE.test(line)) ?? this.nameOf(frame);
  }

  firstStep(frame) {
    return frame * this.size;
  }

  lastStep(frame) {
    return Math.min((frame + 1) * this.size, this.steps) - 1;
  }

  frameOf(step) {
    return clamp(Math.floor(step / this.size), 0, Math.max(0, this.frames - 1));
  }

  /** "step 12", or "steps 100-149" where a frame is several steps. */
  nameOf(frame) {
    return this.nameOfRange(frame, frame);
  }

  nameOfRange(from, to) {
    const [first, last] = [this.firstStep(from), this.lastStep(to)];
    return first === last ? `step ${grouped(first)}` : `steps ${grouped(first)}\u2013${grouped(last)}`;
  }
}

/** A trace with all chunks of a payload. @returns {Promise<Trace>} */
export async function traceOf(payload) {
  const trace = new Trace(payload.meta);
  for (const chunk of payload.chunks) trace.append(chunk, await unpack(chunk));
  return trace;
}

/** Calls `use(seq_id, ids, i)` for the token ids of each sequence in a chunk. */
function eachSlice(columns, name, use) {
  let start = 0;
  columns[`${name}_seq`].forEach((id, i) => {
    const end = start + columns[`${name}_count`][i];
    use(id, columns[`${name}_ids`].slice(start, end), i);
    start = end;
  });
}
