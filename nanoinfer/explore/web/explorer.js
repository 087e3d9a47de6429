// ---- explorer.js: all parts on one page; the entry point -------------------------------------------------------------------

import { BlockMap } from "./blocks.js";
import { unpack } from "./columns.js";
import { CSS, SEQUENCE_LEGEND, WASTED_LEGEND } from "./constants.js";
import { traceOf } from "./data.js";
import { checkbox, grouped, iconButton, make, makeControl } from "./dom.js";
import { Queues } from "./queues.js";
import { ORDERS } from "./rows.js";
import { SequencePanel } from "./sequence.js";
import { StepTable } from "./steptable.js";
import { Strip } from "./strip.js";
import { applyTheme, surroundingTheme, watchTheme } from "./theme.js";
import { Timeline } from "./timeline.js";
import { Tooltip } from "./tooltip.js";
import { Tour } from "./tour.js";
import { listenToKeys, Transport } from "./transport.js";
import { isZoomed, View } from "./view.js";
import { Why } from "./why.js";

/** Heading, legend and controls over the timeline. */
export function timelineHead(view, heading) {
  const sort = makeControl("select", { "aria-label": "Order of the rows" });
  for (const name of Object.keys(ORDERS)) sort.append(make("option", { value: name, text: `by ${name}` }));
  sort.addEventListener("change", () => view.set({ sort: sort.value }));
  const active = checkbox("active at the cursor", (on) => view.set({ activeOnly: on }));
  const zoom = (factor) => () => view.zoom(factor);
  const buttons = make(
    "span",
    { class: "ni-buttons", role: "group", "aria-label": "Zoom" },
    iconButton("minus", "Zoom out (-)", zoom(2)),
    iconButton("plus", "Zoom in (+)", zoom(0.5)),
    iconButton("whole", "Show the whole run (0)", zoom(Infinity)),
  );
  return make("div", { class: "ni-head" }, heading, make("span", { class: "ni-controls" }, sort, active, buttons));
}

/** @param {boolean} overlap whether a step may be launched before it is known who has ended */
export function timelineLegend(overlap) {
  const entries = overlap ? [...SEQUENCE_LEGEND, WASTED_LEGEND] : SEQUENCE_LEGEND;
  return make("div", { class: "ni-legend" }, ...entries.map(([kind, text]) => make("span", {}, make("i", { class: `ni-bar ni-bar-${kind}` }), text)));
}

const KEYS_HELP = [
  ["\u2190 \u2192", "one step"], ["PgUp PgDn", "ten steps on, back"], ["Home End", "first, last"], ["Space", "play, pause"], ["[ ]", "previous, next preemption"],
  ["+ \u2212 0", "zoom"], ["Esc", "clear selection"], ["\u2191 \u2193", "select a row, with the timeline focused"], ["Ctrl + wheel", "zoom; without Ctrl after a click"],
];

export function keysHelp(more = []) {
  const list = [...KEYS_HELP, ...more].map(([keys, use]) => make("div", {}, make("dt", {}, make("kbd", { text: keys })), make("dd", { text: use })));
  return make("details", { class: "ni-keys" }, makeControl("summary", { text: "Keys" }), make("dl", {}, ...list));
}

/** Puts all parts into `root`. @returns {Transport} */
export function assemble(root, view) {
  const tooltip = new Tooltip(root);
  const { trace } = view;
  const transport = new Transport(view);
  const table = new StepTable(view);
  const bucketed = trace.size > 1 ? make("p", { class: "ni-note", text: bucketNote(trace) }) : null;
  const rows = new Timeline(view, tooltip);
  const strip = new Strip(view, tooltip);
  const timeline = make("div", { class: "ni-panel" }, timelineHead(view, rows.heading), timelineLegend(trace.meta.overlap), strip.element, rows.element);
  const columns = make("div", { class: "ni-columns" }, new BlockMap(view, tooltip).element, new Queues(view, tooltip).element);
  transport.jumpBar.append(make("span", { class: "ni-space" }), table.button);
  root.append(
    ...[transport.element, transport.jumpBar, bucketed, new Tour(view).element, new Why(view).element, table.holder, timeline, columns, new SequencePanel(view).element, keysHelp()].filter(Boolean),
  );
  return transport;
}

export const bucketNote = ({ size, steps }) =>
  `${grouped(steps)} steps are shown in frames of ${size}: bars and queues of a frame stand for all of its steps, blocks for the moment after its last.`;

/** Where an explorer opens: what the model asks for, or the first place of the tour. */
export function openingState(model, trace) {
  const tour = trace.meta.tour;
  const step = model.get("step") ?? 0;
  const selected = model.get("selected") ?? -1;
  if (tour.length && step === 0 && selected < 0) return { frame: trace.frameOf(tour[0].step), selected: tour[0].select };
  return { frame: trace.frameOf(step), selected: selected < 0 ? null : selected };
}

/** Follows the model: step, selection, theme, and chunks that a live run appends. @returns {() => void} stops */
export function followModel(model, view, retheme) {
  const { trace } = view;
  const handlers = {
    "change:step": () => view.trace.frameOf(model.get("step")) !== view.state.frame && view.go(trace.frameOf(model.get("step"))),
    "change:selected": () => view.set({ selected: model.get("selected") < 0 ? null : model.get("selected") }),
    "change:theme": retheme,
    "msg:custom": async (message) => message?.type === "chunk" && appendChunk(view, message.chunk),
  };
  for (const [name, handler] of Object.entries(handlers)) model.on(name, handler);
  return () => Object.entries(handlers).forEach(([name, handler]) => model.off(name, handler));
}

/** Takes in frames that came since; a window over the whole run keeps showing the whole run. */
async function appendChunk(view, chunk) {
  const whole = !isZoomed(view);
  view.trace.append(chunk, await unpack(chunk));
  view.set(whole ? { from: 0, to: Math.max(1, view.trace.frames) } : {});
}

/**
 * Draws an explorer into `el`.
 * @param {{model: {get: function, set: function, on: function, off: function, save_changes: function}, el: HTMLElement}} context
 *   the model holds `trace` (the payload), `step`, `selected` (-1: nobody) and `theme` ("auto", "light" or "dark")
 * @returns {Promise<() => void>} removes everything again
 */
export async function render({ model, el }) {
  const trace = await traceOf(model.get("trace"));
  const root = make("section", { class: "ni", "aria-label": "Explorer of an inference engine's trace" }, make("style", { text: CSS }));
  el.append(root);
  if (!trace.frames) {
    root.append(make("p", { class: "ni-note", text: "This trace has no steps." }));
    return () => root.remove();
  }
  const view = new View(trace, model, root);
  const theme = () => (["light", "dark"].includes(model.get("theme")) ? model.get("theme") : surroundingTheme());
  const retheme = () => {
    applyTheme(root, theme());
    view.set({ theme: theme() });
  };
  applyTheme(root, theme());
  Object.assign(view.state, { theme: theme(), ...openingState(model, trace) });
  const transport = assemble(root, view);
  listenToKeys(root, view, transport.player);
  const undo = [followModel(model, view, retheme), watchTheme(retheme), watchSize(root, view), () => transport.player.stop(), () => view.stop(), () => root.remove()];
  view.draw();
  root.dataset.ready = "true";
  return () => undo.forEach((stop) => stop());
}

/**
 * Repaints when the explorer's width or the screen's resolution changes. Its height changes nothing: a frame in a
 * notebook is as tall as its content, so with every longer sentence its window is resized.
 * @returns {() => void} stops
 */
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
