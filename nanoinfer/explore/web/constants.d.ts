// What Python puts into `constants.js`: see `constants` in nanoinfer/explore/page.py, and nanoinfer/viz/rules.py.

export interface Palette {
  background: string;
  surface: string;
  ink: string;
  muted: string;
  hairline: string;
  waiting: string;
  prefill: string;
  decode: string;
  preempted: string;
  finished: string;
  empty: string;
  cached: string;
  private: string;
  shared: string;
  selected: string;
}
export type BlockKind = "empty" | "cached" | "private" | "shared";
export type SequenceKind = "waiting" | "decode" | "prefill" | "hit" | "preempted" | "wasted" | "finished";

export const PALETTES: { light: Palette; dark: Palette };
export const OWNERS: string[];
export const INKS: { [fill: string]: string };
export const CSS: string;
export const DRAW_ORDER: SequenceKind[];
export const HEIGHTS: { [kind in SequenceKind]: number };
export const HIT_SHARE: number;
export const SEQUENCE_LEGEND: [SequenceKind, string][];
export const WASTED_LEGEND: [SequenceKind, string];
export const BLOCK_KINDS: BlockKind[];
export const BLOCK_LEGEND: [BlockKind | "changed", string][];
export const MOST_CELLS: number;
export const MOST_TILES: number;
export const MOST_OWNED: number;
export const GRID_COLUMNS: number;
export const GRID_FEW: number;
export const GRID_WIDTH: [number, number];
