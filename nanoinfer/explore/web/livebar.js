// ---- livebar.js: the controls of a live engine ---------------------------------------------------------------------

import { make, makeControl, setDisabled, setText, textButton } from "./dom.js";
/** @import { Status } from "./types.js" */

const RUN_GOALS = [["finish", "a request finishes"], ["preemption", "the next preemption"], ["step", "step number"]];

const NUMBER = { type: "number", step: 1 };

/** Buttons that step and run the engine, and the form that adds a request. What they do is Python's to decide. */
export class LiveBar {
  constructor(/** @type {(message: object) => void} */ send) {
    this.send = send; // to the kernel
    this.selected = /** @type {number | null} */ (null);
    this.newest = -1;
    this.count = /** @type {number | undefined} */ (undefined); // of accepted requests
    this.note = make("p", { class: "ni-live-note", role: "status", "aria-live": "polite" });
    this.state = make("span", { class: "ni-live-state" });
    this.step = this._button("Step", () => ({ type: "step" }), "Run one step of the engine");
    this.run = this._button("Run", () => ({ type: "run", until: null }), "Run until every request has finished");
    this.stop = this._button("Stop", () => ({ type: "stop" }), "Stop after the step in flight");
    this.abort = this._button("Abort", () => ({ type: "abort", id: this.selected }), "");
    this.reset = this._button("Reset", () => ({ type: "reset" }), "Drop all requests, empty the prefix cache, start a new trace");
    this.goal = makeControl("select", { "aria-label": "Run until" });
    this.number = makeControl("input", { ...NUMBER, min: 0, class: "ni-number-input", "aria-label": "Run until step number", hidden: true });
    this.until = this._button("Run until", () => ({ type: "run", until: this._goal() }), "Run until what stands beside it happens");
    this.prompt = makeControl("input", { type: "text", class: "ni-live-prompt", placeholder: "Prompt of a new request", "aria-label": "Prompt", autocomplete: "off", spellcheck: "false" });
    this.tokens = makeControl("input", { ...NUMBER, min: 1, value: 32, class: "ni-live-number" });
    this.temperature = makeControl("input", { ...NUMBER, min: 0, step: 0.1, value: 0.8, class: "ni-live-number" });
    this.add = this._button("Add request", () => this._request(), "Queue this prompt (Enter)");
    this.element = make("div", { class: "ni-live-bar", role: "group", "aria-label": "Engine" }, this._engineRow(), this._requestForm(), this.note);
  }

  /** A button that sends the message that it makes when it is pressed. @param {string} text @param {() => object} message @param {string} title */
  _button(text, message, title) {
    const button = textButton(text, () => button.getAttribute("aria-disabled") === "true" || this.send(message()), { title });
    return button;
  }

  _engineRow() {
    this.step.classList.add("ni-primary");
    const engine = make("span", { class: "ni-buttons", role: "group", "aria-label": "Step and run" }, this.step, this.run, this.stop);
    return make("div", { class: "ni-live-row" }, engine, this._runUntil(), make("span", { class: "ni-space" }), this.state, make("span", { class: "ni-buttons" }, this.abort, this.reset));
  }

  _runUntil() {
    for (const [value, text] of RUN_GOALS) this.goal.append(make("option", { value, text }));
    this.goal.addEventListener("change", () => {
      this.number.hidden = this.goal.value !== "step";
      this.number.value = `${this.newest + 10}`;
    });
    pressOnEnter(this.until, this.number);
    return make("span", { class: "ni-buttons", role: "group", "aria-label": "Run until something happens" }, this.until, this.goal, this.number);
  }

  _goal() {
    return this.goal.value === "step" ? numberIn(this.number) ?? "step number" : this.goal.value;
  }

  _requestForm() {
    pressOnEnter(this.add, this.prompt, this.tokens, this.temperature);
    return make("div", { class: "ni-live-row", role: "group", "aria-label": "New request" }, this.prompt, labelled("max tokens", this.tokens), labelled("temperature", this.temperature), this.add);
  }

  _request() {
    return { type: "add", prompt: this.prompt.value, max_tokens: numberIn(this.tokens), temperature: numberIn(this.temperature) };
  }

  draw(/** @type {Status} */ status) {
    const state = stateOf(status);
    this.newest = status.newest;
    for (const button of [this.step, this.run, this.until]) setDisabled(button, state === "closed" || state === "running");
    setDisabled(this.stop, state !== "running");
    for (const button of [this.add, this.reset]) setDisabled(button, state === "closed");
    this._drawAbort(status);
    this.element.dataset.state = state;
    setText(this.state, STATES[state]);
    setText(this.note, status.note);
    this.note.classList.toggle("ni-live-failed", status.failed);
    this._clearAccepted(status.accepted);
  }

  _drawAbort(/** @type {Status} */ { attached, selected }) {
    this.selected = selected?.id ?? null;
    setDisabled(this.abort, !attached || !selected?.alive);
    setText(this.abort, selected ? `Abort sequence ${selected.id}` : "Abort");
    this.abort.title = selected ? "Drop it and free its blocks" : "Select a sequence first";
  }

  /** Empties the text box once its prompt is queued, unless something else was typed since. @param {Status["accepted"]} accepted */
  _clearAccepted({ count, prompt }) {
    if (this.count !== undefined && count !== this.count && this.prompt.value === prompt) this.prompt.value = "";
    this.count = count;
  }
}

const STATES = { closed: "not connected", running: "running", idle: "nothing to do", paused: "paused" };

/** @param {Status} status @returns {keyof typeof STATES} */
const stateOf = ({ attached, running, idle }) => (!attached ? "closed" : running ? "running" : idle ? "idle" : "paused");

function pressOnEnter(/** @type {HTMLButtonElement} */ button, /** @type {HTMLInputElement[]} */ ...inputs) {
  for (const input of inputs) input.addEventListener("keydown", (event) => event.key === "Enter" && !event.isComposing && button.click());
}

/** The number in an input, or null where there is none. @param {HTMLInputElement} input */
const numberIn = (input) => (Number.isNaN(input.valueAsNumber) ? null : input.valueAsNumber);

/** @param {string} text @param {HTMLElement} control */
const labelled = (text, control) => make("label", { class: "ni-live-label" }, text, control);
