// ---- theme.js: light or dark, and the colours of both -----------------------------------------

import { OWNERS, PALETTES } from "./constants.js";
import { contextOf } from "./dom.js";
/** @import { Context, Model, Stop, ThemeName } from "./types.js" */

/** The theme that the surroundings ask for: JupyterLab's, then VS Code's, then the system's. @returns {ThemeName} */
function surroundingTheme() {
  for (const body of surroundingBodies()) {
    if (body.dataset.jpThemeLight) return body.dataset.jpThemeLight === "false" ? "dark" : "light";
    if (body.dataset.vscodeThemeKind) return body.dataset.vscodeThemeKind.includes("light") ? "light" : "dark";
  }
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

/** This page's body and, where it may be looked at, that of the page around it. */
function surroundingBodies() {
  const bodies = [document.body];
  try {
    if (window.parent !== window && window.parent.document.body) bodies.push(window.parent.document.body);
  } catch {
    // a page of another origin: its theme is not ours to read
  }
  return bodies;
}

/** Calls `onChange` whenever the surroundings switch their theme. @param {() => void} onChange @returns {Stop} */
export function watchTheme(onChange) {
  const observer = new MutationObserver(onChange);
  const attributeFilter = ["data-jp-theme-light", "data-vscode-theme-kind"];
  for (const body of surroundingBodies()) observer.observe(body, { attributes: true, attributeFilter });
  const query = matchMedia("(prefers-color-scheme: dark)");
  query.addEventListener("change", onChange);
  return () => {
    observer.disconnect();
    query.removeEventListener("change", onChange);
  };
}

// A model that asks for "auto" gets the theme of the surroundings; `use` is told each time.
/** Colours `root` as the model asks, now and whenever it changes. @param {HTMLElement} root @param {Model} model @param {(theme: ThemeName) => void} use @returns {Stop} */
export function keepTheme(root, model, use) {
  const retheme = () => {
    const asked = model.get("theme");
    const theme = asked === "light" || asked === "dark" ? asked : surroundingTheme();
    applyTheme(root, theme);
    use(theme);
  };
  const unwatch = watchTheme(retheme);
  model.on("change:theme", retheme);
  retheme();
  return () => {
    unwatch();
    model.off("change:theme", retheme);
  };
}

/** Colours `root` and everything in it. @param {HTMLElement} root @param {ThemeName} name */
function applyTheme(root, name) {
  root.dataset.theme = name;
  root.style.colorScheme = name;
  for (const [key, value] of Object.entries(PALETTES[name])) root.style.setProperty(`--${key}`, value);
  root.style.setProperty("--owners", OWNERS.map((color, i) => `${color} ${(100 * i) / OWNERS.length}% ${(100 * (i + 1)) / OWNERS.length}%`).join(", "));
}

/** The hatching of a preempted bar. @param {Context} context @param {string} color */
export function hatching(context, color) {
  const ratio = window.devicePixelRatio || 1;
  const tile = document.createElement("canvas");
  tile.width = tile.height = Math.max(2, Math.round(5 * ratio));
  const side = tile.width;
  const pen = contextOf(tile);
  pen.strokeStyle = color;
  pen.lineWidth = 1.3 * ratio;
  for (const shift of [-side, 0, side]) {
    pen.beginPath();
    pen.moveTo(shift - 1, side + 1);
    pen.lineTo(shift + side + 1, -1);
    pen.stroke();
  }
  const pattern = /** @type {CanvasPattern} */ (context.createPattern(tile, "repeat"));
  pattern.setTransform(new DOMMatrix().scale(1 / ratio));
  return pattern;
}
