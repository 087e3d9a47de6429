// ---- transport.js: slider, buttons, play and keys --------------------------------------------------------------------

import { counted, grouped, icon, iconButton, make, makeControl, setDisabled, setText } from "./dom.js";

const SPEEDS = [1, 2, 4, 8, 16, 30, 60]; // frames a second
const JUMPS = [["hit", "prefix hit", "No prefix hit here"], ["refusal", "refused admission", "No refused admission here"], ["preemption", "preemption", "No preemption here"]];

/** The row of controls at the top. */
export class Transport {
  constructor(view) {
    this.view = view;
    this.player = new Player(view);
    this.slider = makeControl("input", { type: "range", min: 0, max: Math.max(0, view.trace.frames - 1), step: 1, class: "ni-slider", "aria-label": "Engine step" });
    this.slider.addEventListener("input", () => view.go(Number(this.slider.value)));
    this.output = make("output", { class: "ni-output", "aria-live": "off" });
    this.playButton = iconButton("play", "Play (Space)", () => this.player.toggle());
    this.jumps = JUMPS.map(([mark, name, none]) => ({ mark, name, none, button: this._jumpButton(mark) }));
    this.element = make("div", { class: "ni-transport" }, this._buttons(), this.slider, this.output);
    this.jumpBar = make("div", { class: "ni-jumps" }, make("span", { class: "ni-muted", text: "Jump to the next" }), ...this.jumps.map((jump) => jump.button));
    view.onDraw((state) => this.draw(state));
  }

  _buttons() {
    const { view } = this;
    const by = (frames) => () => view.go(view.state.frame + frames);
    return make(
      "div",
      { class: "ni-buttons", role: "group", "aria-label": "Move through the steps" },
      (this.first = iconButton("first", "First step (Home)", () => view.go(0))),
      (this.back = iconButton("back", "Previous step (Left arrow)", by(-1))),
      this.playButton,
      (this.forward = iconButton("forward", "Next step (Right arrow)", by(1))),
      (this.last = iconButton("last", "Last step (End)", () => view.go(Infinity))),
      this._speed(),
    );
  }

  _speed() {
    const select = makeControl("select", { "aria-label": "Steps a second while playing", title: "Steps a second while playing" });
    for (const speed of SPEEDS) select.append(make("option", { value: speed, text: `${speed}/s`, selected: speed === this.view.state.speed }));
    select.addEventListener("change", () => this.view.set({ speed: Number(select.value) }));
    return select;
  }

  _jumpButton(mark) {
    return makeControl("button", { type: "button", class: "ni-button", onclick: () => jump(this.view, mark, 1) });
  }

  draw(state) {
    const { trace } = this.view;
    this.slider.max = Math.max(0, trace.frames - 1);
    if (this.slider.valueAsNumber !== state.frame) this.slider.value = state.frame;
    this.slider.setAttribute("aria-valuetext", this.inWords(state));
    setText(this.output, this.place(state));
    this._drawPlay(state.playing);
    for (const button of [this.first, this.back]) setDisabled(button, state.frame === 0);
    for (const button of [this.forward, this.last]) setDisabled(button, state.frame === trace.frames - 1);
    for (const { mark, name, none, button } of this.jumps) {
      const marks = trace.marks[mark];
      setText(button, marks.length ? `${name} (${grouped(marks.length)})` : name);
      setDisabled(button, nextMark(marks, state.frame, 1) === undefined);
      button.title = marks.length ? `${counted(marks.length, trace.size === 1 ? "step" : "frame")} with it` : none;
    }
  }

  /** The sentence that says what the step did. */
  inWords({ frame }) {
    return this.view.trace.headline(frame);
  }

  /** Where the slider stands. */
  place({ frame }) {
    const { trace } = this.view;
    return `${trace.nameOf(frame)} / ${grouped(trace.steps - 1)}`;
  }

  _drawPlay(playing) {
    if (this.drawnPlaying === playing) return;
    this.drawnPlaying = playing;
    const label = playing ? "Pause (Space)" : "Play (Space)";
    this.playButton.replaceChildren(icon(playing ? "pause" : "play"));
    this.playButton.setAttribute("aria-label", label);
    this.playButton.title = label;
  }
}

/** The nearest of the sorted `marks` behind (1) or before (-1) `frame`. */
function nextMark(marks, frame, direction) {
  return direction > 0 ? marks.find((mark) => mark > frame) : marks.findLast((mark) => mark < frame);
}

function jump(view, mark, direction) {
  const frame = nextMark(view.trace.marks[mark], view.state.frame, direction);
  if (frame !== undefined) view.go(frame);
}

/** Goes forward by itself. Frames that the screen is too slow for are skipped. */
class Player {
  constructor(view) {
    this.view = view;
    this.request = 0;
  }

  toggle() {
    if (this.view.state.playing) this.stop();
    else this.start();
  }

  start() {
    const { view } = this;
    const atEnd = view.state.frame >= view.trace.frames - 1;
    view.set({ playing: true, ...(atEnd ? { frame: 0 } : {}) });
    let last = performance.now();
    let due = 0;
    const tick = (now) => {
      due += ((now - last) / 1000) * view.state.speed;
      last = now;
      if (due >= 1) view.go(view.state.frame + Math.floor(due));
      due %= 1;
      if (view.state.frame >= view.trace.frames - 1) this.stop();
      else this.request = requestAnimationFrame(tick);
    };
    this.request = requestAnimationFrame(tick);
  }

  stop() {
    cancelAnimationFrame(this.request);
    if (this.view.state.playing) this.view.set({ playing: false });
  }
}

/** Keys that work wherever the focus is inside the explorer; a click on anything in it brings the focus there. */
export function listenToKeys(root, view, player) {
  root.tabIndex = -1;
  root.setAttribute("data-lm-suppress-shortcuts", "true");
  root.addEventListener("click", () => root.contains(document.activeElement) || root.focus({ preventScroll: true }));
  const moves = { ArrowLeft: -1, ArrowRight: 1, PageDown: -10, PageUp: 10, Home: -Infinity, End: Infinity };
  const zooms = { "+": 0.5, "=": 0.5, "-": 2, 0: Infinity };
  root.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || takesKey(event)) return;
    if (event.key in moves) view.go(view.state.frame + moves[event.key]);
    else if (event.key === " ") player.toggle();
    else if (event.key === "[" || event.key === "]") jump(view, "preemption", event.key === "]" ? 1 : -1);
    else if (event.key in zooms) view.zoom(zooms[event.key]);
    else if (event.key === "Escape" && view.state.selected !== null) view.set({ selected: null });
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
}

/** Whether the focused control has its own use for the key. */
export function takesKey(event) {
  const { tagName, type } = event.target;
  if (tagName === "SELECT" || (tagName === "INPUT" && type === "number")) return event.key !== "Escape";
  return event.key === " " && (tagName === "BUTTON" || tagName === "SUMMARY" || type === "checkbox");
}
