// ---- queues.js: waiting and running, before and after the step --------------------------------------------

import { grouped, make, setText } from "./dom.js";
import { describeBars } from "./timeline.js";
/** @import { Tooltip, Trace, View, ViewState } from "./types.js" */

const MOST_CHIPS = 48;
const DENSE_CHIPS = 24; // above it they are smaller

/** @type {{name: "waiting" | "running", label: string, leaving: boolean}[]} */
const QUEUE_ROWS = [
  { name: "waiting", label: "before", leaving: true },
  { name: "waiting", label: "after", leaving: false },
  { name: "running", label: "before", leaving: true },
  { name: "running", label: "after", leaving: false },
];

/** Four rows of chips; who leaves is struck through before, who enters is outlined after. */
export class Queues {
  constructor(/** @type {View} */ view, /** @type {Tooltip} */ tooltip) {
    this.view = view;
    this.rows = QUEUE_ROWS.map((row) => ({ ...row, chips: make("div", { class: "ni-chips", role: "group", "aria-label": `${row.name} ${row.label} the step` }), number: make("span", { class: "ni-number" }) }));
    this.moves = /** @type {Map<number, string>} */ (new Map()); // at the cursor
    const groups = ["waiting", "running"].map((name) => this._group(name));
    const key = make("div", { class: "ni-legend" }, ...queueLegend());
    this.element = make("div", { class: "ni-panel" }, make("div", { class: "ni-head" }, make("h3", { text: "Queues, before and after the step" })), key, ...groups);
    this.element.addEventListener("click", (event) => {
      const chip = chipOf(event);
      if (chip) view.select(Number(chip.dataset.seq));
    });
    tooltip.follow(this.element, (_x, _y, event) => this.describe(event));
    view.onDraw((state) => this.draw(state));
  }

  _group(/** @type {string} */ name) {
    const rows = this.rows.filter((row) => row.name === name);
    const lines = rows.flatMap((row) => [make("div", { class: "ni-queue-label" }, make("b", { text: name }), row.label, row.number), row.chips]);
    return make("div", { class: "ni-queue" }, ...lines);
  }

  draw(/** @type {ViewState} */ state) {
    const { trace, fold } = this.view;
    const before = fold.queuesBefore(state.frame);
    const after = fold.at(state.frame);
    this.moves = movesOf(trace, state.frame);
    for (const row of this.rows) {
      const [ids, others] = row.leaving ? [before[row.name], after[row.name]] : [after[row.name], before[row.name]];
      this._drawRow(row, ids, new Set(others), state.selected);
    }
  }

  /** @param {Queues["rows"][number]} row @param {number[]} ids @param {Set<number>} others @param {number | null} selected */
  _drawRow(row, ids, others, selected) {
    setText(row.number, ids.length ? grouped(ids.length) : "");
    row.chips.classList.toggle("ni-dense", ids.length > DENSE_CHIPS);
    const chips = ids.slice(0, MOST_CHIPS).map((id) => this._chip(id, !others.has(id), row.leaving, id === selected));
    if (!ids.length) chips.push(make("span", { class: "ni-muted", text: "empty" }));
    const hidden = ids.slice(MOST_CHIPS);
    if (hidden.length) {
      const moved = hidden.filter((id) => !others.has(id)).length;
      const verb = !row.leaving ? "entered" : moved === 1 ? "leaves" : "leave";
      chips.push(make("span", { class: "ni-muted", text: `+${grouped(hidden.length)}${moved ? ` (${moved} of them ${verb})` : ""}` }));
    }
    row.chips.replaceChildren(...chips);
  }

  /** @param {number} id @param {boolean} moved @param {boolean} leaving @param {boolean} selected */
  _chip(id, moved, leaving, selected) {
    const chip = make("span", { class: "ni-chip", "data-seq": id, "aria-current": selected && "true" }, make("span", { text: id }));
    chip.classList.toggle("ni-selected", selected);
    if (!moved) return chip;
    const verb = leaving ? "leaves" : "enters";
    const move = this.moves.get(id) ?? verb;
    const sign = leaving ? MOVE_SIGNS[move] : undefined;
    chip.classList.add(`ni-${verb}`);
    chip.dataset.move = move;
    if (sign) chip.append(make("small", { text: sign }));
    chip.append(make("span", { class: "ni-hidden", text: ` (${move})` }));
    return chip;
  }

  describe(/** @type {MouseEvent} */ event) {
    const chip = chipOf(event);
    if (!chip) return null;
    const id = Number(chip.dataset.seq);
    const { move } = chip.dataset;
    return [`sequence ${id}${move ? `: ${move}` : ""}`, ...describeBars(this.view.trace, id, this.view.state.frame)];
  }
}

/** The chip under the pointer. @param {MouseEvent} event @returns {HTMLElement | null} */
const chipOf = ({ target }) => (target instanceof Element ? target.closest("[data-seq]") : null);

const MOVE_SIGNS = /** @type {{[move: string]: string}} */ ({ preempted: "preempted", "preempted by itself": "preempted", aborted: "aborted" });

/** What happened to whoever moved in a frame, by sequence. @param {Trace} trace @param {number} frame */
function movesOf(trace, frame) {
  const moves = /** @type {Map<number, string>} */ (new Map());
  const [first, end] = trace.range("ended", frame);
  for (const id of trace.entries("arrived", "seq", frame)) moves.set(id, "arrived");
  for (const id of trace.entries("queue", "seq", frame)) if (!moves.has(id)) moves.set(id, "admitted");
  const own = trace.entries("preempted", "self", frame);
  trace.entries("preempted", "victim", frame).forEach((id, i) => moves.set(id, own[i] ? "preempted by itself" : "preempted"));
  for (let i = first; i < end; i++) {
    const reason = trace.words.ended_reason[i];
    moves.set(trace.column.ended_seq[i], reason === "abort" ? "aborted" : `finished, ${reason}`);
  }
  return moves;
}

function queueLegend() {
  /** @param {string} classes @param {string} text */
  const entry = (classes, text) => make("span", {}, make("span", { class: `ni-chip ${classes}`, text: "7" }), text);
  return [entry("ni-enters", "enters"), entry("ni-leaves", "leaves"), make("span", { text: "front at the left" })];
}
