// ---- explorer.js: all parts on one page; the entry point -------------------------------------------------------------------

import { BlockMap } from "./blocks.js";
import { CSS, SEQUENCE_LEGEND, WASTED_LEGEND } from "./constants.js";
import { traceOf } from "./data.js";
import { checkbox, grouped, iconButton, make, makeControl, Tooltip } from "./dom.js";
import { Queues } from "./queues.js";
import { ORDERS } from "./rows.js";
import { SequencePanel } from "./sequence.js";
import { Strip } from "./strip.js";
import { keepTheme } from "./theme.js";
import { Timeline } from "./timeline.js";
import { listenToKeys, Transport } from "./transport.js";
import { View } from "./view.js";
import { StepTable, Tour, Why } from "./words.js";
/** @import { Model, Mount, Movable, Order, Stop, Trace } from "./types.js" */

/** Heading, legend and controls over the timeline. @param {Movable} view @param {HTMLElement} heading */
export function timelineHead(view, heading) {
  const sort = makeControl("select", { "aria-label": "Order of the rows" });
  for (const name of Object.keys(ORDERS)) sort.append(make("option", { value: name, text: `by ${name}` }));
  sort.addEventListener("change", () => view.set({ sort: /** @type {Order} */ (sort.value) }));
  const active = checkbox("active at the cursor", (on) => view.set({ activeOnly: on }));
  const zoom = (/** @type {number} */ factor) => () => view.zoom(factor);
  const buttons = make(
    "span",
    { class: "ni-buttons", role: "group", "aria-label": "Zoom" },
    iconButton("minus", "Zoom out (-)", zoom(2)),
    iconButton("plus", "Zoom in (+)", zoom(0.5)),
    iconButton("whole", "Show the whole run (0)", zoom(Infinity)),
  );
  return make("div", { class: "ni-head" }, heading, make("span", { class: "ni-controls" }, sort, active, buttons));
}

export function timelineLegend(/** @type {boolean} */ overlap) {
  const entries = overlap ? [...SEQUENCE_LEGEND, WASTED_LEGEND] : SEQUENCE_LEGEND;
  return make("div", { class: "ni-legend" }, ...entries.map(([kind, text]) => make("span", {}, make("i", { class: `ni-bar ni-bar-${kind}` }), text)));
}

/** @type {[keys: string, use: string][]} */
const KEYS_HELP = [
  ["\u2190 \u2192", "one step"], ["PgUp PgDn", "ten steps on, back"], ["Home End", "first, last"], ["Space", "play, pause"], ["[ ]", "previous, next preemption"],
  ["+ \u2212 0", "zoom"], ["Esc", "clear selection"], ["\u2191 \u2193", "select a row, with the timeline focused"], ["Ctrl + wheel", "zoom; without Ctrl after a click"],
];

export function keysHelp(/** @type {[keys: string, use: string][]} */ ...more) {
  const list = [...KEYS_HELP, ...more].map(([keys, use]) => make("div", {}, make("dt", {}, make("kbd", { text: keys })), make("dd", { text: use })));
  return make("details", { class: "ni-keys" }, makeControl("summary", { text: "Keys" }), make("dl", {}, ...list));
}

/** Puts all parts into `root`. @param {HTMLElement} root @param {View} view */
function assemble(root, view) {
  const tooltip = new Tooltip(root);
  const { trace } = view;
  const transport = new Transport(view);
  const table = new StepTable(view);
  const rows = new Timeline(view, tooltip);
  const strip = new Strip(view, tooltip);
  const timeline = make("div", { class: "ni-panel" }, timelineHead(view, rows.heading), timelineLegend(trace.meta.overlap), strip.element, rows.element);
  const columns = make("div", { class: "ni-columns" }, new BlockMap(view, tooltip).element, new Queues(view, tooltip).element);
  transport.jumpBar.append(make("span", { class: "ni-space" }), table.button);
  const words = [bucketNote(trace), new Tour(view).element, new Why(view).element, table.holder];
  root.append(transport.element, transport.jumpBar, ...words, timeline, columns, new SequencePanel(view).element, keysHelp());
  return transport;
}

