// ---- timeline.js: one row per sequence over steps ----------------------------------------------------

import { clamp, counted, LayeredCanvas, make, makeControl, pointIn, setText, sized } from "./dom.js";
import { drawAxis, drawNames, drawRows } from "./rowpaint.js";
import { isAlive, Rows } from "./rows.js";
import { zoomByWheel } from "./strip.js";
import { drawCursor, drawMarker, GUTTER, isZoomed, panned, Scale } from "./view.js";
/** @import { Bar, Context, Tooltip, Trace, View, ViewState } from "./types.js" */

const AXIS = 20; // px
const CLICK_SLACK = 4; // px that a click may wander

/** The scrolling rows with the step axis under them. */
export class Timeline {
  constructor(/** @type {View} */ view, /** @type {Tooltip} */ tooltip) {
    this.view = view;
    this.rows = new Rows(view);
    this.layers = new LayeredCanvas({ class: "ni-rows" });
    this.canvas = this.layers.canvas;
    this.filler = make("div", { class: "ni-filler" }, this.canvas);
    this.scroller = makeControl("div", { class: "ni-scroller", tabindex: 0, role: "group", "aria-label": TIMELINE_HELP }, this.filler);
    this.axis = make("canvas", { class: "ni-axis", "aria-hidden": "true" });
    this.element = make("div", { class: "ni-canvas" }, this.scroller, this.axis);
    this.heading = make("h3");
    this.scale = new Scale(0, 0, 1);
    /** @type {{selected: number | null, frame: number, key: string}} */
    this.shown = { selected: null, frame: 0, key: "" }; // when it was drawn last
    this.scroller.addEventListener("scroll", () => view.repaint());
    tooltip.follow(this.canvas, (x, y) => this.describe(x, y));
    listenToTimeline(this, view);
    view.onDraw((state) => this.draw(state));
  }

  draw(/** @type {ViewState} */ state) {
    const { trace, colors } = this.view;
    this.rows.update(state);
    const { ids, height, room } = this.rows;
    this.scroller.style.height = `${room}px`;
    this.filler.style.height = `${Math.max(ids.length * height, room)}px`;
    this._keepInView(state);
    const width = this.scroller.clientWidth;
    this.scale = new Scale(this.element.clientWidth, state.from, state.to);
    const top = this.scroller.scrollTop;
    const key = [state.theme, state.from, state.to, top, this.rows.key];
    const context = this.layers.draw(width, room, key, (still) => drawRows(still, this, top));
    drawNames(context, this, state.selected, top);
    this._drawSelected(context, state, top);
    const bottom = Math.min(room, ids.length * height - top);
    drawMarker(context, this.scale, this.view.marker, 0, bottom, colors.ink);
    drawCursor(context, this.scale, state.frame, 0, bottom, colors.ink);
    drawAxis(sized(this.axis, this.element.clientWidth, AXIS), this.scale, this.view);
    setText(this.heading, `Timeline: ${counted(ids.length, "sequence")}${ids.length * height > room ? ", scroll for more" : ""}`);
    this.canvas.setAttribute("aria-label", `Timeline of ${counted(ids.length, "sequence")} over ${trace.nameOfRange(0, trace.frames - 1)}`);
  }

  /** Scrolls to a new selection, and to somebody alive at a new cursor where nobody in view is. @param {ViewState} state */
  _keepInView({ selected, frame }) {
    const { rows, scroller } = this;
    const isNew = selected !== this.shown.selected || rows.key !== this.shown.key;
    const row = rows.ids.indexOf(selected ?? -1);
    if (isNew && row >= 0) this._scrollTo(row);
    else if ((isNew || frame !== this.shown.frame) && rows.ids.length * rows.height > rows.room) {
      const top = Math.floor(scroller.scrollTop / rows.height);
      const inView = rows.listed.slice(top, top + Math.floor(rows.room / rows.height));
      if (!inView.some((summary) => isAlive(summary, frame))) this._scrollTo(rows.listed.findIndex((summary) => isAlive(summary, frame)));
    }
    this.shown = { selected, frame, key: rows.key };
  }

  _scrollTo(/** @type {number} */ row) {
    const { height, room } = this.rows;
    const { scrollTop } = this.scroller;
    if (row < 0) return;
    if (row * height < scrollTop) this.scroller.scrollTop = (row - 2) * height;
    else if ((row + 1) * height > scrollTop + room) this.scroller.scrollTop = (row + 3) * height - Math.min(room, 6 * height);
  }

  /** @param {Context} context @param {ViewState} state @param {number} top */
  _drawSelected(context, { selected }, top) {
    const row = this.rows.ids.indexOf(selected ?? -1);
    if (row < 0) return;
    const { colors } = this.view;
    const y = row * this.rows.height - top;
    context.strokeStyle = colors.ink;
    context.lineWidth = 1.4;
    const margin = this.rows.height < 10 ? 1.5 : 0.5; // outside of low rows, whose bars it would cover
    context.strokeRect(GUTTER - 1, y - margin, this.scale.right - GUTTER + 2, this.rows.height + 2 * margin - 1);
  }

  /** The sequence in the row at `y`, or null. @param {number} y */
  rowAt(y) {
    return this.rows.ids[Math.floor((y + this.scroller.scrollTop) / this.rows.height)] ?? null;
  }

