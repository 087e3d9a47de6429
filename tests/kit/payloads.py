"""A second reader of the explorer's payload, written from its description alone and as plainly as possible."""

import base64
import gzip
import json
import struct
from dataclasses import dataclass, field

FORMATS = {"u1": "B", "i1": "b", "u2": "H", "i2": "h", "i4": "i", "f8": "d"}


def columns_of(chunk):
    """Every column of a chunk by name, as lists or as the JSON it was."""
    buffer = gzip.decompress(base64.b64decode(chunk["data"]))
    found = {}
    for name, kind, offset, length in chunk["layout"]:
        data = buffer[offset : offset + length]
        if kind == "json":
            found[name] = json.loads(data.decode("utf-8"))
        else:
            found[name] = [value for (value,) in struct.iter_unpack(f"<{FORMATS[kind]}", data)]
    return found


def types_of(chunk):
    return {name: kind for name, kind, _, _ in chunk["layout"]}


def ragged(columns, name, *parts):
    """For each frame the list of its entries, each a tuple of `parts`."""
    entries = list(zip(*(columns[f"{name}_{part}"] for part in parts), strict=True))
    frames, start = [], 0
    for count in columns[f"{name}_count"]:
        frames.append(entries[start : start + int(count)])
        start += int(count)
    assert start == len(entries)
    return frames


@dataclass
class State:
    """What the explorer shows after a frame."""

    waiting: list
    running: list
    tables: dict
    findable: set
    used: int = 0

    def copy(self):
        tables = {seq_id: list(table) for seq_id, table in self.tables.items()}
        return State(list(self.waiting), list(self.running), tables, set(self.findable), self.used)


@dataclass
class Unpacked:
    """A whole payload: states by frame, and the columns of its chunks joined."""

    meta: dict
    states: list = field(default_factory=list)
    bars: list = field(default_factory=list)
    frames: list = field(default_factory=list)  # per frame: phase, stop, decode_stop, sentence, tokens
    arrived: list = field(default_factory=list)
    ended: list = field(default_factory=list)
    changed: list = field(default_factory=list)
    preempted: list = field(default_factory=list)
    marks: dict = field(default_factory=dict)
    samples: dict = field(default_factory=dict)
    sequences: dict = field(default_factory=dict)


def unpack(payload):
    assert payload["format"] == 1
    payload = json.loads(json.dumps(payload))  # JSON-safe, and nothing lost by it
    initial = payload["meta"]["initial"]
    tables = dict(initial["tables"])
    state = State(initial["waiting"], initial["running"], tables, set(initial["findable"]))
    result = Unpacked(payload["meta"])
    for chunk in payload["chunks"]:
        columns = columns_of(chunk)
        _bars(result, chunk, columns)
        _facts(result, columns)
        _samples(result, columns)
        for frame in _states(state, columns):
            result.states.append(frame)
        assert len(result.states) == len(result.frames) == chunk["end"]
    return result


def _states(state, columns):
    blocks = iter(columns["table_block"])
    queue_edits = ragged(columns, "queue", "which", "position", "seq")
    table_edits = ragged(columns, "table", "seq", "keep", "more")
    findable = ragged(columns, "findable", "block")
    for frame, used in enumerate(columns["used"]):
        for which, position, seq_id in queue_edits[frame]:
            queue = state.running if which else state.waiting
            if position == -1:
                queue.remove(seq_id)
            else:
                queue.insert(position, seq_id)
        for seq_id, keep, more in table_edits[frame]:
            table = state.tables.get(seq_id, [])[:keep] + [next(blocks) for _ in range(more)]
            state.tables.pop(seq_id, None)
            if table:
                state.tables[seq_id] = table
        for (block,) in findable[frame]:
            if block < 0:
                state.findable.remove(~block)
            else:
                state.findable.add(block)
        state.used = used
        yield state.copy()


def _facts(result, c):
    named = [[c[f"{name}_table"][i] for i in c[name]] for name in ("phase", "stop", "decode_stop")]
    result.frames += list(zip(*named, c["sentences"], c["prefill"], c["decode"], c["wasted"], c["offset"], strict=True))
    result.arrived += [[seq_id for (seq_id,) in entries] for entries in ragged(c, "arrived", "seq")]
    result.changed += [{block for (block,) in entries} for entries in ragged(c, "changed", "block")]
    result.ended += ragged(c, "ended", "seq", "reason")
    result.preempted += ragged(c, "preempted", "victim", "on_behalf_of", "blocks", "tokens", "self")
    for name, frames in c["marks"].items():
        result.marks.setdefault(name, []).extend(frames)


def _bars(result, chunk, c):
    parts = ("seq", "kind", "start", "length", "tokens", "computed", "chunk", "chunks", "spans")
    result.bars = [bar for bar in result.bars if bar[2] + bar[3] < chunk["start"]]
    result.bars += list(zip(*(c[f"bar_{part}"] for part in parts), strict=True))
    result.bars.sort()


def _samples(result, c):
    for told in c["sequences"]:
        result.sequences[told["id"]] = told
    start = 0
    for i, seq_id in enumerate(c["sample_seq"]):
        end = start + c["sample_count"][i]
        first, known = result.samples.get(seq_id, (c["sample_first"][i], []))
        result.samples[seq_id] = (first, known + c["sample_ids"][start:end])
        start = end
