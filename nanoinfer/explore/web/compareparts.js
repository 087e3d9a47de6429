// ---- compareparts.js: what a comparison has besides two explorers ------------------------------------------------------

import { SIDES } from "./comparepair.js";
import { grouped, make, setDisabled, setText, textButton } from "./dom.js";
import { Why } from "./words.js";
/** @import { Difference, Figure, Pair, PairState, SideView } from "./types.js" */

const LOCKS = /** @type {PairState["lock"][]} */ (["step", "time"]);

/** Which of step and time is equal on both sides. */
export class LockSwitch {
  constructor(/** @type {Pair} */ pair) {
    this.pair = pair;
    const buttons = LOCKS.map((lock) => this._button(lock));
    this.element = make("span", { class: "ni-switch", role: "group", "aria-label": "What is equal on both sides" }, ...buttons);
    pair.onDraw(({ lock }) => buttons.forEach((button, i) => button.setAttribute("aria-pressed", `${LOCKS[i] === lock}`)));
  }

  _button(/** @type {PairState["lock"]} */ lock) {
    const known = this.pair.locks[lock] !== null;
    const title = known ? null : "The clocks of these traces count different things.";
    const button = textButton(`same ${lock}`, () => known && this.pair.lock(lock), { title });
    setDisabled(button, !known);
    return button;
  }
}

/** The sentence of what differs first, and a button that goes there. */
export class FirstDifference {
  constructor(/** @type {Pair} */ pair, /** @type {Difference} */ { frame, step, text }) {
    const label = step === null ? "No difference" : `First difference (step ${grouped(step)})`;
    this.go = () => frame !== null && pair.changeAt(pair.sides.findIndex((view) => frame < view.trace.frames), { frame });
    this.button = textButton(label, this.go, { class: "ni-button ni-primary", title: "D" });
    setDisabled(this.button, frame === null);
    this.sentence = make("p", { class: "ni-difference", text });
  }
}

/** One side's name, and where it stands. */
export class SideHead {
  /** @param {Pair} pair @param {SideView} view @param {string} name */
  constructor(pair, view, name) {
    this.pair = pair;
    this.view = view;
    this.where = make("span", { class: "ni-muted" });
    this.element = make("div", { class: "ni-head" }, make("h3", { text: name }), this.where);
    pair.onDraw((state) => this.draw(state));
  }

  draw(/** @type {PairState} */ { lock }) {
    const { trace, state } = this.view;
    const { time } = this.pair.locks;
    const started = lock === "time" && time ? `, started at ${time.timeText(time.starts[this.view.side][state.frame])}` : "";
    setText(this.where, trace.progress(state.frame) + started);
    this.element.dataset.status = this.pair.places[this.view.side].status;
  }
}

export const sideBadge = (/** @type {SideView} */ view) => make("span", { class: "ni-side", text: SIDES[view.side] });

/** One side's explanation, or that it has none. */
export class SideWhy {
  constructor(/** @type {Pair} */ pair, /** @type {SideView} */ view) {
    this.pair = pair;
    this.view = view;
    this.why = new Why(view, false);
    this.note = make("p", { class: "ni-note" });
    this.element = make("div", { class: "ni-side-why" }, sideBadge(view), make("div", {}, this.why.element, this.note));
    pair.onDraw(() => this.draw());
  }

  draw() {
    const words = this.pair.idle(this.view);
    this.why.element.hidden = words !== null;
    this.note.hidden = words === null;
    if (words) setText(this.note, words[0].toUpperCase() + words.slice(1));
  }
}

/** Reads both explanations out, one after the other. */
export class Reader {
  constructor(/** @type {Pair} */ pair) {
    this.element = make("div", { class: "ni-hidden", role: "status" });
    pair.onDraw(({ playing }) => {
      this.element.setAttribute("aria-live", playing ? "off" : "polite");
      const told = (/** @type {SideView} */ view) => pair.idle(view) ?? view.trace.words.sentences[view.state.frame];
      setText(this.element, pair.sides.map((view) => `${SIDES[view.side]}: ${told(view)}`).join("\n"));
    });
  }
}

/** The figures of both runs: the chosen ones, or all of them. */
export class MetricsTable {
  constructor(/** @type {Figure[]} */ figures, /** @type {string[]} */ names) {
    this.figures = figures;
    this.all = false;
    this.button = textButton("", () => this._show(!this.all));
    const heads = ["figure", "unit", names[0], names[1], "b / a"].map((text, i) => make("th", { scope: "col", class: i > 1 ? "ni-figure" : null, text }));
    this.body = make("tbody");
    const table = make("table", { class: "ni-metrics" }, make("caption", { class: "ni-hidden", text: "Metrics of both traces" }), make("thead", {}, make("tr", {}, ...heads)), this.body);
    this.element = make("div", { class: "ni-panel" }, make("div", { class: "ni-head" }, make("h3", { text: "Metrics" }), this.button), table);
    this._show(false);
  }

  _show(/** @type {boolean} */ all) {
    this.all = all;
    this.button.textContent = all ? "Fewer" : `All ${this.figures.length}`;
    this.button.setAttribute("aria-expanded", `${all}`);
    this.body.replaceChildren(...this.figures.filter((figure) => all || !figure.more).map(metricsRow));
  }
}

function metricsRow(/** @type {Figure} */ { name, unit, a, b, ratio }) {
  const figures = [a, b, ratio].map((text) => make("td", { class: "ni-figure", text }));
  return make("tr", {}, make("th", { scope: "row", text: name }), make("td", { class: "ni-muted", text: unit }), ...figures);
}
