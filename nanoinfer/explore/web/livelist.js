// ---- livelist.js: all sequences of a live engine now, and the selected one in full -------------------------------------

import { counted, grouped, make, makeControl, setText } from "./dom.js";
/** @import { Candidate, LiveSequence, Status } from "./types.js" */

/** A row for every sequence: number, state in shape and words, text so far. */
export class LiveList {
  constructor(/** @type {(id: number) => void} */ choose) {
    this.choose = choose;
    this.rows = /** @type {Map<number, LiveRow>} */ (new Map()); // by sequence
    this.heading = make("h3");
    this.list = make("div", { class: "ni-live-list", role: "group", "aria-label": "Sequences" });
    this.list.addEventListener("keydown", (event) => this._move(event));
    this.empty = make("p", { class: "ni-muted", text: "No request yet. Type a prompt above and press Enter." });
    this.element = make("div", {}, make("div", { class: "ni-head" }, this.heading), this.empty, this.list);
  }

  draw(/** @type {Status} */ { sequences, hidden, selected }) {
    const alive = sequences.filter((sequence) => sequence.alive).length;
    const more = hidden ? `, ${grouped(hidden)} older ones not listed` : "";
    setText(this.heading, `In the engine now: ${alive} of ${counted(sequences.length + hidden, "sequence")}${more}`);
    this.empty.hidden = sequences.length > 0;
    this._keep(new Set(sequences.map(({ id }) => id)));
    for (const sequence of sequences) this._row(sequence.id).draw(sequence, sequence.id === selected?.id);
  }

  _keep(/** @type {Set<number>} */ ids) {
    for (const [id, row] of this.rows) {
      if (ids.has(id)) continue;
      row.element.remove();
      this.rows.delete(id);
    }
  }

  _row(/** @type {number} */ id) {
    const known = this.rows.get(id);
    if (known) return known;
    const row = new LiveRow(id, () => this.choose(id));
    this.rows.set(id, row);
    this.list.append(row.element);
    return row;
  }

  /** Up and down go from row to row. @param {KeyboardEvent} event */
  _move(event) {
    const row = event.target instanceof Element && event.target.closest("button");
    if (!row || (event.key !== "ArrowUp" && event.key !== "ArrowDown")) return;
    const next = event.key === "ArrowUp" ? row.previousElementSibling : row.nextElementSibling;
    if (!(next instanceof HTMLElement)) return;
    next.focus();
    event.preventDefault();
    event.stopPropagation();
  }
}

class LiveRow {
  constructor(/** @type {number} */ id, /** @type {() => void} */ onclick) {
    this.number = make("b", { class: "ni-live-id", text: id });
    this.mark = make("i");
    this.word = make("span", { class: "ni-live-word" });
    this.count = make("span", { class: "ni-muted ni-live-count" });
    this.prompt = make("bdi", { class: "ni-muted ni-live-asked" });
    this.text = make("bdi", { dir: "ltr" });
    const line = make("span", { class: "ni-live-line" }, this.prompt, make("span", { class: "ni-live-said" }, this.text));
    this.element = makeControl("button", { type: "button", class: "ni-live-seq", "data-seq": id, onclick }, this.number, make("span", { class: "ni-live-mark" }, this.mark), this.word, this.count, line);
  }

  draw(/** @type {LiveSequence} */ sequence, /** @type {boolean} */ selected) {
    const { status, reason, tokens, max_tokens: most, prompt, text } = sequence;
    this.element.setAttribute("aria-pressed", `${selected}`);
    this.mark.className = `ni-bar ni-bar-${status}`;
    setText(this.word, reason ? `finished (${reason})` : status);
    setText(this.count, most === null ? `${tokens}` : `${tokens}/${most}`);
    this.count.title = `${counted(tokens, "token")} generated${most === null ? "" : ` of at most ${most}`}`;
    setText(this.prompt, oneLine(prompt));
    setText(this.text, oneLine(text));
  }
}

/** A text with its line breaks as signs. @param {string} text */
const oneLine = (text) => text.replace(/\r?\n/g, "\u21b5");

/** Prompt and text of the selected sequence, and what its model thought would come next. */
export class LiveSelected {
  constructor() {
    this.heading = make("h3");
    this.prompt = make("span", { class: "ni-muted" });
    this.said = make("span");
    this.text = make("p", { class: "ni-live-text", dir: "auto" }, this.prompt, this.said);
    this.bars = make("ol", { class: "ni-live-candidates", "aria-label": "Most likely next tokens" });
    this.note = make("p", { class: "ni-muted ni-live-small" });
    this.key = ""; // of the candidates drawn last
    this.title = make("h4", { text: "Most likely next tokens" });
    this.element = make("div", {}, make("div", { class: "ni-head" }, this.heading), this.text, this.title, this.note, this.bars);
  }

  /** @param {Status} status @param {number | null} cursor the step that the replay shows */
  draw({ selected, candidates, newest }, cursor) {
    const { prompt, text } = selected ?? { prompt: "", text: "" };
    setText(this.heading, selected ? `Sequence ${selected.id}: text so far` : "No sequence selected");
    this.text.hidden = this.title.hidden = this.bars.hidden = !selected;
    setText(this.prompt, prompt);
    if (setText(this.said, text)) this.text.scrollTop = this.text.scrollHeight;
    this.bars.classList.toggle("ni-live-alive", Boolean(selected?.alive)); // keeps its room: nothing jumps from step to step
    const key = JSON.stringify(candidates.rows);
    if (key !== this.key) this.bars.replaceChildren(...candidates.rows.map(candidateBar));
    this.key = key;
    const elsewhere = selected && cursor !== null && cursor < newest ? ` The views below stand at step ${grouped(cursor)}.` : "";
    setText(this.note, candidates.note + elsewhere);
  }
}

/** One candidate: the token as it would be written, a bar and its share in figures. @param {Candidate} candidate */
function candidateBar({ token_id: id, text, probability, sampled }) {
  const percent = `${(100 * probability).toFixed(1)} %`;
  const bar = make("span", { class: "ni-live-share", "aria-hidden": "true" }, make("i", { style: `width:${100 * probability}%` }));
  const token = make("code", { class: "ni-live-token", text: visible(text), title: `token ${id}` });
  const tag = sampled ? make("b", { text: "sampled" }) : null;
  return make("li", { class: sampled ? "ni-live-sampled" : null }, token, bar, make("span", { class: "ni-live-percent", text: percent }), make("span", { class: "ni-live-tag" }, tag));
}

/** A token with its spaces and line breaks to be seen. @param {string} text */
const visible = (text) => (text === "" ? "(nothing)" : text.replace(/ /g, "\u2423").replace(/\n/g, "\u21b5").replace(/\t/g, "\u21e5"));
