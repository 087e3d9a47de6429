// ---- livebar.js: the controls of a live engine ---------------------------------------------------------------------

import { make, makeControl, setDisabled, setText } from "./dom.js";

const RUN_GOALS = [["finish", "a request finishes"], ["preemption", "the next preemption"], ["step", "step number"]];

/** Buttons that step and run the engine, and the form that adds a request. What they do is Python's to decide. */
export class LiveBar {
  /** @param {(message: Object) => void} send to the kernel */
  constructor(send) {
    this.send = send;
    this.accepted = "";
    this.note = make("p", { class: "ni-live-note", role: "status", "aria-live": "polite" });
    this.state = make("span", { class: "ni-live-state" });
    this.element = make("div", { class: "ni-live-bar", role: "group", "aria-label": "Engine" }, this._engineRow(), this._requestForm(), this.note);
  }

  _engineRow() {
    this.step = this._button("Step", { type: "step" }, "Run one step of the engine");
    this.run = this._button("Run", { type: "run", until: null }, "Run until every request has finished");
    this.stop = this._button("Stop", { type: "stop" }, "Stop after the step in flight");
    this.abort = this._button("Abort", () => ({ type: "abort", id: this.selected }), "");
    this.reset = this._button("Reset", { type: "reset" }, "Drop all requests, empty the prefix cache, start a new trace");
    this.step.classList.add("ni-primary");
    const engine = make("span", { class: "ni-buttons", role: "group", "aria-label": "Step and run" }, this.step, this.run, this.stop);
    return make("div", { class: "ni-live-row" }, engine, this._runUntil(), make("span", { class: "ni-space" }), this.state, make("span", { class: "ni-buttons" }, this.abort, this.reset));
  }

  /** A button that sends a message; `message` may be made when it is pressed. */
  _button(text, message, title) {
    const press = () => button.getAttribute("aria-disabled") === "true" || this.send(typeof message === "function" ? message() : message);
    const button = makeControl("button", { type: "button", class: "ni-button", text, title, onclick: press });
    return button;
  }

  _runUntil() {
    const goal = makeControl("select", { "aria-label": "Run until" });
    for (const [value, text] of RUN_GOALS) goal.append(make("option", { value, text }));
    const number = makeControl("input", { type: "number", min: 0, step: 1, class: "ni-number-input", "aria-label": "Run until step number", hidden: true });
    goal.addEventListener("change", () => {
      number.hidden = goal.value !== "step";
      number.value = this.newest + 10;
    });
    const message = () => ({ type: "run", until: goal.value === "step" ? numberIn(number) ?? "step number" : goal.value });
    this.until = this._button("Run until", message, "Run until what stands beside it happens");
    number.addEventListener("keydown", (event) => event.key === "Enter" && this.until.click());
    return make("span", { class: "ni-buttons", role: "group", "aria-label": "Run until something happens" }, this.until, goal, number);
  }

  _requestForm() {
    this.prompt = makeControl("input", { type: "text", class: "ni-live-prompt", placeholder: "Prompt of a new request", "aria-label": "Prompt", autocomplete: "off", spellcheck: "false" });
    const tokens = makeControl("input", { type: "number", min: 1, step: 1, value: 32, class: "ni-live-number" });
    const temperature = makeControl("input", { type: "number", min: 0, step: 0.1, value: 0.8, class: "ni-live-number" });
    const message = () => ({ type: "add", prompt: this.prompt.value, max_tokens: numberIn(tokens), temperature: numberIn(temperature) });
    this.add = this._button("Add request", message, "Queue this prompt (Enter)");
    for (const input of [this.prompt, tokens, temperature]) {
      input.addEventListener("keydown", (event) => event.key === "Enter" && !event.isComposing && this.add.click());
    }
    return make("div", { class: "ni-live-row", role: "group", "aria-label": "New request" }, this.prompt, labelled("max tokens", tokens), labelled("temperature", temperature), this.add);
  }

  /** @param {Object} status as `LiveExplorer._send_status` makes it */
  draw(status) {
    const { attached, running, selected, idle } = status;
    this.selected = selected?.id ?? null;
    this.newest = status.newest;
    for (const button of [this.step, this.run, this.until]) setDisabled(button, !attached || running);
    setDisabled(this.stop, !attached || !running);
    for (const button of [this.add, this.reset]) setDisabled(button, !attached);
    setDisabled(this.abort, !attached || !selected?.alive);
    setText(this.abort, selected ? `Abort sequence ${selected.id}` : "Abort");
    this.abort.title = selected ? "Drop it and free its blocks" : "Select a sequence first";
    this.element.dataset.state = !attached ? "closed" : running ? "running" : idle ? "idle" : "paused";
    setText(this.state, { closed: "not connected", running: "running", idle: "nothing to do", paused: "paused" }[this.element.dataset.state]);
    setText(this.note, status.note);
    this.note.classList.toggle("ni-live-failed", status.failed);
    this._clearAccepted(status.accepted);
  }

  /** Empties the text box once its prompt is queued, unless something else was typed since. */
  _clearAccepted({ count, prompt }) {
    if (this.count !== undefined && count !== this.count && this.prompt.value === prompt) this.prompt.value = "";
    this.count = count;
  }
}

/** The number in an input, or null where there is none. */
const numberIn = (input) => (Number.isNaN(input.valueAsNumber) ? null : input.valueAsNumber);

const labelled = (text, control) => make("label", { class: "ni-live-label" }, text, control);
