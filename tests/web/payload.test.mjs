// Payloads are read as the page reads them, and say what tests/kit/payloads.py worked out from their traces.
import assert from "node:assert/strict";
import { test } from "node:test";

import { cases, load } from "./web.mjs";

const { traceOf } = await load("data.js");
const { Fold } = await load("fold.js");

for (const expected of cases) {
  test(expected.name, async () => {
    const trace = await traceOf(expected.payload);
    if (expected.whole) return saysTheSame(trace, await traceOf(expected.whole));
    assert.equal(trace.frames, expected.frames);
    for (const [frame, told] of Object.entries(expected.steps ?? {})) assert.deepEqual(stepOf(trace, Number(frame)), told, `step ${frame}`);
    foldsTo(trace, expected.states ?? {});
    if (expected.spans) assert.deepEqual(spansOf(trace), expected.spans);
    if (expected.rows) rowsCanBeReadOff(trace, expected);
    for (const [id, told] of Object.entries(expected.sequences ?? {})) assert.deepEqual(sequenceOf(trace, Number(id)), told);
    if (expected.marks) assert.deepEqual(trace.marks, expected.marks);
  });
}

const RECORDS = { preempted: ["victim", "on_behalf_of", "blocks", "tokens", "self"] };
const TOLD = ["phase", "stop", "decode_stop", "sentences"];
const COUNTED = ["prefill", "decode", "wasted", "offset", "headline"];

function stepOf(trace, frame) {
  const changed = trace.entries("changed", "block", frame).sort((a, b) => a - b);
  const columns = RECORDS.preempted.map((part) => trace.entries("preempted", part, frame));
  return {
    ...Object.fromEntries(TOLD.map((name) => [name, trace.words[name][frame]])),
    ...Object.fromEntries(COUNTED.map((name) => [name, trace.column[name][frame]])),
    arrived: trace.entries("arrived", "seq", frame),
    ended: trace.entries("ended", "seq", frame),
    changed,
    preempted: columns[0].map((_, i) => columns.map((column) => column[i])),
  };
}

function stateOf(trace, fold, frame) {
  const state = fold.at(frame);
  const refCounts = Array.from(state.refCounts());
  assert.equal(trace.column.used[frame], refCounts.filter((count) => count > 0).length, `blocks in use after ${frame}`);
  return {
    waiting: state.waiting,
    running: state.running,
    tables: Array.from(state.tables).sort(([a], [b]) => a - b),
    findable: Array.from(state.findable.keys()).filter((block) => state.findable[block]),
    refCounts,
  };
}

/** Forward, backward, and from anywhere to anywhere: 7919 has no divisor in common with any number of frames here. */
function foldsTo(trace, states) {
  const frames = Object.keys(states).map(Number);
  const fold = new Fold(trace);
  for (const frame of frames) assert.deepEqual(stateOf(trace, fold, frame), states[frame], `forward to ${frame}`);
  for (const frame of frames.toReversed()) assert.deepEqual(stateOf(trace, fold, frame), states[frame], `backward to ${frame}`);
  for (const i of frames.keys()) {
    const frame = frames[(i * 7919) % frames.length];
    assert.deepEqual(stateOf(trace, fold, frame), states[frame], `from anywhere to ${frame}`);
  }
}

const spansOf = ({ bars }) =>
  Array.from(bars.seq, (_, i) => bars.at(i))
    .sort((a, b) => a.seq - b.seq || a.start - b.start || bars.kinds.indexOf(a.kind) - bars.kinds.indexOf(b.kind))
    .map((bar) => [bar.seq, bar.kind, bar.start, bar.end - bar.start, bar.tokens]);

/** Every row of every step stands in a bar that covers it, and no bar says more. */
function rowsCanBeReadOff(trace, { rows, states }) {
  const { bars } = trace;
  for (const [step, id, computed, scheduled, chunk, chunks, token, wasted] of rows) {
    const kind = wasted ? "wasted" : chunk ? "prefill" : "decode";
    const found = bars.covering(id, step).filter((bar) => bar.kind === kind);
    assert.equal(found.length, 1, `one ${kind} of ${id} in step ${step}`);
    const bar = found[0];
    assert.deepEqual([bar.computed + (chunk ? 0 : step - bar.start), chunk ? bar.tokens : 1, bar.chunk, bar.chunks], [computed, scheduled, chunk, chunks]);
    if (token !== null) {
      const { sampleIds, sampleFirst } = trace.sequence(id);
      assert.equal(sampleIds[computed + scheduled - sampleFirst], token, `the token of ${id} in step ${step}`);
    }
    if (!wasted && states[step]?.tables.some(([holder]) => holder === id)) {
      assert.equal(bars.written(id, step), computed + scheduled, `tokens of ${id} in the cache after step ${step}`);
    }
  }
  const covered = spansOf(trace).map(([, kind, , length]) => (kind === "prefill" ? 1 : kind === "decode" || kind === "wasted" ? length : 0));
  assert.equal(covered.reduce((sum, length) => sum + length, 0), rows.length);
}

function sequenceOf(trace, id) {
  const { promptIds, sampleIds, ...told } = trace.sequence(id);
  return { ...told, promptIds: Array.from(promptIds), sampleIds: Array.from(sampleIds) };
}

function saysTheSame(trace, whole) {
  assert.equal(trace.frames, whole.frames);
  for (const name of ["column", "end", "words", "marks", "sequences"]) assert.deepEqual(plain(trace[name]), plain(whole[name]), name);
  assert.deepEqual(spansOf(trace), spansOf(whole));
  const [grown, known] = [new Fold(trace), new Fold(whole)];
  for (let frame = 0; frame < whole.frames; frame++) assert.deepEqual(stateOf(trace, grown, frame), stateOf(whole, known, frame), `frame ${frame}`);
}

/** Without the width of the numbers, which depends on what else is in a chunk. */
const plain = (value) => JSON.parse(JSON.stringify(value instanceof Map ? Array.from(value) : value));