  describe(/** @type {number} */ x, /** @type {number} */ y) {
    const { trace } = this.view;
    const id = this.rowAt(y);
    if (id === null) return null;
    const frame = this.scale.hit(x, trace.frames);
    if (frame === null) return [`sequence ${id}`];
    return [`sequence ${id}, ${trace.nameOf(frame)}`, ...describeBars(trace, id, frame)];
  }
}

const TIMELINE_HELP = "Timeline. Up and down select a sequence; plus and minus zoom, 0 shows the whole run.";

/** What a sequence did in a frame, a line each. @param {Trace} trace @param {number} id @param {number} frame */
export function describeBars(trace, id, frame) {
  const bars = trace.bars.covering(id, frame);
  if (!bars.length) return [isAlive(trace.bars.summary(id), frame) ? "running, not in this batch" : "not in the engine"];
  return bars.map((bar) => describeBar(bar, trace));
}

function describeBar(/** @type {Bar} */ bar, /** @type {Trace} */ trace) {
  const during = bar.end - bar.start > 1 ? ` (${trace.nameOfRange(bar.start, bar.end - 1)})` : "";
  const times = bar.spans > 1 ? `, ${bar.spans} times` : "";
  const range = trace.size === 1 ? ` (${tokenRange(bar.computed, bar.tokens)})` : "";
  const chunk = bar.chunks > 1 ? `, chunk ${bar.chunk} of ${bar.chunks}` : "";
  switch (bar.kind) {
    case "prefill": return `prefill of ${counted(bar.tokens, "token")}${range}${chunk}${times}`;
    case "decode": return `decode, one token a step${during}`;
    case "wasted": return `wasted: computed after its end, which was not known yet${during}${times}`;
    case "hit": return `prefix-cache hit: ${counted(bar.tokens, "token")} found${times}`;
    case "preempted": return `preempted, waits to be computed again${during}${times}`;
    default: return `${bar.kind}${during}`;
  }
}

/** @param {number} first @param {number} count */
export const tokenRange = (first, count) => `token${count === 1 ? "" : "s"} ${numberRange(first, count)}`;

/** "3", or "3–5". @param {number} first @param {number} count */
export const numberRange = (first, count) => (count === 1 ? `${first}` : `${first}\u2013${first + count - 1}`);

// ---- pointer, wheel and keys ------------------------------------------------------------------------

/** A click selects the row and goes to the step; a drag scrubs, or pans when zoomed; a wheel zooms. @param {Timeline} timeline @param {View} view */
function listenToTimeline(timeline, view) {
  const { canvas, scroller } = timeline;
  /** @type {{x: number, from: number, moved: boolean} | null} */
  let drag = null;
  canvas.addEventListener("pointerdown", (event) => {
    const [x] = pointIn(canvas, event);
    drag = { x, from: view.state.from, moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!drag) return;
    const [x] = pointIn(canvas, event);
    drag.moved ||= Math.abs(x - drag.x) > CLICK_SLACK;
    if (drag.moved) dragTo(timeline, view, drag, x);
  });
  canvas.addEventListener("pointerup", (event) => {
    if (drag && !drag.moved) clickTimeline(timeline, view, ...pointIn(canvas, event));
    drag = null;
  });
  canvas.addEventListener("pointercancel", () => (drag = null));
  scroller.addEventListener("wheel", (event) => wheelOverTimeline(timeline, view, event), { passive: false });
  scroller.addEventListener("keydown", (event) => keyOnTimeline(timeline, view, event));
}

/** @param {Timeline} timeline @param {View} view @param {{x: number, from: number}} drag @param {number} x */
function dragTo(timeline, view, drag, x) {
  if (isZoomed(view)) {
    view.set(panned(view, drag.from - view.state.from - (x - drag.x) / timeline.scale.step));
  } else {
    const frame = timeline.scale.hit(x, view.trace.frames);
    if (frame !== null) view.set({ frame });
  }
}

/** @param {Timeline} timeline @param {View} view @param {number} x @param {number} y */
function clickTimeline(timeline, view, x, y) {
  const id = timeline.rowAt(y);
  const frame = timeline.scale.hit(x, view.trace.frames);
  view.set({ ...(id === null ? {} : { selected: id }), ...(frame === null ? {} : { frame }) });
}

/** Zooms if the timeline was clicked before, with Ctrl, or by pinching; else rows or page scroll. @param {Timeline} timeline @param {View} view @param {WheelEvent} event */
function wheelOverTimeline(timeline, view, event) {
  const { scroller } = timeline;
  const scrolls = scroller.scrollHeight > scroller.clientHeight + 1;
  const engaged = scroller.matches(":focus") && !scrolls;
  if (event.ctrlKey || event.metaKey || event.shiftKey || engaged) {
    zoomByWheel(view, event, timeline.scale.frame(pointIn(timeline.canvas, event)[0]));
  }
}

/** @param {Timeline} timeline @param {View} view @param {KeyboardEvent} event */
function keyOnTimeline(timeline, view, event) {
  const by = event.key === "ArrowUp" ? -1 : event.key === "ArrowDown" ? 1 : 0;
  if (!by || event.ctrlKey || event.metaKey || event.altKey) return;
  const { ids } = timeline.rows;
  const row = ids.indexOf(view.state.selected ?? -1);
  if (ids.length) view.set({ selected: ids[row < 0 ? 0 : clamp(row + by, 0, ids.length - 1)] });
  event.preventDefault();
  event.stopPropagation();
}
