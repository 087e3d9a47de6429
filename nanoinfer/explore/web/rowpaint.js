// ---- rowpaint.js: the bars of the timeline and its axis ----------------------------------------------------

import { MOST_OVERLAP } from "./bars.js";
import { DRAW_ORDER, HEIGHTS, HIT_SHARE, INKS } from "./constants.js";
import { clamp, every, grouped, write } from "./dom.js";
import { hatching } from "./theme.js";
import { EDGE, GUTTER } from "./view.js";
/** @import { Bars, Context, Palette, Scale, SequenceKind, Timeline, Trace, View } from "./types.js" */

const NAME_HEIGHT = 13; // px of a row's name

/** Draws the rows that are scrolled into view. @param {Context} context @param {Timeline} timeline @param {number} scrollTop */
export function drawRows(context, timeline, scrollTop) {
  const { rows, view, scale } = timeline;
  const first = Math.max(0, Math.floor(scrollTop / rows.height));
  const last = Math.min(rows.ids.length, Math.ceil((scrollTop + rows.room) / rows.height));
  drawBands(context, timeline, first, last, scrollTop);
  context.save();
  context.beginPath();
  context.rect(scale.left - 0.5, 0, scale.right - scale.left + 3, rows.room);
  context.clip();
  const painter = new BarPainter(context, scale, rows.height, view.colors);
  for (const kind of DRAW_ORDER) {
    for (let row = first; row < last; row++) painter.paint(view.trace.bars, rows.ids[row], kind, row * rows.height - scrollTop);
    painter.fill(kind);
  }
  context.restore();
}

/** A faint band behind every other group of rows. @param {Context} context @param {Timeline} timeline @param {number} first @param {number} last @param {number} scrollTop */
function drawBands(context, { rows, view, scale }, first, last, scrollTop) {
  const group = every(rows.height, NAME_HEIGHT);
  context.fillStyle = view.colors.surface;
  for (let row = first - (first % (2 * group)); row < last; row += 2 * group) {
    context.fillRect(scale.left, row * rows.height - scrollTop, scale.right - scale.left, Math.min(group, rows.ids.length - row) * rows.height);
  }
}

/** The name of the selected row, and of as many others as fit. @param {Context} context @param {Timeline} timeline @param {number | null} selected @param {number} scrollTop */
export function drawNames(context, { rows, view }, selected, scrollTop) {
  const group = every(rows.height, NAME_HEIGHT);
  const middle = (/** @type {number} */ row) => clamp((row + 0.5) * rows.height - scrollTop, NAME_HEIGHT / 2, rows.room - NAME_HEIGHT / 2);
  /** @param {number} row @param {string} color @param {string} weight */
  const name = (row, color, weight) => write(context, `seq ${rows.ids[row]}`, GUTTER - 8, middle(row), { color, align: "right", weight });
  const own = rows.ids.indexOf(selected ?? -1);
  const [first, last] = [Math.floor(scrollTop / rows.height), (scrollTop + rows.room) / rows.height];
  for (let row = Math.ceil(first / group) * group; row < Math.min(last, rows.ids.length); row += group) {
    if (own < 0 || Math.abs(row - own) * rows.height >= NAME_HEIGHT) name(row, view.colors.muted, "");
  }
  if (own >= first && own < last) name(own, view.colors.ink, "bold");
}

/** Collects the bars of one kind into a path and fills it at once. */
class BarPainter {
  /** @param {Context} context @param {Scale} scale @param {number} rowHeight @param {Palette} colors */
  constructor(context, scale, rowHeight, colors) {
    this.context = context;
    this.scale = scale;
    this.rowHeight = rowHeight;
    this.colors = colors;
    this.bar = rowHeight - (rowHeight > 10 ? 4 : rowHeight > 5 ? 2 : rowHeight > 3 ? 1 : 0); // px of a full bar
    this.splits = scale.step >= 6; // else a hit is put before the cell that it has no room in
    this.path = new Path2D();
    this.labels = /** @type {[text: string, x: number, y: number][]} */ ([]);
  }

  /** @param {Bars} bars @param {number} id @param {SequenceKind} kind @param {number} rowTop */
  paint(bars, id, kind, rowTop) {
    const height = Math.max(1, this.bar * HEIGHTS[kind]);
    const y = rowTop + (this.rowHeight - height) / 2;
    const gap = this.scale.step >= 1 ? -Infinity : kind === "decode" || kind === "waiting" ? 1 : 0; // px
    /** @type {[left: number, right: number] | null} */
    let run = null; // bars of long runs that are less than a gap apart are drawn as one
    for (const i of this._inView(bars, id, kind)) {
      const [left, right] = this._extent(bars, i, kind);
      if (run && left - run[1] < gap) run[1] = Math.max(right, run[1]);
      else {
        if (run) this._add(kind, run, y, height);
        run = [left, right];
      }
      this._label(kind, bars.tokens[i], left, right, rowTop);
    }
    if (run) this._add(kind, run, y, height);
  }

