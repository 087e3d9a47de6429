// ---- comparepair.js: two views that move together ------------------------------------------------------------------

import { clamp } from "./dom.js";
import { Drawing, View, zoomed } from "./view.js";

export const SIDES = ["a", "b"];

/** The view of one side. Whatever its parts change goes through the pair, so that both sides follow. */
class SideView extends View {
  constructor(trace, root, atLeast, pair, side) {
    super(trace, null, root, atLeast);
    Object.assign(this, { pair, side });
  }

  set(change) {
    this.pair.changeAt(this.side, change);
  }

  /** Takes over what the pair decided. */
  show(change) {
    super.set(change);
  }

  _save() {}
}

/**
 * What a comparison shows. Controls that move a view move a pair as well; `frame` is a position of the lock.
 * @typedef {{frame: number, lock: "step"|"time", selected: number|null, sort: string, activeOnly: boolean,
 *   table: boolean, playing: boolean, speed: number, theme: "light"|"dark"}} PairState
 */
export class Pair extends Drawing {
  /**
   * @param {Trace[]} traces
   * @param {{step: StepLock, time: TimeLock|null}} locks
   */
  constructor(traces, locks, marker, root) {
    super(root);
    this.locks = locks;
    /** @type {PairState} */
    this.state = { frame: 0, lock: "step", selected: null, sort: "arrival", activeOnly: false, table: false, playing: false, speed: 8, theme: "light" };
    this.sides = traces.map((trace, side) => new SideView(trace, root, locks.step.frames, this, side));
    for (const side of this.sides) side.marker = marker;
    this._place();
  }

  /** What the slider moves over. */
  get trace() {
    return this.locks[this.state.lock];
  }

  /** @param {Partial<PairState>} change */
  set(change) {
    const next = { ...this.state, ...change };
    next.frame = clamp(Math.round(next.frame), 0, this.locks[next.lock].frames - 1);
    this.state = next;
    this._place();
    const { frame: _frame, lock: _lock, ...shared } = change;
    const [first, second] = this._order();
    this._show(first, shared);
    this._show(second, { ...shared, ...this._windowFor(first) });
    this.repaint();
  }

  /** A change that one side's parts ask for, its frame counted on that side. */
  changeAt(side, { frame, byOwner, ...shared }) {
    if (byOwner !== undefined) this.sides[side].show({ byOwner });
    if (frame !== undefined) shared.frame = this.trace.positionOf(side, clamp(Math.round(frame), 0, this.sides[side].trace.frames - 1));
    if (Object.keys(shared).length) this.set(shared);
  }

  /** Changes what is held equal; the first side that is still running keeps its step. */
  lock(lock) {
    const [{ side, state }] = this._order();
    this.set({ lock, frame: this.locks[lock].positionOf(side, state.frame) });
  }

  zoom(factor) {
    const [first, second] = this._order();
    first.show(zoomed(first, factor, first.state.frame + 0.5));
    second.show(this.state.lock === "step" ? this._windowFor(first) : zoomed(second, factor, second.state.frame + 0.5));
    this.repaint();
  }

  _place() {
    this.places = this.sides.map((_, side) => this.trace.placeOf(side, this.state.frame));
  }

  /** Both sides, first the one that the zoom window follows. */
  _order() {
    const [a, b] = this.sides;
    return this.places[0].status !== "on" && this.places[1].status === "on" ? [b, a] : [a, b];
  }

  /** At the same step both show the same window; at the same time each keeps its own step in view. */
  _windowFor(first) {
    return this.state.lock === "step" ? { from: first.state.from, to: first.state.to } : {};
  }

  _show(view, shared) {
    const { selected } = this.state;
    const known = selected !== null && view.trace.bars.of.has(selected) ? selected : null;
    view.show({ ...shared, frame: this.places[view.side].frame, selected: known });
  }

  stop() {
    super.stop();
    for (const side of this.sides) side.stop();
  }
}
