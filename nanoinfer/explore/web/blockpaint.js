// ---- blockpaint.js: the cells of the block map -----------------------------------------------------------

import { BLOCK_KINDS, INKS, OWNERS } from "./constants.js";
import { every, write } from "./dom.js";
import { CELL } from "./pool.js";

/** Draws a BlockMap: single blocks, or tiles where there are too many. */
export function drawBlockMap(context, map) {
  drawBlockIds(context, map);
  context.save();
  context.translate(map.left, 0);
  if (map.grid.perCell > 1) drawTiles(context, map);
  else drawCells(context, map);
  drawChanged(context, map);
  context.restore();
}

/** The number of the first block of as many rows as fit. */
function drawBlockIds(context, { grid, left, view }) {
  const step = every(grid.cell, 13);
  for (let row = 0; row < grid.rows; row += step) {
    const y = (row + 0.5) * grid.cell;
    write(context, `${row * grid.columns * grid.perCell}`, left - 6, Math.max(6, y), { color: view.colors.muted, size: 10, align: "right" });
  }
}

/** The box of a cell without the gap to its neighbours. */
function cellBox({ columns, cell }, at) {
  const gap = cell < CELL.gap ? 0 : cell < CELL.digits ? 0.75 : Math.min(3, cell * 0.09);
  return [(at % columns) * cell + gap / 2, Math.floor(at / columns) * cell + gap / 2, cell - gap, cell - gap];
}

/** The fill of a block; with a selection, all others' blocks turn grey. */
function blockFill(map, block) {
  const { pool, view } = map;
  const kind = BLOCK_KINDS[pool.kinds[block]];
  if (kind === "empty" || kind === "cached") return view.colors[kind];
  if (pool.chosen.size) return pool.chosen.has(block) ? view.colors.selected : view.colors.private;
  return kind === "private" && view.state.byOwner ? OWNERS[Math.abs(pool.owner[block]) % OWNERS.length] : view.colors[kind];
}

function drawCells(context, map) {
  const { pool, grid, view } = map;
  const fills = Array.from(pool.kinds, (_, block) => blockFill(map, block));
  const paths = new Map();
  const [dots, empties, corners] = [new Path2D(), new Path2D(), new Path2D()];
  const [borders, frames] = [new Path2D(), new Path2D()]; // frames: inside of the selection's own shared blocks, unless dashes stand there
  fills.forEach((fill, block) => {
    const box = cellBox(grid, block);
    if (!paths.has(fill)) paths.set(fill, new Path2D());
    paths.get(fill).rect(...box);
    if (pool.kinds[block] === 0 && grid.cell >= CELL.gap) empties.rect(box[0] + 0.5, box[1] + 0.5, box[2] - 1, box[3] - 1);
    if (pool.kinds[block] === 1) dots.rect(...dotBox(box, grid.cell));
    if (pool.chosen.has(block) && grid.cell >= CELL.gap) addCorner(corners, box);
    if (pool.kinds[block] === 3) borders.rect(...inset(box, grid.cell >= CELL.digits ? 1 : 0.5));
    if (pool.kinds[block] === 3 && pool.chosen.has(block) && !pool.changed.has(block)) frames.rect(...inset(box, grid.cell >= CELL.digits ? 3 : 1.5));
  });
  for (const [fill, path] of paths) {
    context.fillStyle = fill;
    context.fill(path);
  }
  context.fillStyle = view.colors.ink;
  context.fill(dots);
  context.fillStyle = INKS[view.colors.selected];
  context.fill(corners);
  outline(context, empties, view.colors.hairline, grid.cell < CELL.digits ? 0.5 : 1);
  outline(context, borders, view.colors.ink, grid.cell >= CELL.digits ? 2 : grid.cell >= CELL.gap ? 1 : 0.5);
  outline(context, frames, INKS[view.colors.selected], grid.cell >= CELL.digits ? 1.5 : 1);
  if (grid.cell >= CELL.digits) fills.forEach((fill, block) => writeBlock(context, map, block, INKS[fill]));
}

function outline(context, path, color, width) {
  context.strokeStyle = color;
  context.lineWidth = width;
  context.stroke(path);
}

const inset = ([x, y, width, height], by) => [x + by, y + by, width - 2 * by, height - 2 * by];

/** The corner that the selected sequence's blocks lack, so that they stand out without colour too. */
function addCorner(path, [x, y, width]) {
  const side = Math.max(2.5, 0.26 * width);
  path.moveTo(x, y);
  path.lineTo(x + side, y);
  path.lineTo(x, y + side);
}

/** The dot of a cached block: in the middle, or below the block's number. */
function dotBox([x, y, width, height], cell) {
  const side = Math.max(1, 0.14 * Math.min(width, height));
  return [x + (width - side) / 2, y + (cell >= CELL.id ? 0.7 : 0.5) * height - side / 2, side, side];
}

/** A block's number where it fits, and under it how many hold it, or who. */
function writeBlock(context, { pool, grid, view }, block, ink) {
  const [x, y, width, height] = cellBox(grid, block);
  const roomy = grid.cell >= CELL.id;
  let sign = "";
  if (pool.kinds[block] === 3) sign = `${roomy ? "\u00d7" : ""}${pool.refCounts[block]}`;
  else if (pool.kinds[block] === 2 && view.state.byOwner && roomy) sign = `s${pool.owner[block]}`;
  const signed = sign || pool.kinds[block] === 1;
  const small = Math.min(11, grid.cell * 0.3 + 2);
  if (roomy) write(context, `${block}`, x + width / 2, y + height * (signed ? 0.33 : 0.52), { color: ink, size: small, align: "center" });
  if (sign) write(context, sign, x + width / 2, y + height * (roomy ? 0.69 : 0.53), { color: ink, size: roomy ? small : 9, align: "center", weight: "bold" });
}

/** Tiles filled from below in proportion to their blocks' states. */
function drawTiles(context, { pool, grid, view }) {
  const layers = ["chosen", "shared", "private", "cached"];
  const shares = Object.fromEntries(layers.map((layer) => [layer, new Float64Array(grid.cells)]));
  pool.kinds.forEach((kind, block) => {
    const layer = pool.chosen.has(block) ? "chosen" : BLOCK_KINDS[kind];
    if (layer !== "empty") shares[layer][Math.floor(block / grid.perCell)] += 1 / grid.perCell;
  });
  for (let at = 0; at < grid.cells; at++) {
    const [x, y, width, height] = cellBox(grid, at);
    context.fillStyle = view.colors.empty;
    context.fillRect(x, y, width, height);
    let floor = y + height;
    for (const layer of layers) {
      context.fillStyle = view.colors[layer === "chosen" ? "selected" : layer];
      context.fillRect(x, floor, width, -shares[layer][at] * height);
      floor -= shares[layer][at] * height;
    }
  }
}

/** A dashed outline in every cell in which a block changed hands in this step. */
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
