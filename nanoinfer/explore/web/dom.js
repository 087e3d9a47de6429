// ---- dom.js: elements, icons, canvases and the tooltip ---------------------------------------
// Text only ever enters the page through `textContent` and attributes, never as markup.

/** @import { Attributes, Children, Context, TextStyle } from "./types.js" */
/** @typedef {keyof typeof ICON_PATHS} Icon */

/** A string among the children becomes text. @template {keyof HTMLElementTagNameMap} K @param {K} tag @param {Attributes} attributes @param {Children} children */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") element.textContent = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

// What takes the keyboard focus: JupyterLab would otherwise swallow arrows and space.
/** @template {keyof HTMLElementTagNameMap} K @param {K} tag @param {Attributes} attributes @param {Children} children */
export function makeControl(tag, attributes, ...children) {
  return make(tag, { "data-lm-suppress-shortcuts": "true", ...attributes }, ...children);
}

/** A labelled checkbox; `input` inside it is the control. @param {string} label @param {(on: boolean) => void} onchange */
export function checkbox(label, onchange) {
  const input = makeControl("input", { type: "checkbox" });
  input.addEventListener("change", () => onchange(input.checked));
  return make("label", { class: "ni-check" }, input, label);
}

const ICON_PATHS = {
  first: "M3 3h2v10H3z M13 3v10L6 8z",
  back: "M10.2 2.5 11.7 4 7.7 8l4 4-1.5 1.5L4.7 8z",
  play: "M4.5 3l8 5-8 5z",
  pause: "M4 3h3v10H4z M9 3h3v10H9z",
  forward: "M5.8 2.5 4.3 4l4 4-4 4 1.5 1.5L11.3 8z",
  last: "M3 3l7 5-7 5z M11 3h2v10h-2z",
  minus: "M3.5 7.2h9v1.6h-9z",
  plus: "M7.2 3.5h1.6v3.7h3.7v1.6H8.8v3.7H7.2V8.8H3.5V7.2h3.7z",
  whole: "M2 4h1.6v8H2z M12.4 4H14v8h-1.6z M7 5L4 8l3 3V8.8h2V11l3-3-3-3v2.2H7z",
};

export function icon(/** @type {Icon} */ name) {
  const namespace = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(namespace, "svg");
  const path = document.createElementNS(namespace, "path");
  for (const [key, value] of Object.entries({ viewBox: "0 0 16 16", width: "16", height: "16", "aria-hidden": "true" })) {
    svg.setAttribute(key, value);
  }
  path.setAttribute("d", ICON_PATHS[name]);
  path.setAttribute("fill", "currentColor");
  svg.append(path);
  return svg;
}

/** A button that shows an icon and is called `label`. @param {Icon} name @param {string} label @param {() => void} onclick */
export function iconButton(name, label, onclick) {
  return makeControl("button", { type: "button", class: "ni-icon", "aria-label": label, title: label, onclick }, icon(name));
}

/** A button that shows a text. @param {string} text @param {() => void} onclick @param {Attributes} attributes */
export function textButton(text, onclick, attributes = {}) {
  return makeControl("button", { type: "button", class: "ni-button", text, onclick, ...attributes });
}

/** `disabled` would take the focus away from the button just pressed. @param {HTMLElement} button @param {boolean} disabled */
export function setDisabled(button, disabled) {
  button.setAttribute("aria-disabled", `${disabled}`);
}

/** Sets a text that differs, so that screen readers hear only what changed; says whether it did. @param {HTMLElement} element @param {string} text */
export function setText(element, text) {
  if (element.textContent === text) return false;
  element.textContent = text;
  return true;
}

/** Sizes a canvas for the screen's resolution; its empty context is in CSS pixels. @param {HTMLCanvasElement} canvas @param {number} width @param {number} height */
export function sized(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(height * ratio));
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = contextOf(canvas);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

export const contextOf = (/** @type {HTMLCanvasElement} */ canvas) => /** @type {Context} */ (canvas.getContext("2d"));

/** A canvas drawn in two layers: a slow one, drawn again only when `key` changes, and what moves on top of it. */
export class LayeredCanvas {
  constructor(/** @type {{[name: string]: string}} */ attributes) {
    this.canvas = make("canvas", { role: "img", ...attributes });
    this.still = document.createElement("canvas");
    this.key = "";
    this.context = contextOf(this.canvas);
  }

  // `key` is everything that the slow layer depends on; the context is on top of that layer.
  /** @param {number} width @param {number} height @param {(string | number)[]} key @param {(context: Context) => void} drawStill */
  draw(width, height, key, drawStill) {
    const all = [width, height, window.devicePixelRatio, ...key].join("|");
    if (all !== this.key) {
      this.key = all;
      this.context = sized(this.canvas, width, height);
      drawStill(sized(this.still, width, height));
    }
    const context = this.context;
    context.save();
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    context.drawImage(this.still, 0, 0);
    context.restore();
    return context;
  }
}

const CANVAS_FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';

/** Writes one line of text into a canvas. @param {Context} context @param {string} text @param {number} x @param {number} y @param {TextStyle} style */
export function write(context, text, x, y, { color, size = 11, align = "left", weight = "" }) {
  context.fillStyle = color;
  context.font = `${weight} ${size}px ${CANVAS_FONT}`;
  context.textAlign = align;
  context.textBaseline = "middle";
  context.fillText(text, x, y);
}

/** Where a pointer event happened, in CSS pixels from the element's top left corner. @param {Element} element @param {MouseEvent} event @returns {[x: number, y: number]} */
export function pointIn(element, event) {
  const box = element.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
}

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

/** How many items one label must stand for, so that labels are `least` apart: 1, 2, 5, 10, 20, 50, ... @param {number} spacing @param {number} least */
export function every(spacing, least) {
  if (!(spacing > 0)) return Infinity;
  for (let scale = 1; ; scale *= 10) {
    for (const factor of [1, 2, 5]) if (factor * scale * spacing >= least) return factor * scale;
  }
}

export const counted = (/** @type {number} */ number, /** @type {string} */ noun) => `${grouped(number)} ${noun}${number === 1 ? "" : "s"}`;
export const grouped = (/** @type {number} */ number) => (number < 10000 ? `${number}` : number.toLocaleString("en-US"));
/** @param {number} value @param {number} low @param {number} high */
export const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
