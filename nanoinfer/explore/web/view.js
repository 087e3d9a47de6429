// ---- view.js: what is looked at, and who repaints when it changes --------------------------------

import { PALETTES } from "./constants.js";
import { clamp } from "./dom.js";
import { Fold } from "./fold.js";
/** @import { Context, Model, Shown, Trace, ViewState } from "./types.js" */

const SAVE_AFTER = 120; // ms without a change before the step is reported to the model

/** @type {Shown} */
export const FIRST_SHOWN = { frame: 0, selected: null, sort: "arrival", activeOnly: false, table: false, playing: false, speed: 8, theme: "light" };

/** What is shown in `root`, and the functions that draw it, called once an animation frame at most. @template State */
export class Drawing {
  constructor(/** @type {HTMLElement} */ root, /** @type {State} */ state) {
    this.root = root;
    this.state = state;
    this.drawers = /** @type {((state: State) => void)[]} */ ([]);
    this.request = 0;
  }

  onDraw(/** @type {(state: State) => void} */ draw) {
    this.drawers.push(draw);
  }

  repaint() {
    if (this.request) return;
    this.request = requestAnimationFrame(() => this.draw());
  }

  /** Draws now. An explorer that is hidden has no width: it draws once it is shown. */
  draw() {
    cancelAnimationFrame(this.request);
    this.request = 0;
    if (!this.root.clientWidth) return;
    for (const draw of this.drawers) draw(this.state);
  }

  stop() {
    cancelAnimationFrame(this.request);
  }
}

/** What one explorer shows. Every field of its state changes through `set`. @extends {Drawing<ViewState>} */
export class View extends Drawing {
  /** @param {Trace} trace @param {Model | null} model @param {HTMLElement} root @param {number} atLeast frames that the pictures have room for, where the trace has fewer */
  constructor(trace, model, root, atLeast = 1) {
    super(root, { ...FIRST_SHOWN, from: 0, to: Math.max(atLeast, trace.frames), byOwner: false, bookmark: 0 });
    this.trace = this.track = trace;
    this.fold = new Fold(trace);
    this.model = model;
    this.atLeast = atLeast;
    this.marker = /** @type {number | null} */ (null); // a frame to mark in the pictures over frames
    this.saveTimer = 0;
  }

  /** Colours of the current theme. */
  get colors() {
    return PALETTES[this.state.theme];
  }

  /** Frames from end to end of the pictures. */
  get extent() {
    return Math.max(this.atLeast, this.trace.frames);
  }

  set(/** @type {Partial<ViewState>} */ change) {
    const next = { ...this.state, ...change };
    next.frame = clamp(Math.round(next.frame), 0, Math.max(0, this.trace.frames - 1));
    if ("frame" in change && !("from" in change)) keepInWindow(next);
    const moved = next.frame !== this.state.frame || next.selected !== this.state.selected;
    this.state = next;
    if (moved) this._save();
    this.repaint();
  }

  /** What the step at the cursor did. */
  inWords() {
    return this.trace.headline(this.state.frame);
  }

  /** Scales the zoom window around the cursor. @param {number} factor */
  zoom(factor) {
    this.set(zoomed(this, factor, this.state.frame + 0.5));
  }

  /** Selects a sequence, or nothing if it is selected already. @param {number} id */
  select(id) {
    this.set({ selected: id === this.state.selected ? null : id });
  }

  /** Reports step and selection, but not while they are still changing. */
  _save() {
    const { model } = this;
    clearTimeout(this.saveTimer);
    if (!model) return;
    this.saveTimer = window.setTimeout(() => {
      model.set("step", this.trace.firstStep(this.state.frame));
      model.set("selected", this.state.selected ?? -1);
      model.save_changes();
    }, SAVE_AFTER);
  }

  stop() {
    super.stop();
    clearTimeout(this.saveTimer);
  }
}

// ---- the zoom window ------------------------------------------------------------------------------

export const SMALLEST_WINDOW = 8; // frames

