// The rules of single parts: rows of the timeline, cells of the block map, locks of a comparison, words.
import assert from "node:assert/strict";
import { test } from "node:test";

import { cases, load } from "./web.mjs";

const { StepLock, TimeLock } = await load("comparelock.js");
const { counted, every, grouped } = await load("dom.js");
const { traceOf } = await load("data.js");
const { Fold } = await load("fold.js");
const { blockGrid, poolAt } = await load("pool.js");
const { isAlive, Rows } = await load("rows.js");
const { describeBars } = await load("timeline.js");
const trace = await traceOf(cases.payload);
const short = await traceOf(cases.short);

test("rows are sorted as asked, and only those alive are listed if asked", () => {
  const rows = new Rows({ trace });
  const state = { sort: "arrival", activeOnly: false, frame: 20 };
  for (const [sort, key] of Object.entries({ arrival: "first", finish: "finish", preemptions: "preemptions" })) {
    rows.update({ ...state, sort });
    const sign = sort === "preemptions" ? -1 : 1;
    const keys = rows.listed.map((summary) => [sign * summary[key], summary.id]);
    assert.deepEqual(keys, keys.toSorted(([a, i], [b, j]) => a - b || i - j), sort);
    assert.equal(keys.length, cases.sequences);
  }
  rows.update({ ...state, activeOnly: true });
  assert.deepEqual(rows.ids, cases.alive);
  assert.ok(rows.listed.every((summary) => isAlive(summary, 20)));
  assert.ok(rows.room >= rows.height * rows.mostAlive);
});

test("the block map has the grid of the picture where there is room for it", () => {
  for (const [blocks, perCell, columns] of cases.grids) {
    const grid = blockGrid(blocks, 40 * columns);
    assert.deepEqual([grid.perCell, grid.cells], [perCell, Math.ceil(blocks / perCell)], `${blocks} blocks`);
    if (grid.rows * 40 <= 430) assert.equal(grid.columns, columns, `${blocks} blocks`);
    assert.equal(grid.rows, Math.ceil(grid.cells / grid.columns));
  }
});

test("labels are as far apart as in the pictures", () => {
  for (const [spacing, least, step] of cases.labels) assert.equal(every(spacing, least), step, `${spacing} ${least}`);
  assert.equal(every(0, 10), Infinity);
});

test("blocks are counted by state", () => {
  for (const [frame, counts] of cases.pools.entries()) assert.deepEqual(poolAt(trace, new Fold(trace), { frame, selected: null }).counts, counts);
});

test("the step lock holds both sides at one step and says who has ended", () => {
  const lock = new StepLock([trace, short]);
  assert.equal(lock.frames, trace.frames);
  assert.deepEqual(lock.placeOf(0, 30), { frame: 30, status: "on" });
  assert.deepEqual(lock.placeOf(1, short.frames - 1), { frame: short.frames - 1, status: "on" });
  assert.deepEqual(lock.placeOf(1, short.frames), { frame: short.frames - 1, status: "ended" });
  assert.equal(lock.progress(3), `step 3 / ${trace.steps - 1}`);
});

test("the time lock visits every moment at which a step of either side starts", () => {
  const lock = new TimeLock([trace, short], [Float64Array.of(0, 1, 2.5), Float64Array.of(0.5, 1, 9)], [3, 12], "seconds");
  assert.deepEqual(Array.from(lock.times), [0, 0.5, 1, 2.5, 9]);
  assert.deepEqual([0, 1, 2, 3, 4].map((position) => lock.placeOf(0, position).frame), [0, 0, 1, 2, 2]);
  assert.deepEqual(lock.placeOf(1, 0), { frame: 0, status: "early" });
  assert.deepEqual(lock.placeOf(1, 3), { frame: 1, status: "on" });
  assert.deepEqual(lock.placeOf(0, 4), { frame: 2, status: "ended" });
  assert.equal(lock.positionOf(1, 1), 2);
  assert.equal(lock.progress(3), "2.500 s / 12.000 s");
});

test("frames and numbers in words", () => {
  assert.deepEqual([grouped(9999), grouped(1234567)], ["9999", "1,234,567"]);
  assert.deepEqual([counted(1, "step"), counted(0, "step")], ["1 step", "0 steps"]);
  assert.equal(trace.nameOfRange(3, 3), "step 3");
  assert.equal(trace.nameOfRange(3, 5), "steps 3\u20135");
});

test("a bar in words", () => {
  for (const [id, frame, words] of cases.words) assert.ok(describeBars(trace, id, frame).includes(words), `${id} in ${frame}`);
});

test("every frame has a headline among its sentences", () => {
  assert.deepEqual(Array.from({ length: trace.frames }, (_, frame) => trace.headline(frame)), cases.headlines);
});
