// ---- tour.js: bookmarks with captions -------------------------------------------------------------------------------------

import { grouped, make, setDisabled, setText, textButton } from "./dom.js";
/** @import { View, ViewState } from "./types.js" */

/** A caption with Back and Next; each place sets the step and the selection. */
export class Tour {
  constructor(/** @type {View} */ view) {
    this.view = view;
    this.stops = view.trace.meta.tour;
    this.caption = make("p", { class: "ni-caption", "aria-live": "polite", dir: "auto" });
    this.place = make("span", { class: "ni-muted" });
    this.back = textButton("Back", () => this.visit(view.state.bookmark - 1));
    this.next = textButton("Next", () => this.visit(view.state.bookmark + 1), { class: "ni-button ni-primary" });
    this.element = make("div", { class: "ni-tour", role: "group", "aria-label": "Guided tour", hidden: !this.stops.length }, this.caption, make("div", { class: "ni-tour-buttons" }, this.place, this.back, this.next));
    if (this.stops.length) view.onDraw((state) => this.draw(state));
  }

  visit(/** @type {number} */ number) {
    const stop = this.stops[number];
    if (!stop) return;
    this.view.set({ bookmark: number, frame: this.view.trace.frameOf(stop.step), selected: stop.select });
  }

  draw(/** @type {ViewState} */ { bookmark }) {
    setText(this.caption, this.stops[bookmark].caption);
    setText(this.place, `${bookmark + 1} of ${this.stops.length}, step ${grouped(this.stops[bookmark].step)}`);
    setDisabled(this.back, bookmark === 0);
    setDisabled(this.next, bookmark === this.stops.length - 1);
  }
}
