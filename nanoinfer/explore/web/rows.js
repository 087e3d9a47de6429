// ---- rows.js: which sequences the timeline lists, in which order, how tall -------------------------

import { clamp } from "./dom.js";
/** @import { Bars, Order, Summary, View, ViewState } from "./types.js" */

const MOST_ROOM = 440; // px for all rows; more of them scroll
const MOST_FITTED = 140; // rows: above it they scroll at a fixed height
const ROW = { least: 3, scrolled: 5, most: 22 }; // px

/** @type {{[order in Order]: (a: Summary, b: Summary) => number}} */
export const ORDERS = {
  arrival: (a, b) => a.first - b.first || a.id - b.id,
  finish: (a, b) => a.finish - b.finish || a.id - b.id,
  preemptions: (a, b) => b.preemptions - a.preemptions || a.id - b.id,
};

/** The rows of the timeline. */
export class Rows {
  constructor(/** @type {View} */ view) {
    this.view = view;
    this.listed = /** @type {Summary[]} */ ([]); // in the order of the rows
    this.ids = /** @type {number[]} */ ([]);
    this.height = ROW.most;
    this.room = 0; // px
    this.key = "";
    this.summaries = /** @type {Summary[]} */ ([]); // of all sequences
    this.summariesOf = -1; // version of the bars
    this.mostAlive = 0;
  }

  /** Brings `ids`, `height` and `room` up to date. @param {ViewState} state */
  update(state) {
    const { bars } = this.view.trace;
    const key = [bars.version, state.sort, state.activeOnly ? state.frame : "all"].join("|");
    if (key === this.key) return;
    this.key = key;
    if (this.summariesOf !== bars.version) this._summarize(bars);
    this.listed = this.summaries.filter((summary) => !state.activeOnly || isAlive(summary, state.frame)).sort(ORDERS[state.sort]);
    this.ids = this.listed.map((s) => s.id);
    const most = state.activeOnly ? this.mostAlive : this.summaries.length;
    this.height = most > MOST_FITTED ? ROW.scrolled : clamp(Math.floor(MOST_ROOM / Math.max(most, 1)), ROW.least, ROW.most);
    this.room = Math.min(MOST_ROOM, Math.max(most, 1) * this.height);
  }

  _summarize(/** @type {Bars} */ bars) {
    this.summariesOf = bars.version;
    this.summaries = Array.from(bars.of.keys(), (id) => bars.summary(id));
    const change = new Int32Array(this.view.trace.frames + 2);
    for (const { first, last } of this.summaries) {
      change[Math.max(0, first)] += 1;
      change[last] -= 1;
    }
    let alive = 0;
    this.mostAlive = change.reduce((most, by) => Math.max(most, (alive += by)), 0);
  }
}

/** Whether a sequence is in the engine in `frame`. @param {Summary} summary @param {number} frame */
export const isAlive = ({ first, last }, frame) => first <= frame && frame < last;
