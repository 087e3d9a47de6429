// ---- transport.js: slider, buttons, play and keys --------------------------------------------------------------------

import { counted, grouped, icon, iconButton, make, makeControl, setDisabled, setText, textButton } from "./dom.js";
/** @import { Jump, Movable, Shown } from "./types.js" */

const MOVES = { ArrowLeft: -1, ArrowRight: 1, PageDown: -10, PageUp: 10, Home: -Infinity, End: Infinity };
const ZOOMS = { "+": 0.5, "=": 0.5, "-": 2, 0: Infinity };
const SPEEDS = [1, 2, 4, 8, 16, 30, 60]; // frames a second
const JUMPS = /** @type {[mark: Jump, name: string][]} */ ([["hit", "prefix hit"], ["refusal", "refused admission"], ["preemption", "preemption"]]);

/** The row of controls at the top. */
export class Transport {
  constructor(/** @type {Movable} */ view) {
    this.view = view;
    this.player = new Player(view);
    this.drawnPlaying = false;
    this.slider = makeControl("input", { type: "range", min: 0, max: Math.max(0, view.track.frames - 1), step: 1, class: "ni-slider", "aria-label": view.track.label });
    this.slider.addEventListener("input", () => view.set({ frame: this.slider.valueAsNumber }));
    this.output = make("output", { class: "ni-output", "aria-live": "off" });
    this.playButton = iconButton("play", "Play (Space)", () => this.player.toggle());
    this.jumps = JUMPS.map(([mark, name]) => ({ mark, name, button: textButton("", () => jumpTo(view, mark, 1)) }));
    const by = (/** @type {number} */ frames) => () => view.set({ frame: view.state.frame + frames });
    this.first = iconButton("first", "First step (Home)", by(-Infinity));
    this.back = iconButton("back", "Previous step (Left arrow)", by(-1));
    this.forward = iconButton("forward", "Next step (Right arrow)", by(1));
    this.last = iconButton("last", "Last step (End)", by(Infinity));
    const moves = [this.first, this.back, this.playButton, this.forward, this.last, this._speed()];
    const buttons = make("div", { class: "ni-buttons", role: "group", "aria-label": "Move through the steps" }, ...moves);
    this.element = make("div", { class: "ni-transport" }, buttons, this.slider, this.output);
    this.jumpBar = make("div", { class: "ni-jumps" }, make("span", { class: "ni-muted", text: "Jump to the next" }), ...this.jumps.map((jump) => jump.button));
    view.onDraw((state) => this.draw(state));
  }

  _speed() {
    const select = makeControl("select", { "aria-label": "Steps a second while playing", title: "Steps a second while playing" });
    for (const speed of SPEEDS) select.append(make("option", { value: speed, text: `${speed}/s`, selected: speed === this.view.state.speed }));
    select.addEventListener("change", () => this.view.set({ speed: Number(select.value) }));
    return select;
  }

  draw(/** @type {Shown} */ state) {
    const { track } = this.view;
    this.slider.max = `${Math.max(0, track.frames - 1)}`;
    if (this.slider.valueAsNumber !== state.frame) this.slider.value = `${state.frame}`;
    this.slider.setAttribute("aria-label", track.label);
    this.slider.setAttribute("aria-valuetext", this.view.inWords());
    setText(this.output, track.progress(state.frame));
    this._drawPlay(state.playing);
    for (const button of [this.first, this.back]) setDisabled(button, state.frame === 0);
    for (const button of [this.forward, this.last]) setDisabled(button, state.frame === track.frames - 1);
    for (const { mark, name, button } of this.jumps) {
      const marks = track.marks[mark];
      setText(button, marks.length ? `${name} (${grouped(marks.length)})` : name);
      setDisabled(button, nextMark(marks, state.frame, 1) === undefined);
      button.title = marks.length ? `${counted(marks.length, track.size === 1 ? "step" : "frame")} with it` : `No ${name} here`;
    }
  }

  _drawPlay(/** @type {boolean} */ playing) {
    if (this.drawnPlaying === playing) return;
    this.drawnPlaying = playing;
    const label = playing ? "Pause (Space)" : "Play (Space)";
    this.playButton.replaceChildren(icon(playing ? "pause" : "play"));
    this.playButton.setAttribute("aria-label", label);
    this.playButton.title = label;
  }
}

/** The nearest of the sorted `marks` behind (1) or before (-1) `frame`. @param {number[]} marks @param {number} frame @param {number} direction */
function nextMark(marks, frame, direction) {
  return direction > 0 ? marks.find((mark) => mark > frame) : marks.findLast((mark) => mark < frame);
}

/** @param {Movable} view @param {Jump} mark @param {number} direction */
function jumpTo(view, mark, direction) {
  const frame = nextMark(view.track.marks[mark], view.state.frame, direction);
  if (frame !== undefined) view.set({ frame });
}

/** Goes forward by itself. Frames that the screen is too slow for are skipped. */
export class Player {
  constructor(/** @type {Movable} */ view) {
    this.view = view;
    this.request = 0;
  }

  toggle() {
    if (this.view.state.playing) this.stop();
    else this.start();
  }

  start() {
    const { view } = this;
    const atEnd = view.state.frame >= view.track.frames - 1;
    view.set({ playing: true, ...(atEnd ? { frame: 0 } : {}) });
    let last = performance.now();
    let due = 0;
    const tick = (/** @type {number} */ now) => {
      due += ((now - last) / 1000) * view.state.speed;
      last = now;
      if (due >= 1) view.set({ frame: view.state.frame + Math.floor(due) });
      due %= 1;
      if (view.state.frame >= view.track.frames - 1) this.stop();
      else this.request = requestAnimationFrame(tick);
    };
    this.request = requestAnimationFrame(tick);
  }

  stop() {
    cancelAnimationFrame(this.request);
    if (this.view.state.playing) this.view.set({ playing: false });
  }
}

/** Keys that work wherever the focus is in the explorer, which a click brings there. @param {HTMLElement} root @param {Movable} view @param {Player} player */
export function listenToKeys(root, view, player) {
  root.tabIndex = -1;
  root.setAttribute("data-lm-suppress-shortcuts", "true");
  root.addEventListener("click", () => root.contains(document.activeElement) || root.focus({ preventScroll: true }));
  /** @type {{[key: string]: () => void}} */
  const uses = {
    " ": () => player.toggle(),
    "[": () => jumpTo(view, "preemption", -1),
    "]": () => jumpTo(view, "preemption", 1),
  };
  for (const [key, by] of Object.entries(MOVES)) uses[key] = () => view.set({ frame: view.state.frame + by });
  for (const [key, factor] of Object.entries(ZOOMS)) uses[key] = () => view.zoom(factor);
  listenToKey(root, (key) => (key === "Escape" && view.state.selected !== null ? () => view.set({ selected: null }) : uses[key]));
}

/** Makes a key do what `useOf` says, unless the focused control has its own use for it. @param {HTMLElement} root @param {(key: string) => (() => void) | undefined} useOf */
export function listenToKey(root, useOf) {
  root.addEventListener("keydown", (event) => {
    const use = event.ctrlKey || event.metaKey || event.altKey || takesKey(event) ? undefined : useOf(event.key);
    if (!use) return;
    use();
    event.preventDefault();
    event.stopPropagation();
  });
}

function takesKey(/** @type {KeyboardEvent} */ { key, target }) {
  if (!(target instanceof Element)) return false;
  if (target.matches("select, input[type=number]")) return key !== "Escape";
  return key === " " && target.matches("button, summary, input[type=checkbox]");
}
