// What the modules hand each other. The payload is written by nanoinfer/explore/pack.py, the status by live.py.

import { StepLock, TimeLock } from "./comparelock.js";
import { BlockKind, Palette, SequenceKind } from "./constants.js";
import { blockGrid, poolAt } from "./pool.js";

export type { BlockKind, Palette, SequenceKind };
export type { Bars } from "./bars.js";
export type { BlockMap } from "./blocks.js";
export type { StepLock, TimeLock } from "./comparelock.js";
export type { Pair, SideView } from "./comparepair.js";
export type { Trace } from "./data.js";
export type { EngineState, Fold } from "./fold.js";
export type { SequencePanel } from "./sequence.js";
export type { Timeline } from "./timeline.js";
export type { Tooltip } from "./dom.js";
export type { Player } from "./transport.js";
export type { Scale, View } from "./view.js";

// ---- from Python ----------------------------------------------------------------------------------

export interface Chunk {
  start: number;
  end: number;
  steps: number;
  layout: [name: string, type: string, offset: number, bytes: number][];
  data: string;
}
/** The columns of a chunk: numbers as typed arrays, the rest as the JSON it was. */
export type Columns = { [name: string]: any };
export type Numbers = Int32Array | Float64Array;

export interface Meta {
  num_blocks: number;
  block_size: number;
  budget: number;
  policy: string;
  overlap: boolean;
  model: string;
  steps_per_frame: number;
  bar_kinds: SequenceKind[];
  initial: { waiting: number[]; running: number[]; tables: [number, number[]][]; findable: number[] };
  tour: { step: number; select: number | null; caption: string }[];
}
export interface Payload {
  format: number;
  meta: Meta;
  chunks: Chunk[];
}
export interface Difference {
  step: number | null;
  frame: number | null;
  text: string;
}
export interface Figure {
  name: string;
  unit: string;
  a: string;
  b: string;
  ratio: string;
  more: boolean;
}
export interface Comparison {
  sides: { name: string; trace: Payload }[];
  clock: Chunk;
  ends: number[];
  unit: string | null;
  difference: Difference;
  metrics: Figure[];
}
export interface LiveSequence {
  id: number;
  status: "waiting" | "prefill" | "decode" | "preempted" | "finished" | "aborted";
  reason: string | null;
  alive: boolean;
  tokens: number;
  max_tokens: number | null;
  prompt: string;
  text: string;
}
export interface Candidate {
  token_id: number;
  text: string;
  probability: number;
  sampled: boolean;
}
export interface Status {
  sequences: LiveSequence[];
  hidden: number;
  selected: LiveSequence | null;
  candidates: { rows: Candidate[]; note: string };
  newest: number;
  attached: boolean;
  running: boolean;
  idle: boolean;
  note: string;
  failed: boolean;
  accepted: { count: number; prompt: string };
}

// ---- in the page ----------------------------------------------------------------------------------

/** What anywidget hands to `render`: a model, and the element to draw into. */
export interface Mount {
  model: Model;
  el: HTMLElement;
}
/** What anywidget's model offers. */
export interface Model {
  get(key: string): any;
  set(key: string, value: any): void;
  save_changes(): void;
  on(name: string, handler: (message?: any) => void): void;
  off(name: string, handler: (message?: any) => void): void;
  send?(message: object): void;
}
export type Grid = ReturnType<typeof blockGrid>;
export type Pool = ReturnType<typeof poolAt>;
export type ThemeName = "light" | "dark";
export type Order = "arrival" | "finish" | "preemptions";
export type Jump = "preemption" | "hit" | "refusal";
export type Marks = { [jump in Jump]: number[] };

/** What a slider moves over: frames of a trace, or what two traces have in common. */
export interface Track {
  readonly frames: number;
  readonly size: number;
  readonly marks: Marks;
  readonly label: string;
  /** Where the slider stands: "step 3 / 40". */
  progress(position: number): string;
}
/** What controls show and change. */
export interface Shown {
  /** The cursor, a position on the track. */
  frame: number;
  selected: number | null;
  sort: Order;
  /** Only rows of sequences that are alive at the cursor. */
  activeOnly: boolean;
  /** The step as a table. */
  table: boolean;
  playing: boolean;
  /** Frames a second. */
  speed: number;
  theme: ThemeName;
}
/** What controls move: one view, or a pair of them. */
export interface Movable<State extends Shown = Shown> {
  readonly state: State;
  readonly track: Track;
  set(change: Partial<Shown>): void;
  zoom(factor: number): void;
  inWords(): string;
  repaint(): void;
  onDraw(draw: (state: State) => void): void;
}
export interface ViewState extends Shown {
  /** The zoom window: its first frame, and the first one behind it. */
  from: number;
  to: number;
  /** Blocks coloured by sequence. */
  byOwner: boolean;
  /** Place in the tour. */
  bookmark: number;
}
export interface PairState extends Shown {
  lock: "step" | "time";
}
export type Locks = { step: StepLock; time: TimeLock | null };
/** Where one side of a comparison stands. */
export interface Place {
  frame: number;
  status: "on" | "ended" | "early";
}
export interface Sequence {
  id: number;
  prompt_tokens: number;
  prompt?: string | null;
  output?: string | null;
  promptIds: ArrayLike<number>;
  sampleIds: Numbers;
  sampleFirst: number;
  samples: number;
}
/** One sequence in one state during frames `start` to `end - 1`. */
export interface Bar {
  seq: number;
  kind: SequenceKind;
  start: number;
  end: number;
  tokens: number;
  computed: number;
  chunk: number;
  chunks: number;
  spans: number;
}
/** What a sequence is listed by. */
export interface Summary {
  id: number;
  first: number;
  last: number;
  finish: number;
  preemptions: number;
}
/** An element's attributes and listeners (`onclick: f`): `text` sets its text, `false` and `null` leave one out. */
export type Attributes = { [name: string]: any };
export type Children = (Node | string | null)[];
export type TextStyle = { color: string; size?: number; align?: CanvasTextAlign; weight?: string };
export type Context = CanvasRenderingContext2D;
export type Box = [x: number, y: number, width: number, height: number];
/** Takes a listener or a drawing away again. */
export type Stop = () => void;