  /** The bars of a kind that reach into the zoom window, by number. @param {Bars} bars @param {number} id @param {SequenceKind} kind */
  *_inView(bars, id, kind) {
    const { from, to } = this.scale;
    const wanted = bars.kinds.indexOf(kind);
    const [first, end] = bars.of.get(id) ?? [0, 0];
    for (let i = Math.max(first, bars.firstAfter(id, from) - MOST_OVERLAP); i < end && bars.start[i] < to; i++) {
      if (bars.kind[i] === wanted && bars.start[i] + bars.length[i] >= from) yield i;
    }
  }

  /** Left and right edge, at least a pixel apart. @param {Bars} bars @param {number} i @param {SequenceKind} kind @returns {[left: number, right: number]} */
  _extent(bars, i, kind) {
    const { scale } = this;
    let left = scale.x(bars.start[i]);
    let right = scale.x(bars.start[i] + bars.length[i]);
    const afterHit = i > 0 && bars.kinds[bars.kind[i - 1]] === "hit" && bars.start[i - 1] === bars.start[i] && bars.seq[i - 1] === bars.seq[i];
    if (kind === "hit") [left, right] = this.splits ? [left, left + HIT_SHARE * scale.step] : [left - 3, left];
    else if (kind === "prefill" && afterHit && this.splits) left += HIT_SHARE * scale.step;
    else if (kind === "finished") left = right - 2;
    return [left, Math.max(right, left + 1)];
  }

  /** @param {SequenceKind} kind @param {[left: number, right: number]} extent @param {number} y @param {number} height */
  _add(kind, [left, right], y, height) {
    const hairline = kind === "prefill" && this.scale.step > 4 ? 1 : 0; // between chunks
    if (kind === "hit" || kind === "wasted") this.path.rect(left + 0.5, y + 0.5, Math.max(1, right - left - 1), height - 1);
    else this.path.rect(left, y, Math.max(1, right - left - hairline), height);
  }

  /** @param {SequenceKind} kind @param {number} tokens @param {number} left @param {number} right @param {number} rowTop */
  _label(kind, tokens, left, right, rowTop) {
    if (this.rowHeight < NAME_HEIGHT || (kind !== "prefill" && kind !== "hit")) return;
    if (right - left >= 6.2 * `${tokens}`.length + 3) this.labels.push([`${tokens}`, (left + right) / 2, rowTop + this.rowHeight / 2 + 0.5]);
  }

  fill(/** @type {SequenceKind} */ kind) {
    const { context, colors, path } = this;
    if (kind === "hit" || kind === "preempted" || kind === "wasted") {
      const outline = { hit: colors.prefill, preempted: colors.preempted, wasted: colors.decode }[kind];
      context.fillStyle = colors.background;
      context.fill(path);
      if (kind === "preempted") {
        context.fillStyle = hatching(context, outline);
        context.fill(path);
      }
      context.strokeStyle = outline;
      context.lineWidth = this.rowHeight < 8 ? 0.6 : 1;
      context.stroke(path);
    } else {
      context.fillStyle = colors[kind];
      context.fill(path);
    }
    const ink = kind === "prefill" ? INKS[colors.prefill] : colors.prefill;
    for (const [text, x, y] of this.labels) write(context, text, x, y, { color: ink, size: 10, align: "center" });
    this.path = new Path2D();
    this.labels = [];
  }
}

/** Ticks with step numbers, and the cursor's step in place of whatever it would cover. @param {Context} context @param {Scale} scale @param {View} view */
export function drawAxis(context, scale, view) {
  const { colors, trace, state } = view;
  const [left, right] = cursorLabel(scale, state.frame, trace);
  context.fillStyle = colors.hairline;
  context.fillRect(scale.left, 0.5, scale.right - scale.left, 1);
  const apart = every(scale.step / trace.size, 62); // steps
  const first = Math.ceil((scale.from * trace.size) / apart) * apart;
  for (let step = first; step <= Math.min(scale.to * trace.size, trace.steps - 1); step += apart) {
    const x = scale.x((step + 0.5) / trace.size);
    context.fillStyle = colors.hairline;
    context.fillRect(Math.round(x), 1, 1, 4);
    const half = 3.6 * grouped(step).length + 3;
    if (x + half < left || x - half > right) write(context, grouped(step), x, 12, { color: colors.muted, align: "center" });
  }
  drawCursorLabel(context, [left, right], view);
  write(context, "step", GUTTER - 8, 12, { color: colors.muted, align: "right" });
}

/** The edges of the cursor's label, out of sight where the cursor is. @param {Scale} scale @param {number} frame @param {Trace} trace @returns {[left: number, right: number]} */
function cursorLabel(scale, frame, trace) {
  const x = scale.x(frame + 0.5);
  if (x < scale.left - 1 || x > scale.right + 1) return [-1e4, -1e4];
  const width = 7 * grouped(trace.lastStep(frame)).length + 8;
  const left = clamp(x - width / 2, 0, scale.right + EDGE - width);
  return [left, left + width];
}

/** @param {Context} context @param {[left: number, right: number]} extent @param {View} view */
function drawCursorLabel(context, [left, right], { colors, trace, state }) {
  context.fillStyle = colors.ink;
  context.beginPath();
  context.roundRect(left, 3, right - left, 16, 4);
  context.fill();
  write(context, grouped(trace.lastStep(state.frame)), (left + right) / 2, 11.5, { color: colors.background, align: "center", weight: "bold" });
}
