// ---- compareparts.js: what a comparison has besides two explorers ------------------------------------------------------

import { SIDES } from "./comparepair.js";
import { grouped, make, makeControl, setDisabled, setText } from "./dom.js";
import { Transport } from "./transport.js";
import { Why } from "./why.js";

/** The controls at the top, over a pair. */
export class PairTransport extends Transport {
  draw(state) {
    super.draw(state);
    this.slider.setAttribute("aria-label", this.view.trace.label);
  }

  inWords() {
    const { sides, places } = this.view;
    return sides.map((view, side) => `${SIDES[side]}: ${placeInWords(view, places[side]) ?? view.trace.headline(view.state.frame)}`).join(" ");
  }

  place({ frame }) {
    return this.view.trace.nameOf(frame);
  }
}

/** Why a side does not move, or null if it does. @param {Place} place */
function placeInWords({ trace }, { status }) {
  if (status === "early") return "has not started yet.";
  return status === "ended" ? `has ended: its last step was ${grouped(trace.steps - 1)}.` : null;
}

/** Which of step and time is equal on both sides. */
export class LockSwitch {
  constructor(pair) {
    this.pair = pair;
    this.buttons = [["step", "same step"], ["time", "same time"]].map(([lock, text]) => [lock, this._button(lock, text)]);
    this.element = make("span", { class: "ni-switch", role: "group", "aria-label": "What is equal on both sides" }, ...this.buttons.map(([, button]) => button));
    pair.onDraw(({ lock }) => this.buttons.forEach(([name, button]) => button.setAttribute("aria-pressed", name === lock)));
  }

  _button(lock, text) {
    const known = this.pair.locks[lock] !== null;
    const title = known ? null : "The clocks of these traces count different things.";
    const button = makeControl("button", { type: "button", class: "ni-button", text, title, onclick: () => known && this.pair.lock(lock) });
    setDisabled(button, !known);
    return button;
  }
}

/** The sentence of what differs first, and a button that goes there. */
export class FirstDifference {
  constructor(pair, { frame, step, text }) {
    const label = frame === null ? "No difference" : `First difference (step ${grouped(step)})`;
    this.go = () => frame !== null && pair.changeAt(pair.sides.findIndex((view) => frame < view.trace.frames), { frame });
    this.button = makeControl("button", { type: "button", class: "ni-button ni-primary", text: label, title: "D", onclick: this.go });
    setDisabled(this.button, frame === null);
    this.sentence = make("p", { class: "ni-difference", text });
  }
}

/** One side's name, and where it stands. */
export class SideHead {
  constructor(pair, view, name) {
    Object.assign(this, { pair, view });
    this.where = make("span", { class: "ni-muted" });
    this.element = make("div", { class: "ni-head" }, make("h3", { text: name }), this.where);
    pair.onDraw((state) => this.draw(state));
  }

  draw({ lock }) {
    const { trace, state } = this.view;
    const { time } = this.pair.locks;
    const started = lock === "time" ? `, started at ${time.timeText(time.starts[this.view.side][state.frame])}` : "";
    setText(this.where, `${trace.nameOf(state.frame)} / ${grouped(trace.steps - 1)}${started}`);
    this.element.dataset.status = this.pair.places[this.view.side].status;
  }
}

export const sideBadge = (view) => make("span", { class: "ni-side", text: SIDES[view.side] });

/** One side's explanation, or that it has none. */
export class SideWhy {
  constructor(pair, view) {
    Object.assign(this, { pair, view });
    this.why = new Why(view, false);
    this.note = make("p", { class: "ni-note" });
    this.element = make("div", { class: "ni-side-why" }, sideBadge(view), make("div", {}, this.why.element, this.note));
    pair.onDraw(() => this.draw());
  }

  draw() {
    const words = placeInWords(this.view, this.pair.places[this.view.side]);
    this.why.element.hidden = words !== null;
    this.note.hidden = words === null;
    if (words) setText(this.note, words[0].toUpperCase() + words.slice(1));
  }
}

/** Reads both explanations out, one after the other. */
export class Reader {
  constructor(pair) {
    this.element = make("div", { class: "ni-hidden", role: "status" });
    pair.onDraw(({ playing }) => {
      this.element.setAttribute("aria-live", playing ? "off" : "polite");
      const told = (view, side) => placeInWords(view, pair.places[side]) ?? view.trace.sentences[view.state.frame];
      setText(this.element, pair.sides.map((view, side) => `${SIDES[side]}: ${told(view, side)}`).join("\n"));
    });
  }
}

/** The figures of both runs: the chosen ones, or all of them. */
export class MetricsTable {
  /** @param {{name: string, unit: string, a: string, b: string, ratio: string, more: boolean}[]} figures */
  constructor(figures, names) {
    this.figures = figures;
    this.all = false;
    this.button = makeControl("button", { type: "button", class: "ni-button", onclick: () => this._show(!this.all) });
    const heads = ["figure", "unit", names[0], names[1], "b / a"].map((text, i) => make("th", { scope: "col", class: i > 1 ? "ni-figure" : null, text }));
    this.body = make("tbody");
    const table = make("table", { class: "ni-metrics" }, make("caption", { class: "ni-hidden", text: "Metrics of both traces" }), make("thead", {}, make("tr", {}, ...heads)), this.body);
    this.element = make("div", { class: "ni-panel" }, make("div", { class: "ni-head" }, make("h3", { text: "Metrics" }), this.button), table);
    this._show(false);
  }

  _show(all) {
    this.all = all;
    this.button.textContent = all ? "Fewer" : `All ${this.figures.length}`;
    this.button.setAttribute("aria-expanded", all);
    this.body.replaceChildren(...this.figures.filter((figure) => all || !figure.more).map(metricsRow));
  }
}

function metricsRow({ name, unit, a, b, ratio }) {
  const figures = [a, b, ratio].map((text) => make("td", { class: "ni-figure", text }));
  return make("tr", {}, make("th", { scope: "row", text: name }), make("td", { class: "ni-muted", text: unit }), ...figures);
}
