// A trace of many steps is shown in frames of several: what a frame sums up, nothing of it is lost.
import assert from "node:assert/strict";
import { test } from "node:test";

import { cases, load } from "./web.mjs";

const { traceOf } = await load("data.js");
const trace = await traceOf(cases.payload);

test("a bucket shows its fullest step and all its preemptions", { skip: !cases.buckets }, () => {
  assert.equal(trace.frames, cases.buckets.length);
  for (const [frame, { batched, preempted, words }] of cases.buckets.entries()) {
    const shown = trace.column.prefill[frame] + trace.column.decode[frame];
    assert.equal(shown, Math.max(...batched));
    assert.equal(batched[trace.column.offset[frame]], shown);
    assert.equal(trace.entries("preempted", "victim", frame).length, preempted);
    assert.equal(trace.headline(frame), words);
    assert.equal(trace.firstStep(frame) + batched.length - 1, trace.lastStep(frame));
  }
});

test("no bar is lost", { skip: !cases.spans }, () => {
  const { bars } = trace;
  for (const [id, kind, start, end] of cases.spans) {
    for (let frame = trace.frameOf(start); frame <= trace.frameOf(end - 1); frame++) {
      assert.ok(bars.covering(id, frame).some((bar) => bar.kind === kind), `${kind} of ${id} in frame ${frame}`);
    }
  }
  const preempted = Array.from(bars.seq, (_, i) => bars.at(i)).filter((bar) => bar.kind === "preempted");
  const spans = cases.spans.filter(([, kind]) => kind === "preempted");
  assert.equal(preempted.reduce((sum, bar) => sum + bar.spans, 0), spans.length);
});
