// ---- strip.js: tokens and blocks of the whole run; also the minimap of the zoom window -------------

import { clamp, counted, grouped, LayeredCanvas, make, pointIn, write } from "./dom.js";
import { drawCursor, drawMarker, EDGE, GUTTER, isZoomed, panned, Scale, SMALLEST_WINDOW, zoomed } from "./view.js";
/** @import { Context, Tooltip, View, ViewState } from "./types.js" */

const STRIP = { budget: 44, gap: 12, blocks: 22, top: 6 }; // px
const GRIP = 6; // px on both sides of the window's edge that take hold of it

/** Token budget above, KV blocks in use below, from the first frame to the last. */
export class Strip {
  constructor(/** @type {View} */ view, /** @type {Tooltip} */ tooltip) {
    this.view = view;
    this.layers = new LayeredCanvas({ class: "ni-strip" });
    this.canvas = this.layers.canvas;
    this.element = make("div", { class: "ni-canvas" }, this.canvas);
    this.scale = new Scale(0, 0, 1);
    this.height = STRIP.top + STRIP.budget + STRIP.gap + STRIP.blocks + 2;
    tooltip.follow(this.canvas, (x) => this.describe(x));
    this._listen();
    view.onDraw((state) => this.draw(state));
  }

  draw(/** @type {ViewState} */ state) {
    const { trace, colors } = this.view;
    const width = this.element.clientWidth;
    this.scale = new Scale(width, 0, this.view.extent);
    const context = this.layers.draw(width, this.height, [state.theme, trace.frames], (still) => this._drawStill(still, width));
    if (isZoomed(this.view)) this._drawWindow(context, state);
    drawMarker(context, this.scale, this.view.marker, 0, this.height, colors.ink);
    drawCursor(context, this.scale, state.frame, STRIP.top - 4, this.height, colors.ink);
    const { meta } = trace;
    const label = `Tokens per step of a budget of ${meta.budget}, and blocks in use of ${meta.num_blocks}, over ${counted(trace.steps, "step")}`;
    this.canvas.setAttribute("aria-label", label);
  }

  _drawStill(/** @type {Context} */ context, /** @type {number} */ width) {
    const { colors, trace } = this.view;
    const floor = STRIP.top + STRIP.budget;
    const bottom = floor + STRIP.gap + STRIP.blocks;
    this._drawColumns(context, floor, bottom);
    context.fillStyle = colors.hairline;
    for (const y of [floor, bottom]) context.fillRect(GUTTER, y, width - GUTTER - EDGE, 1);
    context.strokeStyle = colors.muted;
    context.setLineDash([4, 3]);
    context.beginPath();
    context.moveTo(GUTTER, STRIP.top + 0.5);
    context.lineTo(width - EDGE, STRIP.top + 0.5);
    context.stroke();
    context.setLineDash([]);
    const label = { color: colors.muted, size: 10, align: /** @type {const} */ ("right") };
    write(context, grouped(trace.meta.budget), GUTTER - 6, STRIP.top + 3, label);
    write(context, "tokens", GUTTER - 6, floor - 6, label);
    write(context, "KV blocks", GUTTER - 6, bottom - STRIP.blocks / 2, label);
  }

  /** Per pixel column the fullest step; a mean would hide it. @param {Context} context @param {number} floor @param {number} bottom */
  _drawColumns(context, floor, bottom) {
    const { colors, trace } = this.view;
    const { budget, num_blocks: blocks } = trace.meta;
    const { prefill, decode, wasted, used } = trace.column;
    const tall = this._tallest();
    const paths = { decode: new Path2D(), prefill: new Path2D(), wasted: new Path2D(), used: new Path2D() };
    for (const [from, to, x, width] of this._slices()) {
      const fullest = this._fullest(from, to);
      const [decoded, prefilled, lost] = [decode, prefill, wasted].map((tokens) => (tokens[fullest] / Math.max(budget, tall)) * STRIP.budget);
      paths.decode.rect(x, floor, width, -decoded);
      paths.prefill.rect(x, floor - decoded, width, -prefilled);
      if (lost) paths.wasted.rect(x + 0.5, floor - decoded + 0.5, Math.max(1, width - 1), lost - 1);
      let most = 0;
      for (let i = from; i < to; i++) most = Math.max(most, used[i]);
      paths.used.rect(x, bottom, width, (-most / blocks) * STRIP.blocks);
    }
    for (const kind of /** @type {const} */ (["decode", "prefill", "used"])) {
      context.fillStyle = kind === "used" ? colors.private : colors[kind];
      context.fill(paths[kind]);
    }
    context.fillStyle = colors.background; // wasted: the top of the decode bar, hollow
    context.strokeStyle = colors.decode;
    context.fill(paths.wasted);
    context.stroke(paths.wasted);
  }

  /** A decode-only step may exceed the budget: the strip then ends at the highest. */
  _tallest() {
    const { prefill, decode } = this.view.trace.column;
    let tallest = 0;
    for (let i = 0; i < prefill.length; i++) tallest = Math.max(tallest, prefill[i] + decode[i]);
    return tallest;
  }

