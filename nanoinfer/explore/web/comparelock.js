// ---- comparelock.js: what two traces have in common: steps, or a clock ---------------------------------------

/** @import { Jump, Marks, Place, Trace } from "./types.js" */

/** Both sides at the same step, with frames of equally many steps. A position is a frame of the longer side. */
export class StepLock {
  constructor(/** @type {Trace[]} */ traces) {
    this.traces = traces;
    this.longer = traces[1].frames > traces[0].frames ? traces[1] : traces[0];
    this.frames = this.longer.frames;
    this.size = this.longer.size;
    this.marks = marksOfBoth(traces, (_side, frame) => frame);
    this.label = "Engine step of both sides";
  }

  /** @param {number} side @param {number} position @returns {Place} */
  placeOf(side, position) {
    const last = this.traces[side].frames - 1;
    return { frame: Math.min(position, last), status: position > last ? "ended" : "on" };
  }

  positionOf(/** @type {number} */ _side, /** @type {number} */ frame) {
    return frame;
  }

  /** "step 3 / 40". @param {number} position */
  progress(position) {
    return this.longer.progress(position);
  }
}

/** Both sides at the same time. A position is a moment at which a step of either side starts. */
export class TimeLock {
  /** Clocks by side, in "steps" or "seconds". @param {Trace[]} traces @param {Float64Array[]} starts of every frame @param {number[]} ends @param {string} unit */
  constructor(traces, starts, ends, unit) {
    this.starts = starts;
    this.ends = ends;
    this.unit = unit;
    this.times = Float64Array.from(new Set([...starts[0], ...starts[1]])).sort();
    this.frames = this.times.length;
    this.size = traces[0].size;
    this.marks = marksOfBoth(traces, (side, frame) => this.positionOf(side, frame));
    this.label = "Time of both sides";
  }

  /** The last step that started at or before the time. @param {number} side @param {number} position @returns {Place} */
  placeOf(side, position) {
    const time = this.times[position];
    const frame = countUpTo(this.starts[side], time) - 1;
    if (frame < 0) return { frame: 0, status: "early" };
    return { frame, status: time >= this.ends[side] ? "ended" : "on" };
  }

  positionOf(/** @type {number} */ side, /** @type {number} */ frame) {
    return countUpTo(this.times, this.starts[side][frame]) - 1;
  }

  /** "1.250 s / 3.400 s". @param {number} position */
  progress(position) {
    return `${this.timeText(this.times[position])} / ${this.timeText(Math.max(...this.ends))}`;
  }

  timeText(/** @type {number} */ time) {
    if (this.unit === "steps") return `${Number(time.toFixed(2))} steps`;
    return Math.max(...this.ends) < 1 ? `${(1000 * time).toFixed(1)} ms` : `${time.toFixed(3)} s`;
  }
}

/** How many of the sorted `values` are at most `limit`. @param {ArrayLike<number>} values @param {number} limit */
function countUpTo(values, limit) {
  let [low, high] = [0, values.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= limit) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The marks of both sides, as sorted positions of a lock. @param {Trace[]} traces @param {(side: number, frame: number) => number} position */
function marksOfBoth(traces, position) {
  const marks = /** @type {Marks} */ ({ preemption: [], hit: [], refusal: [] });
  for (const name of /** @type {Jump[]} */ (Object.keys(marks))) {
    const all = traces.flatMap((trace, side) => trace.marks[name].map((frame) => position(side, frame)));
    marks[name] = [...new Set(all)].sort((a, b) => a - b);
  }
  return marks;
}
