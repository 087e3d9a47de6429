// ---- gestures.js: pointer, wheel and keys on the timeline ----------------------------------------------

import { clamp, pointIn } from "./dom.js";
import { zoomByWheel } from "./strip.js";
import { isZoomed, panned } from "./view.js";
/** @import { Timeline, View } from "./types.js" */

const CLICK_SLACK = 4; // px that a click may wander

/** A click selects the row and goes to the step; a drag scrubs, or pans when zoomed; a wheel zooms. @param {Timeline} timeline @param {View} view */
export function listenToTimeline(timeline, view) {
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
