// ---- sequence.js: the selected sequence, its block table and its text ----------------------------------------

import { clamp, counted, grouped, make, makeControl, setText, textButton } from "./dom.js";
import { describeBars, tokenRange } from "./timeline.js";
/** @import { Trace, View, ViewState } from "./types.js" */

const MOST_ENTRIES = 48; // of a block table; the last one is always shown

/** Everything about one sequence at the cursor. */
export class SequencePanel {
  constructor(/** @type {View} */ view) {
    this.view = view;
    this.missing = /** @type {number | null} */ (null); // a typed id that no sequence has
    this.was = /** @type {number | null} */ (null); // selected when it was drawn last
    this.input = makeControl("input", { type: "number", min: 0, step: 1, class: "ni-number-input", "aria-label": "Selected sequence" });
    this.input.addEventListener("change", () => this._choose());
    this.clear = textButton("clear", () => view.set({ selected: null }));
    this.facts = make("p", { class: "ni-facts" });
    this.table = make("div", { class: "ni-table-entries", role: "group", "aria-label": "Block table" });
    this.texts = make("div", { class: "ni-texts" });
    this.head = make("div", { class: "ni-head" }, make("h3", { text: "Sequence" }), this.input, this.clear);
    this.element = make("div", { class: "ni-panel" }, this.head, this.facts, this.table, this.texts);
    view.onDraw((state) => this.draw(state));
  }

  _choose() {
    const id = this.input.value === "" ? null : Number(this.input.value);
    const known = id !== null && this.view.trace.bars.of.has(id);
    this.missing = known ? null : id;
    this.view.set({ selected: known ? id : null });
  }

  /** Shows the selection, but leaves alone what is being typed. @param {number | null} selected */
  _drawInput(selected) {
    if (selected !== null) this.missing = null;
    const typing = this.input.matches(":focus") && selected === null && this.input.value !== `${this.was}`;
    if (!typing) this.input.value = selected === null ? "" : `${selected}`;
    this.was = selected;
  }

  draw(/** @type {ViewState} */ { selected, frame }) {
    this.clear.hidden = selected === null;
    this._drawInput(selected);
    if (selected === null) {
      const hint = "Click a row of the timeline, a block or a queue entry to follow one sequence.";
      setText(this.facts, this.missing === null ? hint : `There is no sequence ${this.missing} in this trace.`);
      for (const part of [this.table, this.texts]) part.replaceChildren();
      return;
    }
    const { trace, fold } = this.view;
    const table = fold.at(frame).tables.get(selected) ?? [];
    const written = trace.size === 1 ? trace.bars.written(selected, frame) : null;
    setText(this.facts, sequenceFacts(trace, selected, frame, table.length, written));
    this.table.replaceChildren(...tableEntries(this.view, table, written));
    drawTexts(this.texts, trace, selected, frame);
  }
}

/** What it is doing, and how full its blocks are. @param {Trace} trace @param {number} id @param {number} frame @param {number} blocks @param {number | null} written */
function sequenceFacts(trace, id, frame, blocks, written) {
  const { prompt_tokens: prompt } = trace.sequence(id);
  const doing = describeBars(trace, id, frame).join("; ");
  const size = trace.meta.block_size;
  const held = blocks ? `It holds ${counted(blocks, "block")} of ${size} slots${written === null ? "" : `, ${counted(written, "token")} written`}.` : "It holds no blocks.";
  return `In ${trace.nameOf(frame)}: ${doing}. Prompt of ${counted(prompt, "token")}. ${held}`;
}

