// ---- boot.js: a page of its own, without a kernel ---------------------------------------------------------------------------

import { renderComparison } from "./compare.js";
import { render } from "./explorer.js";
import { watchTheme } from "./theme.js";

/** What anywidget's model offers, over plain values. */
function plainModel(values) {
  const handlers = new Map();
  const of = (name) => handlers.get(name) ?? handlers.set(name, new Set()).get(name);
  return {
    get: (key) => values[key],
    set: (key, value) => {
      if (values[key] === value) return;
      values[key] = value;
      for (const handler of of(`change:${key}`)) handler();
    },
    save_changes: () => {},
    on: (name, handler) => of(name).add(handler),
    off: (name, handler) => of(name).delete(handler),
  };
}

/** In a notebook: takes the poster's place and keeps the frame as tall as the page. */
function fitFrame(frame, content, fixedHeight) {
  frame.style.display = "block";
  const poster = frame.parentElement?.querySelector("[data-ni-poster]");
  if (poster) poster.style.display = "none";
  // Where the colour schemes of page and frame differ, browsers paint the frame white.
  const scheme = () => (document.documentElement.style.colorScheme = frame.ownerDocument.defaultView.getComputedStyle(frame).colorScheme);
  scheme();
  watchTheme(scheme);
  if (fixedHeight) return;
  const fit = () => (frame.style.height = `${Math.ceil(content.getBoundingClientRect().height) + 4}px`);
  new ResizeObserver(fit).observe(content);
}

/** The frame around this page, or null where there is none or it may not be touched. */
function ownFrame() {
  try {
    return window.frameElement;
  } catch {
    return null;
  }
}

/** Draws what the page's state asks for. */
async function start() {
  const home = document.getElementById("ni-root");
  const values = JSON.parse(document.getElementById("ni-state").textContent);
  const frame = ownFrame();
  if (frame) fitFrame(frame, home, values.height);
  const cleanUp = await (values.comparison ? renderComparison : render)({ model: plainModel(values), el: home });
  if (!frame) home.firstElementChild.focus({ preventScroll: true }); // the keys work at once
  window.addEventListener("pagehide", (event) => event.persisted || cleanUp());
}

await start();