/** Says that frames are several steps, where they are. @param {Trace} trace */
export const bucketNote = ({ size, steps }) =>
  make("p", {
    class: "ni-note",
    text: `${grouped(steps)} steps are shown in frames of ${size}: bars and queues of a frame stand for all of its steps, blocks for the moment after its last.`,
    hidden: size === 1,
  });

/** Where an explorer opens: what the model asks for, or the first place of the tour. @param {Model} model @param {Trace} trace */
export function openingState(model, trace) {
  const tour = trace.meta.tour;
  const step = model.get("step") ?? 0;
  const selected = model.get("selected") ?? -1;
  if (tour.length && step === 0 && selected < 0) return { frame: trace.frameOf(tour[0].step), selected: tour[0].select };
  return { frame: trace.frameOf(step), selected: selected < 0 ? null : selected };
}

/** Follows the model: step and selection. @param {Model} model @param {View} view */
function followModel(model, view) {
  return listenToModel(model, {
    "change:step": () => {
      const frame = view.trace.frameOf(model.get("step"));
      if (frame !== view.state.frame) view.set({ frame });
    },
    "change:selected": () => view.set({ selected: model.get("selected") < 0 ? null : model.get("selected") }),
  });
}

/** @param {Model} model @param {{[name: string]: (message?: any) => void}} handlers @returns {Stop} */
export function listenToModel(model, handlers) {
  for (const [name, handler] of Object.entries(handlers)) model.on(name, handler);
  return () => Object.entries(handlers).forEach(([name, handler]) => model.off(name, handler));
}

// The model holds `trace` (the payload), `step`, `selected` (-1: none) and `theme` ("auto", "light" or "dark").
/** Draws an explorer into `el`, and returns what removes it again. @param {Mount} mount @returns {Promise<Stop>} */
export async function render({ model, el }) {
  const trace = await traceOf(model.get("trace"));
  const root = make("section", { class: "ni", "aria-label": "Explorer of an inference engine's trace" }, make("style", { text: CSS }));
  el.append(root);
  if (!trace.frames) {
    root.append(make("p", { class: "ni-note", text: "This trace has no steps." }));
    return () => root.remove();
  }
  const view = new View(trace, model, root);
  Object.assign(view.state, openingState(model, trace));
  const stops = [keepTheme(root, model, (theme) => view.set({ theme })), ...present(root, view, model)];
  root.dataset.ready = "true";
  return () => [...stops, () => root.remove()].forEach((stop) => stop());
}

/** Assembles a view in `root` and lets it follow its model. @param {HTMLElement} root @param {View} view @param {Model} model @returns {Stop[]} */
export function present(root, view, model) {
  const { player } = assemble(root, view);
  listenToKeys(root, view, player);
  view.draw();
  return [followModel(model, view), watchSize(root, view), () => player.stop(), () => view.stop()];
}

// The height changes nothing: a frame in a notebook is as tall as its content, which every longer sentence resizes.
/** Repaints when the explorer's width or the screen's resolution changes. @param {HTMLElement} root @param {{repaint: () => void}} view @returns {Stop} */
export function watchSize(root, view) {
  let [width, ratio] = [root.clientWidth, window.devicePixelRatio];
  const observer = new ResizeObserver(() => {
    if (root.clientWidth !== width) view.repaint();
    width = root.clientWidth;
  });
  observer.observe(root);
  const onResize = () => {
    if (window.devicePixelRatio !== ratio) view.repaint();
    ratio = window.devicePixelRatio;
  };
  window.addEventListener("resize", onResize);
  return () => {
    observer.disconnect();
    window.removeEventListener("resize", onResize);
  };
}