  /** [first frame, end frame, x, width] of every column: a frame each, or a pixel each where frames are narrower. */
  *_slices() {
    const { frames } = this.view.trace;
    const { scale } = this;
    if (scale.step >= 1) {
      const gap = scale.step > 3 ? Math.min(1, scale.step * 0.15) : 0;
      for (let f = 0; f < frames; f++) yield [f, f + 1, scale.x(f) + gap / 2, scale.step - gap];
      return;
    }
    for (let x = scale.left; x < scale.right; x++) {
      const from = Math.max(0, Math.floor(scale.frame(x)));
      if (from >= frames) return;
      yield [from, Math.max(from + 1, Math.min(frames, Math.floor(scale.frame(x + 1)))), x, 1];
    }
  }

  _fullest(/** @type {number} */ from, /** @type {number} */ to) {
    const { prefill, decode } = this.view.trace.column;
    let best = from;
    for (let i = from + 1; i < to; i++) if (prefill[i] + decode[i] > prefill[best] + decode[best]) best = i;
    return best;
  }

  _drawWindow(/** @type {Context} */ context, /** @type {ViewState} */ { from, to }) {
    const { colors } = this.view;
    const [left, right] = [this.scale.x(from), this.scale.x(to)];
    context.fillStyle = colors.background;
    context.globalAlpha = 0.62;
    context.fillRect(this.scale.left, 0, left - this.scale.left, this.height);
    context.fillRect(right, 0, this.scale.right - right, this.height);
    context.globalAlpha = 1;
    context.strokeStyle = colors.muted;
    context.lineWidth = 1;
    context.strokeRect(left + 0.5, 0.5, right - left - 1, this.height - 1);
    context.fillStyle = colors.muted;
    for (const x of [left, right]) context.fillRect(x - 1.5, this.height / 2 - 9, 3, 18);
  }

  _listen() {
    /** @type {"cursor" | "from" | "to" | null} */
    let grip = null;
    const move = (/** @type {PointerEvent} */ event) => {
      const frame = this.scale.frame(pointIn(this.canvas, event)[0]);
      if (grip === "cursor") this.view.set({ frame: Math.floor(frame) });
      else if (grip) this._resizeWindow(grip, frame);
    };
    this.canvas.addEventListener("pointerdown", (event) => {
      grip = this._gripAt(pointIn(this.canvas, event)[0]);
      this.canvas.setPointerCapture(event.pointerId);
      move(event);
    });
    this.canvas.addEventListener("pointermove", (event) => {
      this.canvas.style.cursor = (grip ?? this._gripAt(pointIn(this.canvas, event)[0])) === "cursor" ? "pointer" : "ew-resize";
      if (grip) move(event);
    });
    for (const name of ["pointerup", "pointercancel"]) this.canvas.addEventListener(name, () => (grip = null));
    this.canvas.addEventListener("wheel", (event) => zoomByWheel(this.view, event, this.scale.frame(pointIn(this.canvas, event)[0])), { passive: false });
  }

  _gripAt(/** @type {number} */ x) {
    if (!isZoomed(this.view)) return "cursor";
    const { from, to } = this.view.state;
    if (Math.abs(x - this.scale.x(from)) <= GRIP) return "from";
    return Math.abs(x - this.scale.x(to)) <= GRIP ? "to" : "cursor";
  }

  _resizeWindow(/** @type {"from" | "to"} */ edge, /** @type {number} */ frame) {
    const { from, to } = this.view.state;
    const least = Math.min(SMALLEST_WINDOW, this.view.trace.frames);
    if (edge === "from") this.view.set({ from: clamp(frame, 0, to - least) });
    else this.view.set({ to: clamp(frame, from + least, this.view.extent) });
  }

  describe(/** @type {number} */ x) {
    const { trace } = this.view;
    const frame = this.scale.hit(x, trace.frames);
    if (frame === null) return null;
    const slice = this.scale.step >= 1 ? 1 : Math.ceil(1 / this.scale.step);
    const end = Math.min(trace.frames, frame + slice);
    const fullest = this._fullest(frame, end);
    const { prefill, decode, wasted, used, offset } = trace.column;
    const name = trace.nameOfRange(frame, end - 1);
    const many = trace.lastStep(end - 1) > trace.firstStep(frame);
    const at = many ? `, max at step ${grouped(trace.firstStep(fullest) + offset[fullest])}` : "";
    return [
      `${name}${at}: ${prefill[fullest] + decode[fullest]} of ${grouped(trace.meta.budget)} tokens`,
      `${prefill[fullest]} prefill, ${decode[fullest]} decode${wasted[fullest] ? `, ${wasted[fullest]} of it wasted` : ""}`,
      `${used[end - 1]} of ${grouped(trace.meta.num_blocks)} KV blocks in use`,
    ];
  }
}

/** Zooms around `center` as far as the wheel turned; at the whole run, turning back scrolls the page. @param {View} view @param {WheelEvent} event @param {number} center */
export function zoomByWheel(view, event, center) {
  const turned = event.deltaY * (event.deltaMode ? 16 : 1);
  if (Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey) {
    if (!isZoomed(view)) return;
    view.set(panned(view, ((event.deltaX || turned) / 600) * (view.state.to - view.state.from)));
  } else {
    if (turned > 0 && !isZoomed(view)) return;
    view.set(zoomed(view, Math.exp(clamp(turned, -240, 240) / 300), center));
  }
  event.preventDefault();
}
