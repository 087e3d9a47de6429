// ---- live.js: the explorer over an engine that is still running -----------------------------------------------------------
// The model holds `payload`, `status`, `step_shown`, `selected` and `theme`. Steps come as messages, in order:
// {type: "chunk", chunk} goes on with the trace, {type: "trace", payload} starts another one.

import { unpack } from "./columns.js";
import { CSS } from "./constants.js";
import { Trace } from "./data.js";
import { make } from "./dom.js";
import { assemble, followModel, openingState, watchSize } from "./explorer.js";
import { LiveBar } from "./livebar.js";
import { LiveList, LiveSelected } from "./livelist.js";
import { applyTheme, surroundingTheme, watchTheme } from "./theme.js";
import { listenToKeys } from "./transport.js";
import { isZoomed, View } from "./view.js";

const ROOM = 24; // steps that a short run's pictures have room for

/** Once a model: keeps its payload complete, for views that open later. */
function initializeLive({ model }) {
  model.on("msg:custom", (message) => {
    const payload = model.get("payload");
    if (message?.type === "chunk") payload.chunks.push(message.chunk);
    if (message?.type === "trace") Object.assign(payload, structuredClone(message.payload));
  });
}

/** The model as the replay's parts know it. They hear of a selection only if their trace has the sequence. */
function replayModel(model, trace) {
  const names = { step: "step_shown", "change:step": "change:step_shown" };
  const isKnown = () => trace.bars.of.has(model.get("selected"));
  return {
    get: (key) => (key === "selected" && !isKnown() ? -1 : model.get(names[key] ?? key)),
    set: (key, value) => {
      const waits = key === "selected" && value < 0 && model.get("selected") >= 0 && !isKnown();
      if (!waits) model.set(names[key] ?? key, value);
    },
    save_changes: () => model.save_changes(),
    on: (name, handler) => name === "msg:custom" || model.on(names[name] ?? name, handler),
    off: (name, handler) => name === "msg:custom" || model.off(names[name] ?? name, handler),
  };
}

/** The replay of what was recorded so far; it grows. */
class LiveReplay {
  constructor(host, model, trace, theme, onMove) {
    this.trace = trace;
    this.host = host;
    this.model = replayModel(model, trace);
    this.view = new View(trace, this.model, host, ROOM);
    Object.assign(this.view.state, { theme: theme(), ...openingState(this.model, trace) });
    const transport = assemble(host, this.view);
    this.view.onDraw(onMove);
    listenToKeys(host, this.view, transport.player);
    const retheme = () => this.view.set({ theme: theme() });
    this.undo = [followModel(this.model, this.view, retheme), watchTheme(retheme), watchSize(host, this.view), () => transport.player.stop(), () => this.view.stop()];
    this.view.draw();
  }

  /** Whether the reader looks at the newest step and wants to go on doing so. */
  get follows() {
    return this.view.state.frame >= this.trace.frames - 1 && !this.view.state.playing;
  }

  toNewest() {
    this.view.set({ frame: this.trace.frames - 1 });
  }

  /** Takes in new steps. A reader at the newest step goes along, a window over the whole run stays one. */
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
    this.undo.forEach((stop) => stop());
    this.host.remove();
  }
}

/** One view of a live explorer. */
class LiveExplorer {
  constructor(model, el) {
    this.model = model;
    this.replay = null;
    this.trace = null;
    this.work = Promise.resolve(); // chunks unpack one after the other
    this.bar = new LiveBar((message) => model.send(message));
    this.list = new LiveList((id) => this.choose(id));
    this.chosen = new LiveSelected();
    this.waiting = make("p", { class: "ni-note", text: "No step has run yet. Press Step to let the scheduler decide for the first time, or Run." });
    const now = make("div", { class: "ni-live-now" }, this.list.element, this.chosen.element);
    this.root = make("section", { class: "ni ni-live", "aria-label": "Live explorer of an inference engine" }, make("style", { text: CSS }), this.bar.element, now, this.waiting);
    el.append(this.root);
  }

  theme() {
    const asked = this.model.get("theme");
    return ["light", "dark"].includes(asked) ? asked : surroundingTheme();
  }

  /** Selects a sequence, or nobody if it is selected already. */
  choose(id) {
    this.model.set("selected", id === this.model.get("selected") ? -1 : id);
    this.model.save_changes();
  }

  /** Draws what stands in the status; `cursor` is the step that the replay shows. */
  draw() {
    const status = this.model.get("status");
    if (!status?.sequences) return;
    this.bar.draw(status);
    this.list.draw(status);
    this.replay?.host.setAttribute("aria-busy", status.running); // twenty steps a second are nothing to read out
    this.chosen.draw(status, this.replay ? this.trace.lastStep(this.replay.view.state.frame) : null);
  }

  /** Does `work` after all that came before it. */
  later(work) {
    this.work = this.work.then(work).catch((error) => setTimeout(() => { throw error; }));
    return this.work;
  }

  /** Shows a whole trace: the first one, a new one, or the same one sent again, which a follower goes on following. */
  async open(payload) {
    const trace = new Trace(payload.meta);
    for (const chunk of payload.chunks) trace.append(chunk, await unpack(chunk));
    const follow = this.replay?.follows;
    this.replay?.stop();
    this.replay = null;
    this.trace = trace;
    this._showReplay();
    if (follow) this.replay?.toNewest();
  }

  async append(chunk) {
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
      this.replay = new LiveReplay(host, this.model, this.trace, () => this.theme(), () => this.draw());
    }
    this.draw();
  }
}

/** Shows a model in `el`. @returns {Promise<() => void>} removes everything again */
async function renderLive({ model, el }) {
  const explorer = new LiveExplorer(model, el);
  const { root } = explorer;
  const retheme = () => applyTheme(root, explorer.theme());
  const reopen = () => {
    const payload = { ...model.get("payload") };
    payload.chunks = [...payload.chunks];
    return explorer.later(() => explorer.open(payload));
  };
  const handlers = {
    "change:status": () => explorer.draw(),
    "change:payload": reopen,
    "change:theme": retheme,
    "msg:custom": (message) => {
      if (message?.type === "chunk") explorer.later(() => explorer.append(message.chunk));
      if (message?.type === "trace") explorer.later(() => explorer.open(message.payload));
    },
  };
  for (const [name, handler] of Object.entries(handlers)) model.on(name, handler);
  const undo = [watchTheme(retheme), () => Object.entries(handlers).forEach(([name, handler]) => model.off(name, handler))];
  retheme();
  explorer.draw();
  await reopen();
  root.dataset.ready = "true";
  return () => {
    undo.forEach((stop) => stop());
    explorer.replay?.stop();
    root.remove();
  };
}

export default { initialize: initializeLive, render: renderLive };
