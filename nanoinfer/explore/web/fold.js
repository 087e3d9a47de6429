// ---- fold.js: the scheduler's state after any frame --------------------------------------------
// The payload holds differences. A copy of the state every so many frames keeps going back short.

/** @import { Trace } from "./types.js" */

const KEY_EVERY = 64; // frames
const MOST_KEYED_ITEMS = 8e6; // entries in all copies together: above it they are farther apart

/** Queues, block tables and findable blocks at one moment. */
export class EngineState {
  /** @param {number[]} waiting @param {number[]} running @param {Map<number, number[]>} tables by sequence @param {Uint8Array} findable by block */
  constructor(waiting, running, tables, findable) {
    this.waiting = waiting;
    this.running = running;
    this.tables = tables; // Map: sequence -> physical blocks
    this.findable = findable; // Uint8Array by block
  }

  copy() {
    const tables = new Map(Array.from(this.tables, ([id, table]) => [id, table.slice()]));
    return new EngineState(this.waiting.slice(), this.running.slice(), tables, this.findable.slice());
  }

  /** How many sequences hold each block. */
  refCounts() {
    const counts = new Int32Array(this.findable.length);
    for (const table of this.tables.values()) for (const block of table) counts[block] += 1;
    return counts;
  }

  /** The sequences that hold `block`. @param {number} block */
  holders(block) {
    return Array.from(this.tables).filter(([, table]) => table.includes(block)).map(([id]) => id);
  }
}

/** Folds a trace to any frame. */
export class Fold {
  constructor(/** @type {Trace} */ trace) {
    this.trace = trace;
    const { initial, num_blocks: blocks } = trace.meta;
    const findable = new Uint8Array(blocks);
    for (const block of initial.findable) findable[block] = 1;
    this.initial = new EngineState(initial.waiting, initial.running, new Map(initial.tables), findable);
    this.state = this.initial.copy();
    this.frame = -1;
    this.keys = /** @type {Map<number, EngineState>} */ (new Map());
    this.keyEvery = Math.max(KEY_EVERY, Math.ceil((trace.frames * 2 * blocks) / MOST_KEYED_ITEMS));
    this.tableStart = [0]; // where each table edit's blocks begin in table_block
  }

  /** The state after `frame` (-1: before the first). Valid until the next call. @returns {EngineState} @param {number} frame */
  at(frame) {
    const [key, state] = this._nearestKey(frame);
    if (frame < this.frame || key > this.frame) {
      this.frame = key;
      this.state = state.copy();
    }
    while (this.frame < frame) this._advance();
    return this.state;
  }

  /** The last copy up to `frame`. @param {number} frame @returns {[frame: number, state: EngineState]} */
  _nearestKey(frame) {
    for (let key = Math.floor(frame / this.keyEvery) * this.keyEvery; key >= 0; key -= this.keyEvery) {
      const state = this.keys.get(key);
      if (state) return [key, state];
    }
    return [-1, this.initial];
  }

  _advance() {
    this.frame += 1;
    this._editQueues();
    this._editTables();
    for (const entry of this.trace.entries("findable", "block", this.frame)) {
      this.state.findable[entry < 0 ? ~entry : entry] = entry < 0 ? 0 : 1;
    }
    if (this.frame % this.keyEvery === 0 && !this.keys.has(this.frame)) this.keys.set(this.frame, this.state.copy());
  }

  _editQueues() {
    const { queue_which: which, queue_position: position, queue_seq: seq } = this.trace.column;
    const [first, end] = this.trace.range("queue", this.frame);
    for (let i = first; i < end; i++) {
      const queue = which[i] ? this.state.running : this.state.waiting;
      if (position[i] < 0) queue.splice(queue.indexOf(seq[i]), 1);
      else queue.splice(position[i], 0, seq[i]);
    }
  }

  _editTables() {
    const { table_seq: seq, table_keep: keep, table_more: more, table_block: blocks } = this.trace.column;
    const [first, end] = this.trace.range("table", this.frame);
    for (let i = first; i < end; i++) {
      const start = this._tableStart(i);
      const table = (this.state.tables.get(seq[i]) ?? []).slice(0, keep[i]);
      for (let at = start; at < start + more[i]; at++) table.push(blocks[at]);
      if (table.length) this.state.tables.set(seq[i], table);
      else this.state.tables.delete(seq[i]);
    }
  }

  _tableStart(/** @type {number} */ edit) {
    const starts = this.tableStart;
    while (starts.length <= edit) {
      const i = starts.length;
      starts.push(starts[i - 1] + this.trace.column.table_more[i - 1]);
    }
    return starts[edit];
  }

  /** The queues as the step found them, with those who arrived for it. @returns {{waiting: number[], running: number[]}} @param {number} frame */
  queuesBefore(frame) {
    const state = this.at(frame - 1);
    return { waiting: [...state.waiting, ...this.trace.entries("arrived", "seq", frame)], running: state.running.slice() };
  }
}
