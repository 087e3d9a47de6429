// ---- why.js: the step in words ----------------------------------------------------------------------------------

import { make } from "./dom.js";
/** @import { View, ViewState } from "./types.js" */

/** The explanation of the step, read out unless something else does; it stays as tall as it once was, so that nothing jumps. */
export class Why {
  constructor(/** @type {View} */ view, /** @type {boolean} */ readOut = true) {
    this.view = view;
    this.readOut = readOut;
    this.sentences = make("div", { class: "ni-sentences", role: readOut ? "status" : null });
    this.stops = make("div", { class: "ni-stops" });
    this.element = make("div", { class: "ni-why" }, this.sentences, this.stops);
    this.tallest = 0; // px
    this.width = 0;
    this.key = "";
    view.onDraw((state) => this.draw(state));
  }

  draw(/** @type {ViewState} */ { frame, playing, theme }) {
    const { trace } = this.view;
    if (this.readOut) this.sentences.setAttribute("aria-live", playing ? "off" : "polite");
    const key = [frame, trace.frames, this.element.clientWidth, theme].join();
    if (key === this.key) return;
    this.key = key;
    const lines = trace.words.sentences[frame].split("\n");
    this.sentences.replaceChildren(...lines.map((text, i) => make("p", { text, class: i === trace.column.headline[frame] ? "ni-headline" : null })));
    const stops = [["admission ended", trace.words.stop[frame]], ["decode loop ended", trace.words.decode_stop[frame]]];
    this.stops.replaceChildren(...stops.map(([name, stop]) => make("span", {}, `${name} `, make("code", { text: stop }))));
    this._keepHeight();
  }

  _keepHeight() {
    if (this.width !== this.element.clientWidth) this.tallest = 0;
    this.width = this.element.clientWidth;
    this.tallest = Math.max(this.tallest, Math.min(this.sentences.scrollHeight, 168));
    this.sentences.style.minHeight = `${this.tallest}px`;
  }
}
