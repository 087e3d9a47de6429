"""What the core asks of a reader, held below its limits; and that the scripts count what they say they count."""

import ast
import json
from pathlib import Path

import pytest

TREE = Path(__file__).parents[2]


@pytest.fixture
def reading(load):
    return load("benchmarks/reading_the_core")


@pytest.fixture
def core(load):
    return load("benchmarks/measure_core")


@pytest.fixture
def packages(load):
    return load("benchmarks/lines_by_package")


# ---- this tree ----------------------------------------------------------------------------


def test_the_scheduler_can_be_read_in_an_evening(reading):
    listing = reading.listing_of(TREE)
    assert reading.excesses(listing) == [], "\n".join(reading.details(listing))


# ---- measure_core.py: what is counted -----------------------------------------------------


def test_another_tree_than_the_one_named_is_refused(reading, tmp_path):
    (tmp_path / "nanoinfer").mkdir()
    with pytest.raises(RuntimeError, match="cannot be measured"):
        reading.listing_of(tmp_path)


def test_only_code_of_the_tree_is_watched(core, tmp_path):
    """One event for a call, each line and the return; none for what Python's library does meanwhile."""
    (tmp_path / "a.py").write_text("def f(text):\n    parsed = json.loads(text)\n    return parsed\n")
    namespace = {"json": json}
    exec(compile((tmp_path / "a.py").read_text(), tmp_path / "a.py", "exec"), namespace)
    result, events = core.watched(lambda: namespace["f"]("[1]"), tmp_path)
    assert result == [1]
    assert events == [(kind, "a.py", n, "f") for kind, n in (("call", 1), ("line", 2), ("line", 3), ("return", 3))]


def test_a_move_is_a_change_of_file(core):
    events = [core.Event("line", file, 1, "f") for file in "aabba"]
    assert core.moves(events) == ["a:1 f -> b:1 f", "b:1 f -> a:1 f"]


def test_a_function_that_is_entered_twice_counts_once(core):
    events = [core.Event(kind, "a.py", 1, name) for kind, name in (("call", "g"), ("line", "h"), ("call", "f")) * 2]
    assert core.entered(events) == ["a.py::g", "a.py::f"]


def test_names_a_reader_must_know(core):
    """Not the parameters, the variables, the keywords, nor what Python itself calls so."""
    source = """
def f(self, queue: Queue) -> Plan:
    seq = queue.popleft()
    rows = [Row(r, when=1) for r in sorted(seq.rows) if r.status is Status.DONE]
    self.running.append(seq)
    return rows
"""
    (function,) = core.functions_of(ast.parse(source)).values()
    assert core.names_used(function) == {"Queue", "Plan", "Row", "rows", "status", "Status", "DONE", "running"}


def test_functions_go_by_their_qualified_names(core):
    source = "class A:\n    def f(self):\n        def g(): ...\n        return g\n\ndef h(): ...\n"
    functions = core.functions_of(ast.parse(source))
    assert list(functions) == ["A.f", "A.f.<locals>.g", "h"]
    namespace = {}
    exec(source, namespace)
    assert namespace["A"]().f().__qualname__ in functions


def test_the_project_defines_names_by_assigning_them_too(core):
    source = "LIMIT = 1\nclass A:\n    size: int = 2\n    def f(self):\n        self.ids = used(json.loads)\n"
    assert core.names_defined(ast.parse(source)) == {"LIMIT", "A", "size", "f", "ids"}


@pytest.mark.parametrize(
    ("source", "expected"),
    [("POLICIES = {}", True), ("POLICIES: dict = {}", True), ("def f():\n    POLICIES = {}", False), ("x = 1", False)],
)
def test_the_registry_is_the_file_that_assigns_it(core, source, expected):
    assert core.assigns(ast.parse(source), "POLICIES") is expected


