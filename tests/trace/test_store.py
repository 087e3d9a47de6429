"""Traces as files: exact round trips, and clear refusals of what is no whole trace of this version."""

import gzip
import json

import pytest
from kit.helpers import limits, params, prompt
from kit.workloads import drive

from nanoinfer import SamplingParams, Trace, simulate
from nanoinfer.trace.events import SCHEMA_VERSION

SUFFIXES = [".jsonl", ".jsonl.gz"]


@pytest.fixture
def trace():
    """A run with preemptions, chunks and hits."""
    shared = prompt(8)
    return simulate([[*shared, 1], [*shared, 2], prompt(9, 3)], params(6), arrivals=[0, 1, 1], **limits(4, 6, B=7))


def read(path):
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        return file.read()


def write(path, text):
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wt", encoding="utf-8") as file:
        file.write(text)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_round_trip_is_exact_on_random_traces(tmp_path, suffix):
    """Header, requests, events, steps, outputs, and everything folded from them."""
    path = tmp_path / f"trace{suffix}"
    for seed in range(60):
        original, states = drive(seed, trouble=0.05 * (seed % 2))
        original.save(path)
        loaded = Trace.load(path)
        assert loaded == original
        assert vars(loaded.header) == vars(original.header)
        assert loaded.requests == original.requests
        assert loaded.outputs == original.outputs
        assert loaded.events == original.events
        assert [type(event) for event in loaded.events[:1]] == [type(event) for event in original.events[:1]]
        for i, expected in enumerate(states):
            assert vars(loaded.state(i)) == expected
            assert loaded.steps[i].rows == original.steps[i].rows
            assert (loaded.steps[i].stop, loaded.steps[i].timing) == (original.steps[i].stop, original.steps[i].timing)
        again = tmp_path / "again" / path.name
        again.parent.mkdir(exist_ok=True)
        loaded.save(again)
        assert again.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_a_loaded_trace_says_is_what_the_original_says(tmp_path, trace, suffix):
    trace.save(tmp_path / f"t{suffix}")
    loaded = Trace.load(str(tmp_path / f"t{suffix}"))
    assert loaded.metrics() == trace.metrics()
    assert [loaded.explain(i) for i in range(len(trace.steps))] == [trace.explain(i) for i in range(len(trace.steps))]
    for name, frame in trace.to_pandas().items():
        assert loaded.to_pandas()[name].equals(frame), name


def test_odd_values_survive_a_round_trip(tmp_path):
    """Chunks are tuples again, seeds None, 64-bit hashes exact, floats bit for bit, a trace without steps too."""
    trace = simulate(
        [prompt(9), [2**62, 0, 2**63 - 1]],
        SamplingParams(max_tokens=3, stop_token_ids=[7], seed=None),
        cost_model=lambda plan: 0.1 + 0.2 * len(plan.rows),
        eos=(5, 6),
        **limits(4, 8, B=4),
    )
    trace.outputs[0]["text"] = 'Grüße \ud800\u2028 "quoted" \n'
    trace.save(tmp_path / "t.jsonl")
    loaded = Trace.load(tmp_path / "t.jsonl")
    assert loaded == trace
    assert isinstance(loaded.steps[0].rows[0].chunk, tuple)
    assert loaded.outputs[0]["text"] == trace.outputs[0]["text"]
    empty = simulate([])
    empty.save(tmp_path / "e.jsonl")
    assert Trace.load(tmp_path / "e.jsonl") == empty
    assert empty.steps == empty.outputs == []


def test_a_file_is_strict_json_lines_with_its_version_first(tmp_path, trace):
    path = tmp_path / "t.jsonl"
    trace.save(path)
    lines = read(path).splitlines()

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    parsed = [json.loads(line, parse_constant=refuse) for line in lines]
    assert parsed[0]["schema_version"] == SCHEMA_VERSION
    assert all(isinstance(line, dict) and "type" in line for line in parsed)


