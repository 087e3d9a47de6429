// ---- columns.js: typed columns out of a chunk, as nanoinfer/explore/columns.py packed them --------

/** @import { Chunk, Columns, Numbers } from "./types.js" */

/** @type {{ [type: string]: { new (buffer: ArrayBuffer, offset: number, length: number): ArrayLike<number>, BYTES_PER_ELEMENT: number } }} */
const ITEM_TYPES = { u1: Uint8Array, i1: Int8Array, u2: Uint16Array, i2: Int16Array, i4: Int32Array, f8: Float64Array };

/** The columns of one chunk. @param {Pick<Chunk, "layout" | "data">} chunk @returns {Promise<Columns>} */
export async function unpack(chunk) {
  const zipped = Uint8Array.from(atob(chunk.data), (character) => character.charCodeAt(0));
  const stream = new Blob([zipped]).stream().pipeThrough(new DecompressionStream("gzip"));
  const buffer = await new Response(stream).arrayBuffer();
  const columns = /** @type {Columns} */ ({});
  for (const [name, type, offset, length] of chunk.layout) {
    columns[name] =
      type === "json"
        ? JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, offset, length)))
        : new ITEM_TYPES[type](buffer, offset, length / ITEM_TYPES[type].BYTES_PER_ELEMENT);
  }
  return columns;
}

/** `a` and `b` one after the other, in numbers wide enough for both. @param {ArrayLike<number>} a @param {ArrayLike<number>} b @returns {Numbers} */
export function joined(a, b) {
  const wide = a instanceof Float64Array || b instanceof Float64Array ? Float64Array : Int32Array;
  const result = new wide(a.length + b.length);
  result.set(a);
  result.set(b, a.length);
  return result;
}
