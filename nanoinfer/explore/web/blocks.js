// ---- blocks.js: the physical pool of KV blocks -----------------------------------------------------------

import { drawBlockMap } from "./blockpaint.js";
import { BLOCK_KINDS, BLOCK_LEGEND, MOST_OWNED } from "./constants.js";
import { checkbox, grouped, make, pointIn, setText, sized } from "./dom.js";
import { blockGrid, poolAt } from "./pool.js";
import { tokenRange } from "./timeline.js";
/** @import { Grid, Pool, Tooltip, View, ViewState } from "./types.js" */

/** The block map with its heading and the toggle "by owner". */
export class BlockMap {
  constructor(/** @type {View} */ view, /** @type {Tooltip} */ tooltip) {
    this.view = view;
    this.canvas = make("canvas", { role: "img", class: "ni-blocks" });
    this.heading = make("h3");
    this.byOwner = checkbox("by owner", (on) => view.set({ byOwner: on }));
    this.byOwner.hidden = view.trace.meta.num_blocks > MOST_OWNED;
    this.legend = make("div", { class: "ni-legend" });
    this.holder = make("div", { class: "ni-canvas" }, this.canvas);
    this.element = make("div", { class: "ni-panel" }, make("div", { class: "ni-head" }, this.heading, this.byOwner), this.legend, this.holder);
    this.pool = /** @type {Pool} */ (poolAt(view.trace, view.fold, view.state));
    this.grid = blockGrid(this.pool.kinds.length, 0);
    this.left = 0; // px of the numbers beside the rows
    this.legendKey = "";
    this.canvas.addEventListener("click", (event) => this.click(...pointIn(this.canvas, event)));
    tooltip.follow(this.canvas, (x, y) => this.describe(x, y));
    view.onDraw((state) => this.draw(state));
  }

  draw(/** @type {ViewState} */ state) {
    const { trace, fold } = this.view;
    this.pool = poolAt(trace, fold, state);
    const width = this.holder.clientWidth;
    const labels = Math.min(48, 7 * `${this.pool.kinds.length}`.length + 8);
    this.left = labels;
    this.grid = blockGrid(this.pool.kinds.length, width - labels - 1);
    const context = sized(this.canvas, width, Math.max(1, Math.ceil(this.grid.rows * this.grid.cell) + 1));
    drawBlockMap(context, this);
    this._tell(state);
  }

  _tell(/** @type {ViewState} */ state) {
    const { counts, kinds } = this.pool;
    const used = counts.private + counts.shared;
    const words = `${grouped(used)} used, ${grouped(counts.shared)} shared, ${grouped(counts.cached)} free but cached, ${grouped(counts.empty)} empty of ${grouped(kinds.length)}`;
    setText(this.heading, `KV blocks: ${words}`);
    this.canvas.setAttribute("aria-label", `KV blocks after ${this.view.trace.nameOf(state.frame)}: ${words}`);
    const key = [state.selected, this.grid.perCell, state.byOwner].join();
    if (key !== this.legendKey) {
      this.legendKey = key;
      this.legend.replaceChildren(...blockLegend(state, this.grid));
    }
  }

  /** The first block of the cell at a point, or null. @param {number} x @param {number} y */
  blockAt(x, y) {
    const { cell, columns, cells, perCell } = this.grid;
    const column = Math.floor((x - this.left) / cell);
    const at = Math.floor(y / cell) * columns + column;
    return column < 0 || column >= columns || at < 0 || at >= cells ? null : at * perCell;
  }

  /** Selects the block's holder; with several, the next one each time. @param {number} x @param {number} y */
  click(x, y) {
    const block = this.blockAt(x, y);
    if (block === null) return;
    const holders = this.view.fold.at(this.view.state.frame).holders(block);
    const next = holders[(holders.indexOf(this.view.state.selected ?? -1) + 1) % holders.length];
    this.view.set({ selected: next ?? null });
  }

  describe(/** @type {number} */ x, /** @type {number} */ y) {
    const block = this.blockAt(x, y);
    if (block === null) return null;
    if (this.grid.perCell > 1) return this._describeTile(block);
    const { kinds, changed } = this.pool;
    const state = this.view.fold.at(this.view.state.frame);
    const lines = [`block ${block}: ${{ empty: "empty", cached: "free, but its content is still cached", private: "private", shared: "shared" }[BLOCK_KINDS[kinds[block]]]}`];
    for (const id of state.holders(block).slice(0, 6)) lines.push(describeHold(this.view, id, (state.tables.get(id) ?? []).indexOf(block)));
    if (kinds[block] > 1 && state.findable[block]) lines.push("the prefix cache can find it");
    if (changed.has(block)) lines.push(`changed in ${this.view.trace.nameOf(this.view.state.frame)}`);
    return lines;
  }

  _describeTile(/** @type {number} */ first) {
    const { kinds } = this.pool;
    const end = Math.min(first + this.grid.perCell, kinds.length);
    const counts = [0, 0, 0, 0];
    for (let block = first; block < end; block++) counts[kinds[block]] += 1;
    return [`blocks ${first}\u2013${end - 1}`, ...BLOCK_KINDS.map((kind, i) => `${counts[i]} ${kind}`).filter((_, i) => counts[i])];
  }
}

/** "sequence 3: its block 2, tokens 32-47". @param {View} view @param {number} id @param {number} logical */
function describeHold({ trace }, id, logical) {
  const size = trace.meta.block_size;
  return `sequence ${id}: its block ${logical}, ${tokenRange(logical * size, size)}`;
}

/** The pictures' legend, and what only this map has. @param {ViewState} state @param {Grid} grid */
function blockLegend({ selected, byOwner }, grid) {
  /** @type {[mark: string | null, text: string][]} */
  const entries = BLOCK_LEGEND.map(([kind, text]) => (kind === "private" && byOwner ? ["owners", "private, by owner"] : [kind, text]));
  if (selected !== null) entries.splice(-1, 0, ["chosen", `of sequence ${selected}`]);
  if (grid.perCell > 1) entries.push([null, `a tile is ${grid.perCell} blocks, filled from below by state`]);
  return entries.map(([mark, text]) => make("span", {}, mark ? make("i", { class: `ni-mark ni-${mark}` }) : null, text));
}
