"""Points, the table, and the formats that platforms read."""

import json
import re
import xml.etree.ElementTree as ET

import pytest
from kit.helpers import one_in
from kit.small_course import ANSWER, graded, hand_in, line_of, make_course, run_pytest

from nanoinfer.course.grading.formats import CSV_COLUMNS, csv_row, gradescope, junit
from nanoinfer.course.grading.score import Score, ScoreLine, score_table

HALF = ANSWER.replace("sum(numbers)", "len(numbers)").replace("2 * number", "number / 0")


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    return make_course(tmp_path_factory.mktemp("course"))


@pytest.fixture(scope="module")
def half(course, tmp_path_factory):
    """total() is right for [] and [1]; double() fails."""
    return graded(course, hand_in(tmp_path_factory.mktemp("half"), HALF))


def test_cases_share_the_points_of_their_test(half):
    total = line_of(half, "test_total")
    assert (total.cases, total.passed, total.score, total.max_score) == (3, 2, 2.0, 3.0)
    assert total.status == "partly"
    assert total.message.startswith("[three] assert 3 == 6")


def test_points_add_up(half):
    assert (half.score, half.max_score, half.percent) == (2.0, 20.0, 10.0)
    assert [r.score for r in half.lines] == [0, 2, 0, 0]


def test_thirds_add_up_to_a_whole():
    lines = [ScoreLine(f"t{i}", "t", "", 1 / 3, "", "visible", cases=3, passed=3) for i in range(3)]
    assert Score("x", lines).score == 1.0
    assert Score("x", lines).percent == 100.0
    assert Score("x").percent == 0.0


def test_a_message_names_the_line_of_the_submission(half):
    assert (
        line_of(half, "test_double").message == "ZeroDivisionError: division by zero (line 3 of student.py, in double)"
    )


def test_title_part_hint_and_visibility(half):
    assert line_of(half, "test_total").title == "Adds up a list."
    assert line_of(half, "test_no_torch").title == "test_no_torch"
    assert line_of(half, "test_total").hint == "Add them all."
    assert line_of(half, "test_total").visibility == "visible"
    assert line_of(half, "test_a_secret_property").visibility == "hidden"


def test_reference_has_all_points_and_the_stub_none(course):
    tests = [str(course.public_tests("a1")), *map(str, course.hidden_tests("a1"))]
    unwritten = {"double is not implemented yet", "total is not implemented yet"}
    for which, percent, said in (("reference", 100, {""}), ("stub", 0, unwritten)):
        out = course.root / f"{which}.json"
        run_pytest(course, f"--impl={which}", f"--grade-json={out}", *tests)
        data = json.loads(out.read_text())
        assert data["percent"] == percent
        assert {test["message"].partition("] ")[2] or test["message"] for test in data["tests"]} == said
        assert {test["kind"] for test in data["tests"]} == {"passed" if which == "reference" else "unwritten"}
        assert {bool(test["hint"]) for test in data["tests"] if test["part"]} == {which == "reference"}


def test_the_plugin_prints_a_table_and_fails_like_pytest(course, tmp_path):
    done = run_pytest(course, f"--impl={hand_in(tmp_path, HALF)}", str(course.public_tests("a1")))
    assert done.returncode == 1
    assert "2 of 10 points (20 %)" in done.stdout
    assert "partly      2/3  total          Adds up a list. (2 of 3 cases)" in done.stdout
    assert "hint: Twice as much." in done.stdout


@pytest.mark.parametrize(
    "marker",
    one_in(
        3, ["points()", "points(-1)", "points('3')", "points(1, 2)", "points(1, tip='x')", "points(1, visibility='x')"]
    ),
)
def test_a_marker_that_is_not_as_it_should_be_is_an_error(tmp_path, marker):
    course = make_course(tmp_path)
    course.public_tests("a1").write_text(f"import pytest\n\n@pytest.mark.{marker}\ndef test_x(impl): pass\n")
    done = run_pytest(course, "--impl=reference", str(course.public_tests("a1")))
    assert done.returncode == 4
    assert "test_x: " in done.stdout + done.stderr


def test_a_test_file_that_cannot_be_read_is_told(tmp_path):
    course = make_course(tmp_path / "course")
    course.public_tests("a1").write_text("import nothing_of_that_name\n")
    score = graded(course, hand_in(tmp_path / "s", ANSWER))
    assert "nothing_of_that_name" in score.error


def test_the_score_survives_json(half):
    again = Score.from_dict(json.loads(json.dumps(half.to_dict())))
    assert again == Score(half.submission, half.lines, again.seconds, half.error, half.assignment)
    assert half.to_dict()["tests"][1]["status"] == "partly"


def test_gradescope_gets_points_messages_and_hidden_tests(half):
    result = gradescope(half)
    assert result["score"] == 2.0
    assert sum(test["max_score"] for test in result["tests"]) == 20
    assert sum(test["score"] for test in result["tests"]) == result["score"]
    assert [test["visibility"] for test in result["tests"]] == ["visible"] * 3 + ["hidden"]
    assert {test["status"] for test in result["tests"]} == {"failed"}
    assert "2 of 3 cases passed\n[three] assert 3 == 6" in result["tests"][1]["output"]
    assert result["tests"][1]["output"].endswith("Hint: Add them all.")
    assert set(result) <= {"score", "execution_time", "output", "visibility", "stdout_visibility", "tests"}


