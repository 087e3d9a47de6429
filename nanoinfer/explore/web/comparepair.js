// ---- comparepair.js: two views that move together ------------------------------------------------------------------

import { clamp, grouped } from "./dom.js";
import { Drawing, FIRST_SHOWN, View, zoomed } from "./view.js";
/** @import { Locks, PairState, Trace, ViewState } from "./types.js" */

export const SIDES = ["a", "b"];

/** The view of one side. Whatever its parts change goes through the pair, so that both sides follow. */
export class SideView extends View {
  /** @param {Trace} trace @param {HTMLElement} root @param {number} atLeast @param {Pair} pair @param {number} side */
  constructor(trace, root, atLeast, pair, side) {
    super(trace, null, root, atLeast);
    this.pair = pair;
    this.side = side;
  }

  set(/** @type {Partial<ViewState>} */ change) {
    this.pair.changeAt(this.side, change);
  }

  /** Takes over what the pair decided. @param {Partial<ViewState>} change */
  show(change) {
    super.set(change);
  }
}

/** What a comparison shows. Controls that move a view move a pair as well; `frame` is a position of the lock. @extends {Drawing<PairState>} */
export class Pair extends Drawing {
  /** @param {Trace[]} traces @param {Locks} locks @param {number | null} marker @param {HTMLElement} root */
  constructor(traces, locks, marker, root) {
    super(root, { ...FIRST_SHOWN, lock: "step" });
    this.locks = locks;
    this.sides = traces.map((trace, side) => new SideView(trace, root, locks.step.frames, this, side));
    for (const side of this.sides) side.marker = marker;
    this.places = this._places();
  }

  /** What the slider moves over. */
  get track() {
    return this._lock(this.state.lock);
  }

  _lock(/** @type {PairState["lock"]} */ name) {
    return (name === "time" && this.locks.time) || this.locks.step;
  }

  set(/** @type {Partial<PairState>} */ change) {
    const next = { ...this.state, ...change };
    next.frame = clamp(Math.round(next.frame), 0, this._lock(next.lock).frames - 1);
    this.state = next;
    this.places = this._places();
    const { frame: _frame, lock: _lock, ...shared } = change;
    const [first, second] = this._order();
    this._show(first, shared);
    this._show(second, { ...shared, ...this._windowFor(first) });
    this.repaint();
  }

  /** A change that one side's parts ask for, its frame counted on that side. @param {number} side @param {Partial<ViewState>} change */
  changeAt(side, { byOwner, ...shared }) {
    if (byOwner !== undefined) this.sides[side].show({ byOwner });
    if (shared.frame !== undefined) shared.frame = this.track.positionOf(side, clamp(Math.round(shared.frame), 0, this.sides[side].trace.frames - 1));
    if (Object.keys(shared).length) this.set(shared);
  }

  /** Changes what is held equal; the first side that is still running keeps its step. @param {PairState["lock"]} lock */
  lock(lock) {
    const [{ side, state }] = this._order();
    this.set({ lock, frame: this._lock(lock).positionOf(side, state.frame) });
  }

  zoom(/** @type {number} */ factor) {
    const [first, second] = this._order();
    first.show(zoomed(first, factor, first.state.frame + 0.5));
    second.show(this.state.lock === "step" ? this._windowFor(first) : zoomed(second, factor, second.state.frame + 0.5));
    this.repaint();
  }

  /** What both sides did, or that they do not move. */
  inWords() {
    return this.sides.map((view) => `${SIDES[view.side]}: ${this.idle(view) ?? view.inWords()}`).join(" ");
  }

  /** Why a side does not move, or null if it does. @param {SideView} view */
  idle({ side, trace }) {
    const { status } = this.places[side];
    if (status === "early") return "has not started yet.";
    return status === "ended" ? `has ended: its last step was ${grouped(trace.steps - 1)}.` : null;
  }

  _places() {
    return this.sides.map((_, side) => this.track.placeOf(side, this.state.frame));
  }

  /** Both sides, first the one that the zoom window follows. */
  _order() {
    const [a, b] = this.sides;
    return this.places[0].status !== "on" && this.places[1].status === "on" ? [b, a] : [a, b];
  }

  /** At the same step both show the same window; at the same time each keeps its own step in view. @param {View} first */
  _windowFor(first) {
    return this.state.lock === "step" ? { from: first.state.from, to: first.state.to } : {};
  }

  _show(/** @type {SideView} */ view, /** @type {Partial<ViewState>} */ shared) {
    const { selected } = this.state;
    const known = selected !== null && view.trace.bars.of.has(selected) ? selected : null;
    view.show({ ...shared, frame: this.places[view.side].frame, selected: known });
  }

  stop() {
    super.stop();
    for (const side of this.sides) side.stop();
  }
}