def test_helpers_are_found_by_running_the_scheduler(core):
    """The crowded run reaches what two calls do not: preemption."""
    _, _, _, scheduling = core.crowded_run(TREE)
    calls = core.two_calls(TREE)
    few = {place for events in calls.values() for place in core.entered(events)}
    assert few < scheduling
    assert {place.rsplit(".", 1)[-1] for place in scheduling - few} > {"preempt", "deallocate", "release"}


# ---- reading_the_core.py: the table -------------------------------------------------------


def listing(reading, **more):
    """One thing of each measure, and `more` of some."""
    return {m.name: ["a.py:1"] * more.get(m.name, 1) for m in reading.MEASURES} | {"helpers": ["a.py::f"]}


@pytest.mark.parametrize("name", ["lines", "names", "decode_moves", "decode_functions", "files_to_read"])
def test_each_limit_can_be_exceeded(reading, run, monkeypatch, capsys, name):
    limit = next(m.limit for m in reading.MEASURES if m.name == name)
    monkeypatch.setattr(reading, "listing_of", lambda tree: listing(reading, **{name: limit}))
    assert run(reading) == 0
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(reading, "listing_of", lambda tree: listing(reading, **{name: limit + 1}))
    assert run(reading) == 1
    assert f"{limit + 1}, and the limit is {limit}" in capsys.readouterr().err


def test_two_trees_stand_side_by_side(reading, run, monkeypatch, capsys, tmp_path):
    """The limits are for the tree, not for what it is compared with."""
    listings = {tmp_path: listing(reading, names=999), TREE: listing(reading, names=3)}
    monkeypatch.setattr(reading, "listing_of", lambda tree: listings[tree])
    assert run(reading, "--before", tmp_path, "--verbose", "--json") == 0
    table, *_, details = capsys.readouterr().out.partition("\nlines:\n")
    assert "999       3      48" in table
    assert details.startswith("     1 a.py\n")
    evidence = json.loads((tmp_path / "reading_the_core.json").read_text())
    assert (evidence["before"]["names"], evidence["now"]["names"], evidence["limits"]["names"]) == (999, 3, 48)
    assert (evidence["before"]["commit"], evidence["listing"]["helpers"]) == (None, ["a.py::f"])


# ---- lines_by_package.py ------------------------------------------------------------------


def write(root, files):
    for name, text in files.items():
        path = root / "nanoinfer" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_lines_by_package(packages, run, tmp_path, capsys):
    before = {"a.py": "1\n\n", "core/b.py": "1\n2\n3\n4\n", "core/old/c.py": "1\n"}
    now = {
        "a.py": "1\n\n",
        "core/b.py": "1\n \n3\n",
        "core/overlap/d.py": "1\n2\n",
        "web/e.js": "1\n",
        "web/f.css": "1\n",
    }
    trees = [write(tmp_path / name, files) for name, files in (("before", before), ("now", now))]
    assert run(packages, "--before", trees[0], "--tree", trees[1], "--files", "--json") == 0
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert printed[1:8] == [
        ["core", "5", "/", "5", "4", "/", "5", "-1", "-20.0", "%"],
        ["core/old", "1", "/", "1", "0", "/", "0", "-1", "-100.0", "%"],
        ["core/overlap", "0", "/", "0", "2", "/", "2", "+2"],
        ["core", "without", "core/overlap", "5", "/", "5", "2", "/", "3", "-3", "-60.0", "%"],
        ["web", "0", "/", "0", "1", "/", "1", "+1"],
        ["(top", "level)", "1", "/", "2", "1", "/", "2", "+0", "+0.0", "%"],
        ["all", "6", "/", "7", "6", "/", "8", "+0", "+0.0", "%"],
    ]
    assert ["-", "1", "core/old/c.py"] in printed
    assert ["+", "1", "web/e.js"] in printed
    evidence = json.loads((tmp_path / "lines_by_package.json").read_text())
    assert evidence["now"]["packages"]["core"] == {"non_blank": 4, "total": 5}


def test_a_path_without_the_package_is_an_error(packages, tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no source files; give the path of a checkout"):
        packages.files_of(tmp_path)
