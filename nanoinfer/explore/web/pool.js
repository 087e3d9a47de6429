// ---- pool.js: the state of every KV block, and where its cell stands -------------------------------------

import { BLOCK_KINDS, GRID_COLUMNS, GRID_FEW, GRID_WIDTH, MOST_CELLS, MOST_TILES } from "./constants.js";
/** @import { Fold, Trace, ViewState } from "./types.js" */

export const CELL = { most: 40, least: 4, usual: 6, id: 33, digits: 11, gap: 5 }; // px
const MOST_MAP_HEIGHT = 430; // px

/** How the blocks are laid out: `columns` squares of `cell` px to the row, each for `perCell` blocks. @param {number} blocks @param {number} width */
export function blockGrid(blocks, width) {
  const perCell = blocks <= MOST_CELLS ? 1 : Math.ceil(blocks / MOST_TILES);
  const cells = Math.ceil(blocks / perCell);
  let columns = GRID_COLUMNS;
  while (columns * columns < cells * GRID_WIDTH[cells > GRID_FEW ? 1 : 0]) columns *= 2;
  if (width / columns < CELL.usual) columns = 16; // else as large as the height allows
  while (Math.ceil(cells / columns) * (width / columns) > MOST_MAP_HEIGHT && width / columns > CELL.least) columns += 16;
  const cell = Math.min(CELL.most, width / columns);
  return { perCell, cells, columns, cell: cell < CELL.digits ? Math.floor(cell * 2) / 2 : cell, rows: Math.ceil(cells / columns) };
}

/** Every block's state after a frame, by number in BLOCK_KINDS. @param {Trace} trace @param {Fold} fold @param {Pick<ViewState, "frame" | "selected">} state */
export function poolAt(trace, fold, { frame, selected }) {
  const state = fold.at(frame);
  const refCounts = state.refCounts();
  const kinds = refCounts.map((count, block) => (count > 1 ? 3 : count === 1 ? 2 : state.findable[block]));
  const owner = new Int32Array(kinds.length).fill(-1);
  for (const [id, table] of state.tables) for (const block of table) owner[block] = id;
  const chosen = new Set(selected === null ? [] : state.tables.get(selected));
  const counts = { empty: 0, cached: 0, private: 0, shared: 0 };
  for (const kind of kinds) counts[BLOCK_KINDS[kind]] += 1;
  return { refCounts, kinds, owner, chosen, counts, changed: new Set(trace.entries("changed", "block", frame)) };
}
