// What is looked at, and where it is in a picture.
import assert from "node:assert/strict";
import { test } from "node:test";

import { cases, load } from "./web.mjs";

globalThis.window = globalThis;
globalThis.requestAnimationFrame = (draw) => draws.push(draw);
globalThis.cancelAnimationFrame = () => {};
const draws = [];

const { isZoomed, panned, Scale, View, zoomed } = await load("view.js");
const { traceOf } = await load("data.js");
const trace = await traceOf(cases.payload);
const { frames } = trace;
const viewOf = (atLeast = 1) => new View(trace, null, { clientWidth: 100 }, atLeast);

test("the window is the whole run, or the room that a short run has", () => {
  assert.deepEqual([viewOf().state.from, viewOf().state.to], [0, frames]);
  assert.equal(viewOf(frames + 5).state.to, frames + 5);
  assert.equal(isZoomed(viewOf()), false);
});

test("zooming keeps a frame where it is, inside the run, and eight frames at least", () => {
  const view = viewOf();
  const center = frames / 4;
  const near = zoomed(view, 0.5, center);
  assert.equal(near.to - near.from, frames / 2);
  assert.equal((center - near.from) / (near.to - near.from), center / frames);
  assert.deepEqual(zoomed(view, 1e-9, 0.5), { from: zoomed(view, 1e-9, 0.5).from, to: zoomed(view, 1e-9, 0.5).from + 8 });
  view.set(near);
  assert.equal(isZoomed(view), true);
  assert.deepEqual(zoomed(view, Infinity, 3), { from: 0, to: frames });
  assert.deepEqual(panned(view, 1e9), { from: frames / 2, to: frames });
  assert.deepEqual(panned(view, -1e9), { from: 0, to: frames / 2 });
});

test("a cursor that leaves the window takes it along by as little as will do", () => {
  const view = viewOf();
  view.set({ from: 10, to: 20 });
  view.set({ frame: 25 });
  assert.deepEqual([view.state.from, view.state.to], [16, 26]);
  view.set({ frame: 3 });
  assert.deepEqual([view.state.from, view.state.to], [3, 13]);
});

test("the cursor stays inside the run", () => {
  const view = viewOf();
  for (const [asked, frame] of [[-Infinity, 0], [Infinity, frames - 1], [2.6, 3]]) {
    view.set({ frame: asked });
    assert.equal(view.state.frame, frame);
  }
});

test("a second choice of the same sequence clears it, and changes of one frame are drawn once", () => {
  const view = viewOf();
  const drawn = [];
  draws.length = 0;
  view.onDraw(({ selected }) => drawn.push(selected));
  for (const id of [2, 3, 3]) view.select(id);
  assert.equal(view.state.selected, null);
  assert.equal(draws.length, 1);
  draws[0]();
  assert.deepEqual(drawn, [null]);
});

test("frames to pixels and back", () => {
  const scale = new Scale(62 + 14 + 400, 10, 30);
  assert.deepEqual([scale.x(10), scale.x(30), scale.step], [62, 462, 20]);
  assert.equal(scale.frame(scale.x(17.25)), 17.25);
  assert.equal(scale.hit(scale.x(12) + 1, 100), 12);
  assert.equal(scale.hit(scale.x(29) + 1, 25), 24);
  assert.deepEqual([scale.hit(59, 100), scale.hit(465, 100)], [null, null]);
});
