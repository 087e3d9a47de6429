// ---- live.js: the explorer over an engine that is still running -----------------------------------------------------------
// The model holds `payload`, `status`, `step_shown`, `selected` and `theme`. Steps come as messages, in order:
// {type: "chunk", chunk} goes on with the trace, {type: "trace", payload} starts another one.

import { unpack } from "./columns.js";
import { CSS } from "./constants.js";
import { Trace, traceOf } from "./data.js";
import { make } from "./dom.js";
import { listenToModel, openingState, present } from "./explorer.js";
import { LiveBar } from "./livebar.js";
import { LiveList, LiveSelected } from "./livelist.js";
import { keepTheme } from "./theme.js";
import { isZoomed, View } from "./view.js";
/** @import { Chunk, Columns, Model, Mount, Payload, Status, Stop, ThemeName } from "./types.js" */

const ROOM = 24; // steps that a short run's pictures have room for

/** Once a model: keeps its payload complete, for views that open later. @param {{model: Model}} context */
function initializeLive({ model }) {
  model.on("msg:custom", (message) => {
    const payload = model.get("payload");
    if (message?.type === "chunk") payload.chunks.push(message.chunk);
    if (message?.type === "trace") Object.assign(payload, structuredClone(message.payload));
  });
}

/** The model as the replay's parts know it. They hear of a selection only if their trace has the sequence. @param {Model} model @param {Trace} trace @returns {Model} */
function replayModel(model, trace) {
  const nameOf = (/** @type {string} */ name) => (name.endsWith("step") ? `${name}_shown` : name);
  const isKnown = () => trace.bars.of.has(model.get("selected"));
  return {
    get: (key) => (key === "selected" && !isKnown() ? -1 : model.get(nameOf(key))),
    set: (key, value) => {
      const waits = key === "selected" && value < 0 && model.get("selected") >= 0 && !isKnown();
      if (!waits) model.set(nameOf(key), value);
    },
    save_changes: () => model.save_changes(),
    on: (name, handler) => model.on(nameOf(name), handler),
    off: (name, handler) => model.off(nameOf(name), handler),
  };
}

/** The replay of what was recorded so far; it grows. */
class LiveReplay {
  /** @param {HTMLElement} host @param {Model} model @param {Trace} trace @param {ThemeName} theme @param {() => void} onMove */
  constructor(host, model, trace, theme, onMove) {
    this.trace = trace;
    this.host = host;
    this.model = replayModel(model, trace);
    this.view = new View(trace, this.model, host, ROOM);
    Object.assign(this.view.state, { theme, ...openingState(this.model, trace) });
    this.stops = present(host, this.view, this.model);
    this.view.onDraw(onMove);
  }

  /** Whether the reader looks at the newest step and wants to go on doing so. */
  get follows() {
    return this.view.state.frame >= this.trace.frames - 1 && !this.view.state.playing;
  }

  toNewest() {
    this.view.set({ frame: this.trace.frames - 1 });
  }

  /** Takes in new steps. A reader at the newest step goes along, a window over the whole run stays one. @param {Chunk} chunk @param {Columns} columns */
  append(chunk, columns) {
    const { view, trace } = this;
    const follow = this.follows;
    const whole = !isZoomed(view);
    trace.append(chunk, columns);
    const selected = this.model.get("selected");
    view.set({
      ...(whole ? { from: 0, to: view.extent } : {}),
      ...(follow ? { frame: trace.frames - 1 } : {}),
      selected: selected < 0 ? view.state.selected : selected,
    });
  }

  stop() {
    this.stops.forEach((stop) => stop());
    this.host.remove();
  }
}

