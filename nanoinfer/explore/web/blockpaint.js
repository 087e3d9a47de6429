// ---- blockpaint.js: the cells of the block map -----------------------------------------------------------

import { BLOCK_KINDS, INKS, OWNERS } from "./constants.js";
import { every, write } from "./dom.js";
import { CELL } from "./pool.js";
/** @import { BlockMap, Box, Context, Grid, Pool } from "./types.js" */

/** Draws a BlockMap: single blocks, or tiles where there are too many. @param {Context} context @param {BlockMap} map */
export function drawBlockMap(context, map) {
  drawBlockIds(context, map);
  context.save();
  context.translate(map.left, 0);
  if (map.grid.perCell > 1) drawTiles(context, map);
  else drawCells(context, map);
  drawChanged(context, map);
  context.restore();
}

/** The number of the first block of as many rows as fit. @param {Context} context @param {BlockMap} map */
function drawBlockIds(context, { grid, left, view }) {
  const step = every(grid.cell, 13);
  for (let row = 0; row < grid.rows; row += step) {
    const y = (row + 0.5) * grid.cell;
    write(context, `${row * grid.columns * grid.perCell}`, left - 6, Math.max(6, y), { color: view.colors.muted, size: 10, align: "right" });
  }
}

/** The box of a cell without the gap to its neighbours. @param {Grid} grid @param {number} at @returns {Box} */
function cellBox({ columns, cell }, at) {
  const gap = cell < CELL.gap ? 0 : cell < CELL.digits ? 0.75 : Math.min(3, cell * 0.09);
  return [(at % columns) * cell + gap / 2, Math.floor(at / columns) * cell + gap / 2, cell - gap, cell - gap];
}

/** The fill of a block; with a selection, all others' blocks turn grey. @param {BlockMap} map @param {number} block */
function blockFill(map, block) {
  const { pool, view } = map;
  const kind = BLOCK_KINDS[pool.kinds[block]];
  if (kind === "empty" || kind === "cached") return view.colors[kind];
  if (pool.chosen.size) return pool.chosen.has(block) ? view.colors.selected : view.colors.private;
  return kind === "private" && view.state.byOwner ? OWNERS[Math.abs(pool.owner[block]) % OWNERS.length] : view.colors[kind];
}

function drawCells(/** @type {Context} */ context, /** @type {BlockMap} */ map) {
  const { pool, grid, view } = map;
  const [tiny, large] = [grid.cell < CELL.gap, grid.cell >= CELL.digits];
  const boxes = Array.from(pool.kinds, (_, block) => cellBox(grid, block));
  const fills = Array.from(pool.kinds, (_, block) => blockFill(map, block));
  fillAll(context, boxes, fills);
  /** @param {string} kind @param {(box: Box) => Box} mark */
  const marks = (kind, mark) => boxes.filter((_, block) => BLOCK_KINDS[pool.kinds[block]] === kind).map(mark);
  context.fillStyle = view.colors.ink;
  context.fill(pathOf(marks("cached", (box) => dotBox(box, grid.cell))));
  context.fillStyle = INKS[view.colors.selected];
  if (!tiny) context.fill(cornersOf(boxes.filter((_, block) => pool.chosen.has(block))));
  if (!tiny) outline(context, marks("empty", (box) => inset(box, 0.5)), view.colors.hairline, large ? 1 : 0.5);
  outline(context, marks("shared", (box) => inset(box, large ? 1 : 0.5)), view.colors.ink, large ? 2 : tiny ? 0.5 : 1);
  // The selection's own shared blocks have a frame inside, unless dashes stand there.
  const framed = boxes.filter((_, block) => pool.refCounts[block] > 1 && pool.chosen.has(block) && !pool.changed.has(block));
  outline(context, framed.map((box) => inset(box, large ? 3 : 1.5)), INKS[view.colors.selected], large ? 1.5 : 1);
  if (large) fills.forEach((fill, block) => writeBlock(context, map, block, INKS[fill]));
}

/** Fills every box, all of one colour at once. @param {Context} context @param {Box[]} boxes @param {string[]} fills */
function fillAll(context, boxes, fills) {
  for (const fill of new Set(fills)) {
    context.fillStyle = fill;
    context.fill(pathOf(boxes.filter((_, block) => fills[block] === fill)));
  }
}

