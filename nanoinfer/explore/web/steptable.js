// ---- steptable.js: the current step as a table ---------------------------------------------------------------------

import { counted, make, setText, textButton } from "./dom.js";
import { numberRange } from "./timeline.js";
/** @import { Bar, Trace, View, ViewState } from "./types.js" */

const TABLE_HEADS = ["sequence", "ran", "tokens", "from cache", "sampled", "blocks held"];

/** The rows of the step, for those who would rather read than look. */
export class StepTable {
  constructor(/** @type {View} */ view) {
    this.view = view;
    this.button = textButton("", () => view.set({ table: !view.state.table }));
    this.holder = make("div", { class: "ni-step-table" });
    view.onDraw((state) => this.draw(state));
  }

  draw(/** @type {ViewState} */ { table, frame }) {
    setText(this.button, table ? "Hide table" : "Show as table");
    this.button.setAttribute("aria-expanded", `${table}`);
    this.holder.hidden = !table;
    if (!table) return;
    const { trace } = this.view;
    const head = make("tr", {}, ...TABLE_HEADS.map((text) => make("th", { scope: "col", text })));
    const body = stepRows(this.view, frame).map((row) => make("tr", {}, ...row.map((text, i) => make(i ? "td" : "th", { text, scope: i ? null : "row" }))));
    const caption = make("caption", { text: `What ran in ${trace.nameOf(frame)}` });
    this.holder.replaceChildren(make("table", {}, caption, make("thead", {}, head), make("tbody", {}, ...body)));
  }
}

/** One list of cells for every sequence that was computed in `frame`. @param {View} view @param {number} frame */
function stepRows({ trace, fold }, frame) {
  const state = fold.at(frame);
  const rows = /** @type {(string | number)[][]} */ ([]);
  for (const id of trace.bars.of.keys()) {
    const bars = trace.bars.covering(id, frame);
    const hit = bars.find((bar) => bar.kind === "hit");
    for (const bar of bars) {
      if (!["prefill", "decode", "wasted"].includes(bar.kind)) continue;
      const cached = hit && bar.kind === "prefill" ? hit.tokens : 0;
      rows.push([id, ranAs(bar), ...tokensOf(trace, bar, frame), cached || "\u2013", sampledIn(trace, bar, frame), state.tables.get(id)?.length ?? 0]);
    }
  }
  return rows;
}

const ranAs = (/** @type {Bar} */ bar) => (bar.chunks > 1 ? `${bar.kind}, chunk ${bar.chunk} of ${bar.chunks}` : bar.kind);

/** @param {Trace} trace @param {Bar} bar @param {number} frame */
function tokensOf(trace, bar, frame) {
  if (trace.size > 1) return [counted(bar.tokens, "token")];
  return bar.kind !== "prefill" ? [`${bar.computed + frame - bar.start}`] : [numberRange(bar.computed, bar.tokens)];
}

/** The token that a sequence sampled in `frame`: its id, or why there is none. @param {Trace} trace @param {Bar} bar @param {number} frame */
function sampledIn(trace, bar, frame) {
  if (trace.size > 1) return "\u2013";
  if (bar.kind === "wasted") return "nothing: it had ended";
  if (bar.chunk < bar.chunks) return "dropped";
  const position = bar.kind === "decode" ? bar.computed + frame - bar.start + 1 : bar.computed + bar.tokens;
  const { sampleIds, sampleFirst } = trace.sequence(bar.seq);
  return sampleIds[position - sampleFirst] ?? "\u2013";
}
