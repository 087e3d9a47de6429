// The explorer's modules and the cases of a test, from the folder that tests/kit/node.py wrote.
import { readFileSync } from "node:fs";

const folder = process.env.NANOINFER_WEB;

/** A module of nanoinfer/explore/web/. */
export const load = (name) => import(`${folder}/${name}`);
export const cases = JSON.parse(readFileSync(`${folder}/cases.json`, "utf-8"));