function pathOf(/** @type {Box[]} */ boxes) {
  const path = new Path2D();
  for (const box of boxes) path.rect(...box);
  return path;
}

/** @param {Context} context @param {Box[]} boxes @param {string} color @param {number} width */
function outline(context, boxes, color, width) {
  context.strokeStyle = color;
  context.lineWidth = width;
  context.stroke(pathOf(boxes));
}

/** @param {Box} box @param {number} by @returns {Box} */
const inset = ([x, y, width, height], by) => [x + by, y + by, width - 2 * by, height - 2 * by];

/** The corners that the selected sequence's blocks lack, so that they stand out without colour too. @param {Box[]} boxes */
function cornersOf(boxes) {
  const path = new Path2D();
  for (const [x, y, width] of boxes) {
    const side = Math.max(2.5, 0.26 * width);
    path.moveTo(x, y);
    path.lineTo(x + side, y);
    path.lineTo(x, y + side);
  }
  return path;
}

/** The dot of a cached block: in the middle, or below the block's number. @param {Box} box @param {number} cell @returns {Box} */
function dotBox([x, y, width, height], cell) {
  const side = Math.max(1, 0.14 * Math.min(width, height));
  return [x + (width - side) / 2, y + (cell >= CELL.id ? 0.7 : 0.5) * height - side / 2, side, side];
}

/** A block's number where it fits, and under it its sign. @param {Context} context @param {BlockMap} map @param {number} block @param {string} ink */
function writeBlock(context, { pool, grid, view }, block, ink) {
  const [x, y, width, height] = cellBox(grid, block);
  const roomy = grid.cell >= CELL.id;
  const sign = signOf(pool, block, view.state.byOwner, roomy);
  const signed = sign || pool.kinds[block] === 1; // a cached block's dot
  const small = Math.min(11, grid.cell * 0.3 + 2);
  if (roomy) write(context, `${block}`, x + width / 2, y + height * (signed ? 0.33 : 0.52), { color: ink, size: small, align: "center" });
  if (sign) write(context, sign, x + width / 2, y + height * (roomy ? 0.69 : 0.53), { color: ink, size: roomy ? small : 9, align: "center", weight: "bold" });
}

/** How many sequences hold a block, or which one does. @param {Pool} pool @param {number} block @param {boolean} byOwner @param {boolean} roomy */
function signOf(pool, block, byOwner, roomy) {
  if (pool.refCounts[block] > 1) return `${roomy ? "\u00d7" : ""}${pool.refCounts[block]}`;
  return pool.refCounts[block] === 1 && byOwner && roomy ? `s${pool.owner[block]}` : "";
}

/** Tiles filled from below in proportion to their blocks' states. @param {Context} context @param {BlockMap} map */
function drawTiles(context, { pool, grid, view }) {
  const layers = /** @type {const} */ (["selected", "shared", "private", "cached"]);
  const shares = layers.map(() => new Float64Array(grid.cells));
  pool.kinds.forEach((kind, block) => {
    const layer = pool.chosen.has(block) ? "selected" : BLOCK_KINDS[kind];
    if (layer !== "empty") shares[layers.indexOf(layer)][Math.floor(block / grid.perCell)] += 1 / grid.perCell;
  });
  for (let at = 0; at < grid.cells; at++) {
    const [x, y, width, height] = cellBox(grid, at);
    context.fillStyle = view.colors.empty;
    context.fillRect(x, y, width, height);
    let floor = y + height;
    layers.forEach((layer, i) => {
      context.fillStyle = view.colors[layer];
      context.fillRect(x, floor, width, -shares[i][at] * height);
      floor -= shares[i][at] * height;
    });
  }
}

/** A dashed outline in every cell in which a block changed hands in this step. @param {Context} context @param {BlockMap} map */
function drawChanged(context, map) {
  const { grid, pool, view } = map;
  const cells = new Set(Array.from(pool.changed, (block) => Math.floor(block / grid.perCell)));
  const large = grid.cell >= CELL.digits;
  context.setLineDash(large ? [3, 2] : [2, 1]);
  context.lineWidth = large ? 1.3 : 1;
  for (const at of cells) {
    const box = inset(cellBox(grid, at), large ? Math.min(3.5, grid.cell * 0.13) : 0.5);
    context.strokeStyle = grid.perCell === 1 ? INKS[blockFill(map, at)] : view.colors.ink;
    context.strokeRect(...box);
  }
  context.setLineDash([]);
}
