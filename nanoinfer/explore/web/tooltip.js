// ---- tooltip.js: what lies under the pointer ------------------------------------------------------

import { clamp, make, pointIn } from "./dom.js";

/** One floating note inside `root`. */
export class Tooltip {
  constructor(/** @type {HTMLElement} */ root) {
    this.root = root;
    this.element = make("div", { class: "ni-tooltip", "aria-hidden": "true", hidden: true });
    root.append(this.element);
  }

  /** @param {MouseEvent} event @param {string[] | null} lines nothing to say hides it */
  show(event, lines) {
    this.element.hidden = !lines?.length;
    if (!lines?.length) return;
    this.element.replaceChildren(...lines.map((text) => make("div", { text })));
    const box = this.root.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const { offsetWidth: width, offsetHeight: height } = this.element;
    const left = clamp(x + 14, 4, Math.max(4, this.root.clientWidth - width - 4));
    const below = y + 18 + height < this.root.clientHeight;
    this.element.style.transform = `translate(${Math.round(left)}px, ${Math.round(below ? y + 18 : y - height - 10)}px)`;
  }

  hide() {
    this.element.hidden = true;
  }

  /** Describes what the pointer is over. @param {HTMLElement} element @param {(x: number, y: number, event: MouseEvent) => string[] | null} describe */
  follow(element, describe) {
    element.addEventListener("pointermove", (event) => this.show(event, describe(...pointIn(element, event), event)));
    element.addEventListener("pointerleave", () => this.hide());
  }
}
