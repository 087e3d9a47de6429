// ---- words.js: the step in words, the step as a table, and the captions of a tour ----------------------------------

import { counted, grouped, make, setDisabled, setText, textButton } from "./dom.js";
import { numberRange } from "./timeline.js";
/** @import { Bar, Trace, View, ViewState } from "./types.js" */

/** The explanation of the step, read out unless something else does; it stays as tall as it once was, so that nothing jumps. */
export class Why {
  constructor(/** @type {View} */ view, /** @type {boolean} */ readOut = true) {
    this.view = view;
    this.readOut = readOut;
    this.sentences = make("div", { class: "ni-sentences", role: readOut ? "status" : null });
    this.stops = make("div", { class: "ni-stops" });
    this.element = make("div", { class: "ni-why" }, this.sentences, this.stops);
    this.tallest = 0; // px
    this.width = 0;
    this.key = "";
    view.onDraw((state) => this.draw(state));
  }

  draw(/** @type {ViewState} */ { frame, playing, theme }) {
    const { trace } = this.view;
    if (this.readOut) this.sentences.setAttribute("aria-live", playing ? "off" : "polite");
    const key = [frame, trace.frames, this.element.clientWidth, theme].join();
    if (key === this.key) return;
    this.key = key;
    const lines = trace.words.sentences[frame].split("\n");
    this.sentences.replaceChildren(...lines.map((text, i) => make("p", { text, class: i === trace.column.headline[frame] ? "ni-headline" : null })));
    const stops = [["admission ended", trace.words.stop[frame]], ["decode loop ended", trace.words.decode_stop[frame]]];
    this.stops.replaceChildren(...stops.map(([name, stop]) => make("span", {}, `${name} `, make("code", { text: stop }))));
    this._keepHeight();
  }

  _keepHeight() {
    if (this.width !== this.element.clientWidth) this.tallest = 0;
    this.width = this.element.clientWidth;
    this.tallest = Math.max(this.tallest, Math.min(this.sentences.scrollHeight, 168));
    this.sentences.style.minHeight = `${this.tallest}px`;
  }
}

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

/** A caption with Back and Next; each place sets the step and the selection. */
export class Tour {
  constructor(/** @type {View} */ view) {
    this.view = view;
    this.stops = view.trace.meta.tour;
    this.caption = make("p", { class: "ni-caption", "aria-live": "polite", dir: "auto" });
    this.place = make("span", { class: "ni-muted" });
    this.back = textButton("Back", () => this.visit(view.state.bookmark - 1));
    this.next = textButton("Next", () => this.visit(view.state.bookmark + 1), { class: "ni-button ni-primary" });
    this.element = make("div", { class: "ni-tour", role: "group", "aria-label": "Guided tour", hidden: !this.stops.length }, this.caption, make("div", { class: "ni-tour-buttons" }, this.place, this.back, this.next));
    if (this.stops.length) view.onDraw((state) => this.draw(state));
  }

  visit(/** @type {number} */ number) {
    const stop = this.stops[number];
    if (!stop) return;
    this.view.set({ bookmark: number, frame: this.view.trace.frameOf(stop.step), selected: stop.select });
  }

  draw(/** @type {ViewState} */ { bookmark }) {
    setText(this.caption, this.stops[bookmark].caption);
    setText(this.place, `${bookmark + 1} of ${this.stops.length}, step ${grouped(this.stops[bookmark].step)}`);
    setDisabled(this.back, bookmark === 0);
    setDisabled(this.next, bookmark === this.stops.length - 1);
  }
}
