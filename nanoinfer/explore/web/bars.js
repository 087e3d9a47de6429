// ---- bars.js: who was in which state when -------------------------------------------------------

import { joined } from "./columns.js";

/** @import { Bar, Columns, Numbers, SequenceKind, Summary } from "./types.js" */

const BAR_PARTS = /** @type {const} */ (["seq", "kind", "start", "length", "tokens", "computed", "chunk", "chunks", "spans"]);
export const MOST_OVERLAP = 64; // a bar that covers a frame is among so many last ones that began before it

/** All bars, by sequence and then by time, in columns. */
export class Bars {
  constructor(/** @type {SequenceKind[]} */ kinds) {
    this.kinds = kinds;
    const none = /** @type {Numbers} */ (new Int32Array(0));
    this.seq = this.kind = this.start = this.length = this.tokens = this.computed = this.chunk = this.chunks = this.spans = none;
    this.of = /** @type {Map<number, [first: number, end: number]>} */ (new Map()); // by sequence: where its bars are
    this.version = 0; // changes with every append
  }

  /** A chunk repeats every bar that was still open: drop ours that end at `frame` or later, take the new ones. @param {number} frame @param {Columns} columns */
  replaceFrom(frame, columns) {
    const keep = [...this.seq.keys()].filter((i) => this.start[i] + this.length[i] < frame);
    for (const part of BAR_PARTS) this[part] = joined(keep.map((i) => this[part][i]), columns[`bar_${part}`]);
    if (keep.length) {
      const { seq, start, kind } = this;
      const order = [...seq.keys()].sort((a, b) => seq[a] - seq[b] || start[a] - start[b] || kind[a] - kind[b]);
      for (const part of BAR_PARTS) this[part] = Int32Array.from(order, (i) => this[part][i]);
    }
    this._index();
    this.version += 1;
  }

  _index() {
    this.of.clear();
    for (let i = 0, first = 0; i < this.seq.length; i++) {
      if (i + 1 === this.seq.length || this.seq[i + 1] !== this.seq[i]) {
        this.of.set(this.seq[i], [first, i + 1]);
        first = i + 1;
      }
    }
  }

  /** @returns {Bar} @param {number} i */
  at(i) {
    const { seq, start, length, tokens, computed, chunk, chunks, spans } = this;
    return {
      seq: seq[i], kind: this.kinds[this.kind[i]], start: start[i], end: start[i] + length[i], tokens: tokens[i], computed: computed[i],
      chunk: chunk[i], chunks: chunks[i], spans: spans[i],
    };
  }

  /** The first of a sequence's bars that starts after `frame`. @param {number} id @param {number} frame */
  firstAfter(id, frame) {
    let [low, high] = this.of.get(id) ?? [0, 0];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.start[middle] > frame) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  /** The bars of a sequence that cover `frame`, in order of time. @returns {Bar[]} @param {number} id @param {number} frame */
  covering(id, frame) {
    const end = this.firstAfter(id, frame);
    const first = Math.max((this.of.get(id) ?? [0])[0], end - MOST_OVERLAP);
    const found = [];
    for (let i = first; i < end; i++) if (this.start[i] + this.length[i] > frame) found.push(this.at(i));
    return found;
  }

  /** The last bar of a sequence, up to `frame`, in which it was computed. @returns {Bar|null} @param {number} id @param {number} frame */
  lastComputed(id, frame) {
    const [first] = this.of.get(id) ?? [0, 0];
    for (let i = this.firstAfter(id, frame) - 1; i >= first; i--) {
      if (this.isComputed(i)) return this.at(i);
    }
    return null;
  }

  /** The first bar of a sequence after `frame` in which it is computed. @returns {Bar|null} @param {number} id @param {number} frame */
  nextComputed(id, frame) {
    const [, end] = this.of.get(id) ?? [0, 0];
    for (let i = this.firstAfter(id, frame); i < end; i++) if (this.isComputed(i)) return this.at(i);
    return null;
  }

  isComputed(/** @type {number} */ i) {
    const kind = this.kinds[this.kind[i]];
    return kind === "prefill" || kind === "decode";
  }

  /** Tokens of a sequence whose KV is in the cache after `frame`, given that it holds blocks then; null if unknown. @param {number} id @param {number} frame */
  written(id, frame) {
    const last = this.lastComputed(id, frame);
    if (last) return last.computed + (last.kind === "decode" ? Math.min(frame + 1, last.end) - last.start : last.tokens);
    return this.nextComputed(id, frame)?.computed ?? null; // computed before recording began
  }

  /** What a sequence is listed by. @param {number} id @returns {Summary} */
  summary(id) {
    const [first, end] = this.of.get(id) ?? [0, 0];
    const summary = { id, first: this.start[first], last: 0, finish: Infinity, preemptions: 0 };
    for (let i = first; i < end; i++) {
      const kind = this.kinds[this.kind[i]];
      summary.last = Math.max(summary.last, this.start[i] + this.length[i]);
      if (kind === "finished") summary.finish = this.start[i];
      if (kind === "preempted") summary.preemptions += this.spans[i];
    }
    return summary;
  }
}
