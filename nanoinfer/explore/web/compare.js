// ---- compare.js: two traces of one workload on one page -----------------------------------------------------------------

import { BlockMap } from "./blocks.js";
import { unpack } from "./columns.js";
import { StepLock, TimeLock } from "./comparelock.js";
import { Pair, SIDES } from "./comparepair.js";
import { FirstDifference, LockSwitch, MetricsTable, Reader, sideBadge, SideHead, SideWhy } from "./compareparts.js";
import { CSS } from "./constants.js";
import { traceOf } from "./data.js";
import { make, Tooltip } from "./dom.js";
import { bucketNote, keysHelp, timelineHead, timelineLegend, watchSize } from "./explorer.js";
import { Queues } from "./queues.js";
import { SequencePanel } from "./sequence.js";
import { Strip } from "./strip.js";
import { keepTheme } from "./theme.js";
import { Timeline } from "./timeline.js";
import { listenToKey, listenToKeys, Transport } from "./transport.js";
import { StepTable } from "./words.js";
/** @import { Comparison, Locks, Mount, SideView, Stop, Trace } from "./types.js" */

/** Every part of one side, top to bottom. @param {Pair} pair @param {SideView} view @param {string} name @param {StepTable} table @param {Tooltip} tooltip */
function sideParts(pair, view, name, table, tooltip) {
  const rows = new Timeline(view, tooltip);
  const strip = new Strip(view, tooltip);
  const timeline = make("div", { class: "ni-panel" }, make("div", { class: "ni-head" }, rows.heading), strip.element, rows.element);
  view.onDraw(() => tellMissing(sequence, pair.state.selected)); // before the panel draws
  const sequence = new SequencePanel(view);
  if (view.side) sequence.head.replaceChildren(make("h3", { text: "Sequence" })); // one field chooses for both
  const parts = [new SideWhy(pair, view).element, table.holder, timeline, new BlockMap(view, tooltip).element, new Queues(view, tooltip).element, sequence.element];
  for (const part of parts) part.querySelector(".ni-head h3")?.before(sideBadge(view));
  return [new SideHead(pair, view, `${SIDES[view.side]}: ${name}`).element, ...parts];
}

/** Lets one side say that it does not have the sequence which is selected on the other. @param {SequencePanel} panel @param {number | null} selected */
function tellMissing(panel, selected) {
  if (selected === null && panel.head.contains(panel.input)) return; // the field may hold an unknown number just typed
  panel.missing = selected !== null && panel.view.trace.bars.of.has(selected) ? null : selected;
}

/** Puts all parts into `root`. @param {HTMLElement} root @param {Pair} pair @param {Comparison} told */
function assemblePair(root, pair, told) {
  const tooltip = new Tooltip(root);
  const transport = new Transport(pair);
  const difference = new FirstDifference(pair, told.difference);
  const tables = pair.sides.map((view) => new StepTable(view));
  const [left, right] = pair.sides.map((view, side) => sideParts(pair, view, told.sides[side].name, tables[side], tooltip));
  const cells = left.flatMap((part, i) => [part, right[i]]); // row by row, so that like stands beside like
  cells.forEach((cell, i) => cell.setAttribute("data-side", SIDES[i % 2]));
  transport.jumpBar.append(make("span", { class: "ni-space" }), tables[0].button);
  const compared = make("div", { class: "ni-compared" }, new LockSwitch(pair).element, difference.button, difference.sentence);
  const rows = make("div", { class: "ni-panel" }, timelineHead(pair, make("h3", { text: "Rows of both timelines" })), timelineLegend(pair.sides.some(({ trace }) => trace.meta.overlap)));
  const metrics = new MetricsTable(told.metrics, told.sides.map(({ name }, side) => `${SIDES[side]}: ${name}`));
  const words = [compared, bucketNote(pair.locks.step.longer), new Reader(pair).element];
  root.append(transport.element, transport.jumpBar, ...words, rows, make("div", { class: "ni-pair" }, ...cells));
  root.append(metrics.element, keysHelp(["D", "first difference"]));
  return { transport, difference };
}

/** The locks that two traces allow. @param {Trace[]} traces @param {Comparison} told @returns {Promise<Locks>} */
async function locksOf(traces, { clock, unit, ends }) {
  const step = new StepLock(traces);
  if (!unit) return { step, time: null };
  const columns = await unpack(clock);
  return { step, time: new TimeLock(traces, [columns.a, columns.b].map((starts) => Float64Array.from(starts)), ends, unit) };
}

/** Draws a comparison into `el`; the model holds `comparison` and `theme`. @param {Mount} mount @returns {Promise<Stop>} */
export async function renderComparison({ model, el }) {
  const told = /** @type {Comparison} */ (model.get("comparison"));
  const traces = await Promise.all(told.sides.map(({ trace }) => traceOf(trace)));
  const root = make("section", { class: "ni ni-comparison", "aria-label": "Comparison of two traces of an inference engine" }, make("style", { text: CSS }));
  el.append(root);
  if (!traces.every((trace) => trace.frames)) {
    root.append(make("p", { class: "ni-note", text: "A trace without steps cannot be shown beside another." }));
    const unkeep = keepTheme(root, model, () => {});
    return () => [unkeep, () => root.remove()].forEach((stop) => stop());
  }
  const pair = new Pair(traces, await locksOf(traces, told), told.difference.frame, root);
  const { transport, difference } = assemblePair(root, pair, told);
  listenToKeys(root, pair, transport.player);
  listenToKey(root, (key) => (key.toLowerCase() === "d" ? difference.go : undefined));
  const stops = [
    keepTheme(root, model, (theme) => pair.set({ theme })), ...[pair, ...pair.sides].map((view) => watchSize(root, view)),
    () => transport.player.stop(), () => pair.stop(), () => root.remove(),
  ];
  for (const view of [...pair.sides, pair]) view.draw();
  root.dataset.ready = "true";
  return () => stops.forEach((stop) => stop());
}
