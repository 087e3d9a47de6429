// ---- compare.js: two traces of one workload on one page -----------------------------------------------------------------

import { BlockMap } from "./blocks.js";
import { unpack } from "./columns.js";
import { StepLock, TimeLock } from "./comparelock.js";
import { Pair, SIDES } from "./comparepair.js";
import { FirstDifference, LockSwitch, MetricsTable, PairTransport, Reader, sideBadge, SideHead, SideWhy } from "./compareparts.js";
import { CSS } from "./constants.js";
import { traceOf } from "./data.js";
import { make } from "./dom.js";
import { bucketNote, keysHelp, timelineHead, timelineLegend, watchSize } from "./explorer.js";
import { Queues } from "./queues.js";
import { SequencePanel } from "./sequence.js";
import { StepTable } from "./steptable.js";
import { Strip } from "./strip.js";
import { applyTheme, surroundingTheme, watchTheme } from "./theme.js";
import { Timeline } from "./timeline.js";
import { Tooltip } from "./tooltip.js";
import { listenToKeys, takesKey } from "./transport.js";

/** Every part of one side, top to bottom. @returns {HTMLElement[]} */
function sideParts(pair, view, name, tooltip) {
  const table = new StepTable(view);
  const rows = new Timeline(view, tooltip);
  const strip = new Strip(view, tooltip);
  const timeline = make("div", { class: "ni-panel" }, make("div", { class: "ni-head" }, rows.heading), strip.element, rows.element);
  view.onDraw(() => tellMissing(sequence, pair.state.selected)); // before the panel draws
  const sequence = new SequencePanel(view);
  if (view.side) sequence.head.replaceChildren(make("h3", { text: "Sequence" })); // one field chooses for both
  else pair.tableButton = table.button;
  const parts = [new SideWhy(pair, view).element, table.holder, timeline, new BlockMap(view, tooltip).element, new Queues(view, tooltip).element, sequence.element];
  for (const part of parts) part.querySelector(".ni-head h3")?.before(sideBadge(view));
  return [new SideHead(pair, view, `${SIDES[view.side]}: ${name}`).element, ...parts];
}

/** Lets one side say that it does not have the sequence which is selected on the other. */
function tellMissing(panel, selected) {
  if (selected === null && !panel.view.side) return; // the field may hold an unknown number just typed
  panel.missing = panel.view.trace.bars.of.has(selected) ? null : selected;
}

/** Puts all parts into `root`. @returns {{transport: PairTransport, difference: FirstDifference}} */
function assemblePair(root, pair, told) {
  const tooltip = new Tooltip(root);
  const transport = new PairTransport(pair);
  const difference = new FirstDifference(pair, told.difference);
  const [left, right] = pair.sides.map((view, side) => sideParts(pair, view, told.sides[side].name, tooltip));
  const cells = left.flatMap((part, i) => [part, right[i]]); // row by row, so that like stands beside like
  left.forEach((part, i) => [part, right[i]].forEach((cell, side) => cell.setAttribute("data-side", SIDES[side])));
  transport.jumpBar.append(make("span", { class: "ni-space" }), pair.tableButton);
  const compared = make("div", { class: "ni-compared" }, new LockSwitch(pair).element, difference.button, difference.sentence);
  const rows = make("div", { class: "ni-panel" }, timelineHead(pair, make("h3", { text: "Rows of both timelines" })), timelineLegend(pair.sides.some(({ trace }) => trace.meta.overlap)));
  const metrics = new MetricsTable(told.metrics, told.sides.map(({ name }, side) => `${SIDES[side]}: ${name}`));
  const bucketed = pair.trace.size > 1 ? make("p", { class: "ni-note", text: bucketNote(pair.locks.step.longer) }) : null;
  const parts = [transport.element, transport.jumpBar, compared, bucketed, new Reader(pair).element, rows, make("div", { class: "ni-pair" }, ...cells), metrics.element, keysHelp([["D", "first difference"]])];
  root.append(...parts.filter(Boolean));
  return { transport, difference };
}

/** The locks that two traces allow. */
async function locksOf(traces, { clock, unit, ends }) {
  const step = new StepLock(traces);
  if (!unit) return { step, time: null };
  const columns = await unpack(clock);
  return { step, time: new TimeLock(traces, [columns.a, columns.b].map((starts) => Float64Array.from(starts)), ends, unit) };
}

/**
 * Draws a comparison into `el`; the model holds `comparison` and `theme`.
 * @returns {Promise<() => void>} removes everything again
 */
export async function renderComparison({ model, el }) {
  const told = model.get("comparison");
  const traces = await Promise.all(told.sides.map(({ trace }) => traceOf(trace)));
  const root = make("section", { class: "ni ni-comparison", "aria-label": "Comparison of two traces of an inference engine" }, make("style", { text: CSS }));
  el.append(root);
  const theme = () => (["light", "dark"].includes(model.get("theme")) ? model.get("theme") : surroundingTheme());
  applyTheme(root, theme());
  if (!traces.every((trace) => trace.frames)) {
    root.append(make("p", { class: "ni-note", text: "A trace without steps cannot be shown beside another." }));
    return () => root.remove();
  }
  const pair = new Pair(traces, await locksOf(traces, told), told.difference.frame, root);
  pair.set({ theme: theme() });
  const { transport, difference } = assemblePair(root, pair, told);
  const retheme = () => {
    applyTheme(root, theme());
    pair.set({ theme: theme() });
  };
  listenToKeys(root, pair, transport.player);
  root.addEventListener("keydown", (event) => keyToDifference(event, difference));
  const undo = [watchTheme(retheme), ...[pair, ...pair.sides].map((view) => watchSize(root, view)), () => transport.player.stop(), () => pair.stop(), () => root.remove()];
  for (const view of [...pair.sides, pair]) view.draw();
  root.dataset.ready = "true";
  return () => undo.forEach((stop) => stop());
}

function keyToDifference(event, difference) {
  if (event.key.toLowerCase() !== "d" || event.ctrlKey || event.metaKey || event.altKey || takesKey(event)) return;
  difference.go();
  event.preventDefault();
  event.stopPropagation();
}