/** Moves the window by as little as brings the cursor into it. @param {ViewState} state */
function keepInWindow(state) {
  const width = state.to - state.from;
  if (state.frame < state.from) state.from = state.frame;
  else if (state.frame + 1 > state.to) state.from = state.frame + 1 - width;
  state.to = state.from + width;
}

/** The window scaled by `factor` around `center` (a frame that stays where it is). @param {View} view @param {number} factor @param {number} center */
export function zoomed(view, factor, center) {
  const { from, to } = view.state;
  const all = view.extent;
  const width = clamp((to - from) * factor, Math.min(SMALLEST_WINDOW, all), all);
  const start = clamp(center - ((center - from) / (to - from)) * width, 0, all - width);
  return { from: start, to: start + width };
}

/** The window moved by `frames`. @param {View} view @param {number} frames */
export function panned(view, frames) {
  const { from, to } = view.state;
  const shift = clamp(frames, -from, view.extent - to);
  return { from: from + shift, to: to + shift };
}

export const isZoomed = (/** @type {View} */ view) => view.state.to - view.state.from < view.extent - 1e-9;

// ---- pictures over frames ---------------------------------------------------------------------------

export const GUTTER = 62; // px left of every picture over frames, for labels
export const EDGE = 14; // px right of it, for half of the last label

/** Frames to pixels: `from` to `to` across a picture of `width` px. */
export class Scale {
  /** @param {number} width @param {number} from @param {number} to */
  constructor(width, from, to) {
    this.left = GUTTER;
    this.right = width - EDGE;
    this.from = from;
    this.to = to;
    this.step = (this.right - this.left) / Math.max(to - from, 1e-9); // px of one frame
  }

  x(/** @type {number} */ frame) {
    return this.left + (frame - this.from) * this.step;
  }

  frame(/** @type {number} */ x) {
    return this.from + (x - this.left) / this.step;
  }

  /** The frame under `x`, or null beside the picture. @param {number} x @param {number} frames */
  hit(x, frames) {
    const frame = Math.floor(this.frame(x));
    return x < this.left - 2 || x > this.right + 2 ? null : clamp(frame, 0, frames - 1);
  }
}

// The cursor: a faint band over the frame with an outline or, where frames are narrow, a line in its middle.
/** @param {Context} context @param {Scale} scale @param {number} frame @param {number} top @param {number} bottom @param {string} color */
export function drawCursor(context, scale, frame, top, bottom, color) {
  const [x, width] = [scale.x(frame), Math.max(scale.step, 1.5)];
  if (x + width < scale.left - 1 || x > scale.right + 1) return;
  context.fillStyle = color;
  context.globalAlpha = 0.13;
  context.fillRect(x, top, width, bottom - top);
  context.globalAlpha = 1;
  if (scale.step < 5) {
    context.fillRect(Math.round(x + width / 2 - 0.75), top, 1.5, bottom - top);
  } else {
    context.strokeStyle = color;
    context.lineWidth = 1.2;
    context.strokeRect(x + 0.6, top + 0.6, width - 1.2, bottom - top - 1.2);
  }
}

// Where a frame begins: a dashed line with a flag at its top.
/** @param {Context} context @param {Scale} scale @param {number | null} frame @param {number} top @param {number} bottom @param {string} color */
export function drawMarker(context, scale, frame, top, bottom, color) {
  if (frame === null) return;
  const x = Math.round(scale.x(frame)) + 0.5;
  if (x < scale.left - 1 || x > scale.right + 1) return;
  context.strokeStyle = context.fillStyle = color;
  context.lineWidth = 1.5;
  context.setLineDash([4, 3]);
  context.beginPath();
  context.moveTo(x, top);
  context.lineTo(x, bottom);
  context.stroke();
  context.setLineDash([]);
  context.beginPath();
  context.moveTo(x, top);
  context.lineTo(x + 7, top + 3.5);
  context.lineTo(x, top + 7);
  context.fill();
}
