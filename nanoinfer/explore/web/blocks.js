// ---- blocks.js: the physical pool of KV blocks -----------------------------------------------------------

const BLOCK_KINDS = ["empty", "cached", "private", "shared"];
const MOST_CELLS = 16384; // above it a tile stands for several blocks
const MOST_TILES = 4096;
const MOST_OWNED = 1024; // blocks for which "by owner" is offered
const CELL = { most: 40, least: 4, usual: 6, id: 33, digits: 11, gap: 5 }; // px
const MOST_MAP_HEIGHT = 430; // px

/** How the blocks are laid out: `columns` squares of `cell` px to the row, each for `perCell` blocks. */
function blockGrid(blocks, width) {
  const perCell = blocks <= MOST_CELLS ? 1 : Math.ceil(blocks / MOST_TILES);
  const cells = Math.ceil(blocks / perCell);
  let columns = 8;
  while (columns * columns < cells * (cells <= 64 ? 4 : 2)) columns *= 2; // a power of two: ids can be read off
  if (width / columns < CELL.usual) columns = 16; // else as large as the height allows
  while (Math.ceil(cells / columns) * (width / columns) > MOST_MAP_HEIGHT && width / columns > CELL.least) columns += 16;
  const cell = Math.min(CELL.most, width / columns);
  return { perCell, cells, columns, cell: cell < CELL.digits ? Math.floor(cell * 2) / 2 : cell, rows: Math.ceil(cells / columns) };
}

/** The block map with its heading and the toggle "by owner". */
class BlockMap {
  constructor(view, tooltip) {
    this.view = view;
    this.canvas = make("canvas", { role: "img", class: "ni-blocks" });
    this.heading = make("h3");
    this.byOwner = checkbox("by owner", (on) => view.set({ byOwner: on }));
    this.byOwner.hidden = view.recording.meta.num_blocks > MOST_OWNED;
    this.legend = make("div", { class: "ni-legend" });
    this.holder = make("div", { class: "ni-canvas" }, this.canvas);
    this.element = make("div", { class: "ni-panel" }, make("div", { class: "ni-head" }, this.heading, this.byOwner), this.legend, this.holder);
    this.canvas.addEventListener("click", (event) => this.click(...pointIn(this.canvas, event)));
    tooltip.follow(this.canvas, (x, y) => this.describe(x, y));
    view.onDraw((state) => this.draw(state));
  }

  draw(state) {
    const { recording, fold } = this.view;
    this.pool = poolAt(recording, fold, state);
    const width = this.holder.clientWidth;
    const labels = Math.min(48, 7 * `${this.pool.kinds.length}`.length + 8);
    this.left = labels;
    this.grid = blockGrid(this.pool.kinds.length, width - labels - 1);
    const context = sized(this.canvas, width, Math.max(1, Math.ceil(this.grid.rows * this.grid.cell) + 1));
    drawBlockMap(context, this);
    this._tell(state);
  }

  _tell(state) {
    const { counts, kinds } = this.pool;
    const used = counts.private + counts.shared;
    const words = `${grouped(used)} used, ${grouped(counts.shared)} shared, ${grouped(counts.cached)} free but cached, ${grouped(counts.empty)} empty of ${grouped(kinds.length)}`;
    setText(this.heading, `KV blocks: ${words}`);
    this.canvas.setAttribute("aria-label", `KV blocks after ${this.view.recording.nameOf(state.frame)}: ${words}`);
    const key = [state.selected, this.grid.perCell, state.byOwner].join();
    if (key !== this.legendKey) {
      this.legendKey = key;
      this.legend.replaceChildren(...blockLegend(state, this.grid));
    }
  }

  /** The first block of the cell at a point, or null. */
  blockAt(x, y) {
    const { cell, columns, cells, perCell } = this.grid;
    const column = Math.floor((x - this.left) / cell);
    const at = Math.floor(y / cell) * columns + column;
    return column < 0 || column >= columns || at < 0 || at >= cells ? null : at * perCell;
  }

  /** Selects the block's holder; with several, the next one each time. */
  click(x, y) {
    const block = this.blockAt(x, y);
    if (block === null) return;
    const holders = this.view.fold.at(this.view.state.frame).holders(block);
    const next = holders[(holders.indexOf(this.view.state.selected) + 1) % holders.length];
    this.view.set({ selected: next ?? null });
  }

  describe(x, y) {
    const block = this.blockAt(x, y);
    if (block === null) return null;
    if (this.grid.perCell > 1) return this._describeTile(block);
    const { kinds, changed } = this.pool;
    const state = this.view.fold.at(this.view.state.frame);
    const lines = [`block ${block}: ${{ empty: "empty", cached: "free, but its content is still cached", private: "private", shared: "shared" }[BLOCK_KINDS[kinds[block]]]}`];
    for (const id of state.holders(block).slice(0, 6)) lines.push(describeHold(this.view, id, state.tables.get(id).indexOf(block)));
    if (kinds[block] > 1 && state.findable[block]) lines.push("the prefix cache can find it");
    if (changed.has(block)) lines.push(`changed in ${this.view.recording.nameOf(this.view.state.frame)}`);
    return lines;
  }

  _describeTile(first) {
    const { kinds } = this.pool;
    const end = Math.min(first + this.grid.perCell, kinds.length);
    const counts = [0, 0, 0, 0];
    for (let block = first; block < end; block++) counts[kinds[block]] += 1;
    return [`blocks ${first}\u2013${end - 1}`, ...BLOCK_KINDS.map((kind, i) => `${counts[i]} ${kind}`).filter((_, i) => counts[i])];
  }
}

/** "sequence 3: its block 2, tokens 32-47". */
function describeHold({ recording }, id, logical) {
  const size = recording.meta.block_size;
  return `sequence ${id}: its block ${logical}, ${tokenRange(logical * size, size)}`;
}

/** Every block's state after a frame, by number in BLOCK_KINDS. */
function poolAt(recording, fold, { frame, selected }) {
  const state = fold.at(frame);
  const refCounts = state.refCounts();
  const kinds = refCounts.map((count, block) => (count > 1 ? 3 : count === 1 ? 2 : state.findable[block]));
  const owner = new Int32Array(kinds.length).fill(-1);
  for (const [id, table] of state.tables) for (const block of table) owner[block] = id;
  const chosen = new Set(state.tables.get(selected) ?? []);
  const counts = { empty: 0, cached: 0, private: 0, shared: 0 };
  for (const kind of kinds) counts[BLOCK_KINDS[kind]] += 1;
  return { refCounts, kinds, owner, chosen, counts, changed: new Set(recording.entries("changed", "block", frame)) };
}

function blockLegend({ selected, byOwner }, grid) {
  const entries = [["empty", "empty"], ["cached", "free but cached"], byOwner ? ["owners", "private, by owner"] : ["private", "private"], ["shared", "shared"]];
  if (selected !== null) entries.push(["chosen", `of sequence ${selected}`]);
  entries.push(["changed", "changed in this step"]);
  if (grid.perCell > 1) entries.push([null, `a tile is ${grid.perCell} blocks, filled from below by state`]);
  return entries.map(([mark, text]) => make("span", {}, mark ? make("i", { class: `ni-mark ni-${mark}` }) : null, text));
}