/** A box for each logical block; the gauge along its foot is the share of its slots that are written. @param {View} view @param {number[]} table @param {number | null} written */
function tableEntries({ trace, fold, state }, table, written) {
  const size = trace.meta.block_size;
  const refCounts = fold.at(state.frame).refCounts();
  const boxes = table.map((block, logical) => {
    const filled = clamp((written ?? table.length * size) - logical * size, 0, size);
    const holders = refCounts[block] > 1 ? ` \u00d7${refCounts[block]}` : "";
    const tokens = filled ? tokenRange(logical * size, filled) : "reserved";
    const gauge = make("i");
    gauge.style.width = `${(100 * filled) / size}%`;
    const title = `logical block ${logical} lies in physical block ${block}${holders ? `, held by ${refCounts[block]} sequences` : ""}; ${filled} of ${size} slots written`;
    return make("span", { class: holders ? "ni-entry ni-shared-entry" : "ni-entry", title }, make("b", { text: `${logical} \u2192 ${block}${holders}` }), make("small", { text: tokens }), gauge);
  });
  if (boxes.length <= MOST_ENTRIES) return boxes;
  const more = make("span", { class: "ni-entry ni-more", text: `+${boxes.length - MOST_ENTRIES + 1} more` });
  return [...boxes.slice(0, MOST_ENTRIES - 2), more, boxes[boxes.length - 1]];
}

// ---- text ---------------------------------------------------------------------------------------------------

/** Prompt and output of a sequence, as text where the trace has it and as token ids. @param {HTMLElement} host @param {Trace} trace @param {number} id @param {number} frame */
function drawTexts(host, trace, id, frame) {
  const { prompt, output, prompt_tokens: length, promptIds, sampleIds, samples } = trace.sequence(id);
  const sampled = sampledBy(trace, id, frame);
  const key = [id, sampled, samples, output].join();
  if (host.dataset.key === key && host.childElementCount) return;
  host.dataset.key = key;
  const out = `${grouped(sampled)} of ${counted(samples, "output token")} sampled so far`;
  host.replaceChildren(
    textBox("Prompt", prompt ?? null, `${counted(length, "token id")}: ${ids(promptIds, length)}`),
    textBox("Output", output ?? null, sampled ? `${out}: ${ids(sampleIds.slice(0, sampled), sampled)}` : out),
  );
}

/** How many of a sequence's recorded samples were drawn up to `frame`. @param {Trace} trace @param {number} id @param {number} frame */
function sampledBy(trace, id, frame) {
  const { sampleFirst } = trace.sequence(id);
  const last = trace.bars.lastComputed(id, frame);
  if (trace.size > 1) return trace.sequence(id).samples;
  if (!last) return 0;
  const done = last.chunk === last.chunks ? 1 : 0; // a middle chunk's sample is dropped
  const computed = last.computed + (last.kind === "decode" ? Math.min(frame + 1, last.end) - last.start : last.tokens);
  return Math.max(0, computed + done - sampleFirst, highestBefore(trace, id, frame) - sampleFirst);
}

/** The position behind the last sample before the current computation: a recompute does not take samples back. @param {Trace} trace @param {number} id @param {number} frame */
function highestBefore(trace, id, frame) {
  const { bars } = trace;
  const [first] = bars.of.get(id) ?? [0];
  let highest = 0;
  for (let i = first; i < bars.firstAfter(id, frame); i++) {
    if (!bars.isComputed(i) || bars.chunk[i] < bars.chunks[i]) continue;
    highest = Math.max(highest, bars.computed[i] + Math.min(bars.tokens[i], bars.kinds[bars.kind[i]] === "decode" ? frame + 1 - bars.start[i] : Infinity) + 1);
  }
  return highest;
}

/** @param {ArrayLike<number>} known @param {number} length */
const ids = (known, length) => `${Array.from(known).join(" ")}${known.length < length ? " \u2026" : ""}`;

/** A titled text that is cut by the page, not here: the whole of it is in its title. @param {string} name @param {string | null} text @param {string} tokenIds */
function textBox(name, text, tokenIds) {
  const shown = text === null ? null : make("p", { class: "ni-text", text, title: text, dir: "auto" });
  return make("div", {}, make("h4", { text: name }), shown, make("p", { class: "ni-ids", text: tokenIds, title: tokenIds }));
}
