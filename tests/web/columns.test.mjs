// Columns of numbers hold what Python put into them.
import assert from "node:assert/strict";
import { test } from "node:test";

import { cases, load } from "./web.mjs";

const { joined, unpack } = await load("columns.js");

for (const { chunk, columns } of cases) {
  test(`columns ${Object.keys(columns).join(", ")}`, async () => {
    const unpacked = await unpack(chunk);
    const numbers = Object.entries(unpacked).map(([name, column]) => [name, Array.from(column)]);
    assert.deepEqual(Object.fromEntries(numbers), columns);
  });
}

test("columns are joined in numbers wide enough for both", () => {
  assert.deepEqual(joined([1, 2], Uint8Array.of(255)), Int32Array.of(1, 2, 255));
  assert.deepEqual(joined(Int8Array.of(-1), Float64Array.of(2 ** 40)), Float64Array.of(-1, 2 ** 40));
});
