// ---- bars.js: who was in which state when -------------------------------------------------------

import { joined } from "./columns.js";

const BAR_PARTS = ["seq", "kind", "start", "length", "tokens", "computed", "chunk", "chunks", "spans"];
export const MOST_OVERLAP = 64; // a bar that covers a frame is among so many last ones that began before it

/**
 * One sequence in one state during frames `start` to `end - 1`.
 * @typedef {{seq: number, kind: string, start: number, end: number, tokens: number, computed: number,
 *   chunk: number, chunks: number, spans: number}} Bar
 */

/** All bars, by sequence and then by time, in columns. */
export class Bars {
  constructor(kinds) {
    this.kinds = kinds;
    for (const part of BAR_PARTS) this[part] = new Int32Array(0);
    this.of = new Map(); // sequence -> [first, end) of its bars
    this.version = 0; // changes with every append
  }

  /** A chunk repeats every bar that was still open: drop ours that end at `frame` or later, take the new ones. */
  replaceFrom(frame, columns) {
    const keep = [...this.seq.keys()].filter((i) => this.start[i] + this.length[i] < frame);
    const kept = Object.fromEntries(BAR_PARTS.map((part) => [part, keep.map((i) => this[part][i])]));
    const all = Object.fromEntries(BAR_PARTS.map((part) => [part, joined(kept[part], columns[`bar_${part}`])]));
    let order = [...all.seq.keys()];
    if (keep.length) order = order.sort((a, b) => all.seq[a] - all.seq[b] || all.start[a] - all.start[b] || all.kind[a] - all.kind[b]);
    for (const part of BAR_PARTS) this[part] = keep.length ? all[part].map((_, i) => all[part][order[i]]) : all[part];
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

  /** @returns {Bar} */
  at(i) {
    const bar = Object.fromEntries(BAR_PARTS.map((part) => [part, this[part][i]]));
    return { ...bar, kind: this.kinds[bar.kind], end: bar.start + bar.length };
  }

  /** The first of a sequence's bars that starts after `frame`. */
  firstAfter(id, frame) {
    let [low, high] = this.of.get(id) ?? [0, 0];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.start[middle] > frame) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  /** The bars of a sequence that cover `frame`, in order of time. @returns {Bar[]} */
  covering(id, frame) {
    const end = this.firstAfter(id, frame);
    const first = Math.max((this.of.get(id) ?? [0])[0], end - MOST_OVERLAP);
    const found = [];
    for (let i = first; i < end; i++) if (this.start[i] + this.length[i] > frame) found.push(this.at(i));
    return found;
  }

  /** The last bar of a sequence, up to `frame`, in which it was computed. @returns {Bar|null} */
  lastComputed(id, frame) {
    const [first] = this.of.get(id) ?? [0, 0];
    for (let i = this.firstAfter(id, frame) - 1; i >= first; i--) {
      if (this.isComputed(i)) return this.at(i);
    }
    return null;
  }

  /** The first bar of a sequence after `frame` in which it is computed. @returns {Bar|null} */
  nextComputed(id, frame) {
    const [, end] = this.of.get(id) ?? [0, 0];
    for (let i = this.firstAfter(id, frame); i < end; i++) if (this.isComputed(i)) return this.at(i);
    return null;
  }

  isComputed(i) {
    const kind = this.kinds[this.kind[i]];
    return kind === "prefill" || kind === "decode";
  }

  /** Tokens of a sequence whose KV is in the cache after `frame`, given that it holds blocks then; null if unknown. */
  written(id, frame) {
    const last = this.lastComputed(id, frame);
    if (last) return last.computed + (last.kind === "decode" ? Math.min(frame + 1, last.end) - last.start : last.tokens);
    return this.nextComputed(id, frame)?.computed ?? null; // computed before recording began
  }

  /** What a sequence is listed by. @returns {{id: number, first: number, last: number, finish: number, preemptions: number}} */
  summary(id) {
    const [first, end] = this.of.get(id);
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