def test_junit_has_a_case_for_each_test(half):
    bad = Score(
        "odd\x00name", [ScoreLine("f.py::t", "t", "", 1, "", "visible", 1, 0, "bell \x07 <&>")], error="broken\x1b"
    )
    suites = ET.fromstring(junit([half, bad]))
    first, second = suites
    assert (first.get("tests"), first.get("failures")) == ("4", "4")
    assert first[1].find("failure").text.startswith("2 of 3 cases passed")
    assert first[1].find("properties/property[@name='points']").get("value") == "2"
    assert second[0].find("failure").get("message") == "bell \N{REPLACEMENT CHARACTER} <&>"


def test_a_csv_cell_is_never_a_formula(half):
    line = dict(zip(CSV_COLUMNS, csv_row(Score("=HYPERLINK(1)", half.lines, error="+1\nmore")), strict=True))
    assert line["submission"] == "'=HYPERLINK(1)"
    assert line["error"] == "'+1"
    assert line["not_passed"].startswith("Doubles a number.; Adds up a list.")


def test_the_table_shows_messages_and_hints_of_what_failed():
    entries = [
        ScoreLine("f::a", "Works", "p", 2, "Not shown.", "visible", 1, 1),
        ScoreLine("f::b", "Fails", "p", 2, "Look there.", "visible", 1, 0, "first\nsecond"),
    ]
    lines = list(score_table(Score("x", entries, error="the file is odd")))
    assert [good for _, good in lines] == [False, True, False, False, False, False]
    assert lines[0][0] == "the file is odd"
    assert [line.strip() for line, _ in lines[3:]] == ["first", "second", "hint: Look there."]


ODD = """
import nanoinfer

def double(number):
    return list(range(300))

def total(numbers):
    return helper(numbers)

def helper(numbers):
    raise NotImplementedError
"""

EXPLAINED = """

@pytest.mark.points(1, hint="Twice.")
def test_why(impl):
    from nanoinfer import simulate
    from nanoinfer.course.grading import explain_failure
    assert impl.double(1) == 2, explain_failure(simulate([[1]]), 0, "no", "Twice.")

@pytest.mark.points(1, hint="Not this one.")
def test_own_hint(impl):
    from nanoinfer.course.grading import expect
    expect("double(2)", len(impl.double(2)), 4, hint="The hint of this check.")

@pytest.mark.points(1, hint="The rule of another failure.")
def test_caught(impl):
    from nanoinfer.course.grading import expect
    with pytest.raises(AssertionError):
        expect("double(3)", len(impl.double(3)), 6, hint="Not shown: this one was caught.")
    assert impl.double(3) == 6
"""


def test_a_message_is_whole_and_said_once(tmp_path):
    """No value is shortened; no advice about options; no hint that the message holds, or that comes too early."""
    course = make_course(tmp_path / "course")
    public = course.public_tests("a1")
    public.write_text(public.read_text() + EXPLAINED)
    done = run_pytest(course, f"--impl={hand_in(tmp_path, ODD)}", str(public), "--tb=no")
    assert f"assert {list(range(300))} == 8\n{'':17}hint: Twice as much." in done.stdout
    assert "[none] helper is not implemented yet\nfailed" in done.stdout
    explained = done.stdout.partition("expected no\n")[2].partition("\nfailed")[0].split("\n")
    assert [line.split()[0] for line in explained[-2:]] == ["why:", "see"], "neither a hint nor the comparison"
    assert re.search(r"double\(2\): expected 4, got 300\n +hint: The hint of this check.\nfailed", done.stdout)
    assert "hint: The rule of another failure." in done.stdout
    assert not re.search("-v|Add them all|Not this one|Not shown|short test summary|FAILED", done.stdout)


def test_a_file_that_cannot_be_loaded_is_told_once(course, tmp_path):
    done = run_pytest(course, f"--impl={hand_in(tmp_path, 'import no_such_thing')}", str(course.public_tests("a1")))
    table = done.stdout.partition("points (0 %)")[2]
    assert table.count("no_such_thing") == 1
    assert table.index("no_such_thing") < table.index("Doubles a number.")
    assert table.count("not run: the file cannot be loaded, see above") == 3
    assert "hint" not in table


def test_a_slip_that_stops_many_tests_is_told_by_the_first(course, tmp_path):
    text = "def helper(n): return n.missing\ndef double(n): return helper(n)\ndef total(numbers): return helper(0)\n"
    score = graded(course, hand_in(tmp_path, text))
    first, second = line_of(score, "test_double"), line_of(score, "test_total")
    assert "no attribute 'missing' (line 1 of student.py, in helper" in first.message
    assert first.hint == "Twice as much."
    assert "the same error as in: Doubles a number." in second.message
    assert "missing" not in second.message
    assert score.score == 0
