// ---- boot.js: a page of its own, without a kernel ---------------------------------------------------------------------------

import { renderComparison } from "./compare.js";
import { render } from "./explorer.js";
import { watchTheme } from "./theme.js";
/** @import { Model } from "./types.js" */

/** What anywidget's model offers, over plain values. @param {{[key: string]: any}} values @returns {Model} */
function plainModel(values) {
  const handlers = /** @type {{[name: string]: Set<() => void>}} */ ({});
  return {
    get: (key) => values[key],
    set: (key, value) => {
      if (values[key] === value) return;
      values[key] = value;
      for (const handler of handlers[`change:${key}`] ?? []) handler();
    },
    save_changes: () => {},
    on: (name, handler) => (handlers[name] ??= new Set()).add(handler),
    off: (name, handler) => handlers[name]?.delete(handler),
  };
}

/** In a notebook: takes the poster's place and keeps the frame as tall as the page. @param {HTMLElement} frame @param {HTMLElement} content @param {number | null} fixedHeight */
function fitFrame(frame, content, fixedHeight) {
  frame.style.display = "block";
  const poster = frame.parentElement?.querySelector("[data-ni-poster]");
  poster?.setAttribute("style", "display: none");
  // Where the colour schemes of page and frame differ, browsers paint the frame white.
  const scheme = () => (document.documentElement.style.colorScheme = frame.ownerDocument.defaultView?.getComputedStyle(frame).colorScheme ?? "");
  scheme();
  watchTheme(scheme);
  if (fixedHeight) return;
  const fit = () => (frame.style.height = `${Math.ceil(content.getBoundingClientRect().height) + 4}px`);
  new ResizeObserver(fit).observe(content);
}

/** The frame around this page, or null where there is none or it may not be touched. @returns {HTMLElement | null} */
function ownFrame() {
  try {
    return /** @type {HTMLElement | null} */ (window.frameElement);
  } catch {
    return null;
  }
}

/** Draws what the page's state asks for. */
async function start() {
  const [home, state] = ["ni-root", "ni-state"].map((id) => /** @type {HTMLElement} */ (document.getElementById(id)));
  const values = JSON.parse(state.textContent ?? "");
  const frame = ownFrame();
  if (frame) fitFrame(frame, home, values.height);
  const cleanUp = await (values.comparison ? renderComparison : render)({ model: plainModel(values), el: home });
  if (!frame) home.querySelector("section")?.focus({ preventScroll: true }); // the keys work at once
  window.addEventListener("pagehide", (event) => event.persisted || cleanUp());
}

await start();
