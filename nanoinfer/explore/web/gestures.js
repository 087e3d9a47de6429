// ---- gestures.js: pointer, wheel and keys on the timeline ----------------------------------------------

import { clamp, pointIn } from "./dom.js";
import { zoomByWheel } from "./strip.js";
import { isZoomed, panned } from "./view.js";

const CLICK_SLACK = 4; // px that a click may wander

/** A click selects the row and goes to the step; a drag scrubs, or pans when zoomed; a wheel zooms. */
export function listenToTimeline(timeline, view) {
  const { canvas, scroller } = timeline;
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

function dragTo(timeline, view, drag, x) {
  if (isZoomed(view)) {
    view.set(panned(view, drag.from - view.state.from - (x - drag.x) / timeline.scale.step));
  } else {
    const frame = timeline.scale.hit(x, view.trace.frames);
    if (frame !== null) view.go(frame);
  }
}

function clickTimeline(timeline, view, x, y) {
  const change = {};
  const id = timeline.rowAt(y);
  const frame = timeline.scale.hit(x, view.trace.frames);
  if (id !== null) change.selected = id;
  if (frame !== null) change.frame = frame;
  view.set(change);
}

/** Zooms once the timeline has been clicked, or with Ctrl, or by pinching; else the wheel scrolls rows or page. */
function wheelOverTimeline(timeline, view, event) {
  const { scroller } = timeline;
  const scrolls = scroller.scrollHeight > scroller.clientHeight + 1;
  const engaged = scroller.getRootNode().activeElement === scroller && !scrolls;
  if (event.ctrlKey || event.metaKey || event.shiftKey || engaged) {
    zoomByWheel(view, event, timeline.scale.frame(pointIn(timeline.canvas, event)[0]));
  }
}

function keyOnTimeline(timeline, view, event) {
  const by = { ArrowUp: -1, ArrowDown: 1 }[event.key];
  if (!by || event.ctrlKey || event.metaKey || event.altKey) return;
  const { ids } = timeline.rows;
  const row = ids.indexOf(view.state.selected);
  if (ids.length) view.set({ selected: ids[row < 0 ? 0 : clamp(row + by, 0, ids.length - 1)] });
  event.preventDefault();
  event.stopPropagation();
}