def test_the_compressed_form_is_compressed_and_reproducible(tmp_path, trace):
    for name in ("a.jsonl", "b.jsonl.gz", "c.jsonl.gz"):
        trace.save(tmp_path / name)
    plain, first, second = ((tmp_path / name).read_bytes() for name in ("a.jsonl", "b.jsonl.gz", "c.jsonl.gz"))
    assert len(first) < len(plain) / 2
    assert gzip.decompress(first) == plain
    assert gzip.decompress(second) == plain
    assert first[20:] == second[20:], "only the name in the head may differ"


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_truncated_file_is_refused_wherever_it_was_cut(tmp_path, trace, suffix):
    """At every byte near the ends, and at many between; only the very last line break may be missing."""
    whole = tmp_path / f"whole{suffix}"
    trace.save(whole)
    data = whole.read_bytes()
    cut = tmp_path / f"cut{suffix}"
    ends = len(data) - (1 if suffix == ".jsonl" else 0)
    line_ends = [i + 1 for i, byte in enumerate(data) if byte == 10] if suffix == ".jsonl" else []
    for size in {*range(60), *range(60, ends, 37), *line_ends[:-1], *range(ends - 60, ends)}:
        cut.write_bytes(data[:size])
        with pytest.raises(ValueError, match="cut"):
            Trace.load(cut)
    cut.write_bytes(data[:ends])
    assert Trace.load(cut) == trace


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_newer_schema_version_is_refused_with_both_versions(tmp_path, trace, suffix):
    path = tmp_path / f"t{suffix}"
    trace.save(path)
    head, rest = read(path).split("\n", 1)
    newer = json.loads(head) | {"schema_version": SCHEMA_VERSION + 1}
    write(path, json.dumps(newer) + "\n" + rest)
    with pytest.raises(ValueError, match=rf"version {SCHEMA_VERSION + 1}.*newer than {SCHEMA_VERSION}"):
        Trace.load(path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"hello\n",
        b"{}\n",
        b"[]\n",
        b"null\n",
        b"3\n",
        b'"nanoinfer-trace"\n',
        b'{"traceEvents": []}\n',
        b"\x00\xff\xfe\x80 binary \x9c",
        b"\x1f\x8b\x08\x00garbage",
        b'{"format": "nanoinfer-trace"}\n',
        b'{"format": "nanoinfer-trace", "schema_version": "x"}\n',
        b'{"format": "nanoinfer-trace", "schema_version": null}\n',
        b'{"format": "nanoinfer-trace", "schema_version": 1}\n',
        b"[" * 100_000,
    ],
    ids=lambda content: repr(content[:30]),
)
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_that_is_no_trace_is_a_value_error_that_names_it(tmp_path, content, suffix):
    for packed in (content, gzip.compress(content)):
        path = tmp_path / f"garbage{suffix}"
        path.write_bytes(packed)
        with pytest.raises(ValueError, match="garbage"):
            Trace.load(path)


def test_a_flipped_bit_in_a_compressed_trace_is_a_value_error(tmp_path, trace):
    """Unless it hits a bit that says nothing, such as one of the date or of the padding."""
    path = tmp_path / "t.jsonl.gz"
    trace.save(path)
    data = bytearray(path.read_bytes())
    refused = []
    for i in range(20, len(data), 11):
        damaged = bytearray(data)
        damaged[i] ^= 0x10
        path.write_bytes(damaged)
        try:
            loaded = Trace.load(path)
        except ValueError as error:
            refused.append(str(error))
        else:
            assert loaded == trace
    assert len(refused) > 100
    assert all("t.jsonl.gz" in message for message in refused)


def test_a_missing_line_is_noticed(tmp_path, trace):
    """Each line but the first, one at a time."""
    path = tmp_path / "t.jsonl"
    trace.save(path)
    lines = read(path).splitlines(keepends=True)
    for i in range(len(lines)):
        write(path, "".join(lines[:i] + lines[i + 1 :]))
        with pytest.raises(ValueError, match=r"t\.jsonl"):
            Trace.load(path)


def test_a_line_that_lacks_a_field_is_a_value_error(tmp_path, trace):
    """Each field of each kind of line, one at a time, except those that have a default."""
    path = tmp_path / "t.jsonl"
    trace.save(path)
    lines = [json.loads(line) for line in read(path).splitlines()]
    optional = {("step", "preempted"), ("request", "prompt")}
    for kind in ("header", "request", "step", "outputs", "end"):
        i = next(i for i, line in enumerate(lines) if line["type"] == kind)
        for name in lines[i]:
            if (kind, name) in optional:
                continue
            damaged = [{k: v for k, v in line.items() if (j, k) != (i, name)} for j, line in enumerate(lines)]
            if damaged[i].get("type", "header") == "header" and name == "type":
                continue  # the first line is known by its format
            write(path, "\n".join(map(json.dumps, damaged)) + "\n")
            with pytest.raises(ValueError, match=r"t\.jsonl"):
                Trace.load(path)


def test_a_missing_file_is_a_file_not_found_error(tmp_path):
    for name in ("no.jsonl", "no.jsonl.gz"):
        with pytest.raises(FileNotFoundError):
            Trace.load(tmp_path / name)


def test_saving_again_replaces_a_longer_file(tmp_path, trace):
    path = tmp_path / "t.jsonl"
    trace.save(path)
    short = simulate([prompt(2)], params(1), **limits(4, 4))
    short.save(path)
    assert Trace.load(path) == short


def test_a_trace_that_is_still_recorded_can_be_saved(tmp_path):
    def on_step(trace, i):
        trace.save(tmp_path / "t.jsonl")
        loaded = Trace.load(tmp_path / "t.jsonl")
        assert (len(loaded.steps), loaded.state(i)) == (i + 1, trace.state(i))

    simulate([prompt(9), prompt(3, 1)], params(3), on_step=on_step, **limits(4, 8))