/** One view of a live explorer. */
class LiveExplorer {
  constructor(/** @type {Model} */ model, /** @type {HTMLElement} */ el) {
    this.model = model;
    this.theme = /** @type {ThemeName} */ ("light");
    this.replay = /** @type {LiveReplay | null} */ (null);
    this.trace = new Trace(model.get("payload").meta);
    this.work = Promise.resolve(); // chunks unpack one after the other
    this.bar = new LiveBar((message) => model.send?.(message));
    this.list = new LiveList((id) => this.choose(id));
    this.chosen = new LiveSelected();
    this.waiting = make("p", { class: "ni-note", text: "No step has run yet. Press Step to let the scheduler decide for the first time, or Run." });
    const now = make("div", { class: "ni-live-now" }, this.list.element, this.chosen.element);
    const label = "Live explorer of an inference engine";
    this.root = make("section", { class: "ni ni-live", "aria-label": label }, make("style", { text: CSS }), this.bar.element, now, this.waiting);
    el.append(this.root);
  }

  retheme(/** @type {ThemeName} */ theme) {
    this.theme = theme;
    this.replay?.view.set({ theme });
  }

  /** Selects a sequence, or nobody if it is selected already. @param {number} id */
  choose(id) {
    this.model.set("selected", id === this.model.get("selected") ? -1 : id);
    this.model.save_changes();
  }

  /** Draws what stands in the status; `cursor` is the step that the replay shows. */
  draw() {
    const status = /** @type {Status} */ (this.model.get("status"));
    if (!status?.sequences) return;
    this.bar.draw(status);
    this.list.draw(status);
    this.replay?.host.setAttribute("aria-busy", `${status.running}`); // twenty steps a second are nothing to read out
    this.chosen.draw(status, this.replay ? this.trace.lastStep(this.replay.view.state.frame) : null);
  }

  /** Does `work` after all that came before it. @param {() => Promise<void>} work */
  later(work) {
    this.work = this.work.then(work).catch((error) => void setTimeout(() => { throw error; }));
    return this.work;
  }

  /** Shows a whole trace: the first one, a new one, or the same one sent again, which a follower goes on following. @param {Payload} payload */
  async open(payload) {
    const trace = await traceOf(payload);
    const follow = this.replay?.follows;
    this.replay?.stop();
    this.replay = null;
    this.trace = trace;
    const replay = this._showReplay();
    if (follow) replay?.toNewest();
  }

  async append(/** @type {Chunk} */ chunk) {
    if (chunk.start !== this.trace.frames) return; // known already
    const columns = await unpack(chunk);
    if (this.replay) this.replay.append(chunk, columns);
    else this.trace.append(chunk, columns);
    this._showReplay();
  }

  /** The replay needs a step to show. */
  _showReplay() {
    this.waiting.hidden = this.trace.frames > 0;
    if (this.trace.frames && !this.replay) {
      const host = make("div", { class: "ni-live-replay" });
      this.root.append(host);
      this.replay = new LiveReplay(host, this.model, this.trace, this.theme, () => this.draw());
    }
    this.draw();
    return this.replay;
  }
}

/** Shows a model in `el`. @param {Mount} mount @returns {Promise<Stop>} removes everything again */
async function renderLive({ model, el }) {
  const explorer = new LiveExplorer(model, el);
  const { root } = explorer;
  const reopen = () => {
    const payload = model.get("payload");
    return explorer.later(() => explorer.open({ ...payload, chunks: [...payload.chunks] }));
  };
  const handlers = {
    "change:status": () => explorer.draw(),
    "change:payload": reopen,
    "msg:custom": (/** @type {any} */ message) => {
      if (message?.type === "chunk") explorer.later(() => explorer.append(message.chunk));
      if (message?.type === "trace") explorer.later(() => explorer.open(message.payload));
    },
  };
  const stops = [listenToModel(model, handlers), keepTheme(root, model, (theme) => explorer.retheme(theme)), () => explorer.replay?.stop(), () => root.remove()];
  explorer.draw();
  await reopen();
  root.dataset.ready = "true";
  return () => stops.forEach((stop) => stop());
}

export default { initialize: initializeLive, render: renderLive };
