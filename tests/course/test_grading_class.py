"""A class is graded: progress, a line of CSV each, and one bad submission stops nobody. And check() in a notebook."""

import csv
import json
import os
import subprocess
import sys

import pytest
from kit.small_course import ANSWER, hand_in, make_course

from nanoinfer.cli import main
from nanoinfer.course.grading import check

CLASS = {
    "ada": ANSWER,
    "bob": ANSWER.replace("2 * number", "0"),
    "cem": "def double(number:\n",
    "dee": "import os\nos._exit(0)\n",
    "eve": "",
}


@pytest.fixture
def course(tmp_path, monkeypatch):
    made = make_course(tmp_path / "course")
    monkeypatch.chdir(made.root)
    return made


@pytest.fixture
def submissions(tmp_path):
    folders = [hand_in(tmp_path / "class" / name, text) for name, text in CLASS.items()]
    (tmp_path / "class" / "fay").mkdir()
    return [*folders, tmp_path / "class" / "fay"]


def test_a_class_of_six(course, submissions, tmp_path, capsys):
    files = {name: tmp_path / f"grades.{name}" for name in ("csv", "json", "junit")}
    options = [f"--{name}={path}" for name, path in files.items()]
    assert main(["course", "grade", "--assignment", "a1", *options, *map(str, submissions)]) == 0
    lines = list(csv.DictReader(files["csv"].open()))
    assert [float(line["score"]) for line in lines] == [20, 14, 0, 0, 0, 0]
    assert [os.path.basename(line["submission"]) for line in lines] == [*CLASS, "fay"]
    assert "syntax error in line 1" in lines[2]["error"]
    assert "no submission in" in lines[5]["error"]
    assert [entry["score"] for entry in json.loads(files["json"].read_text())] == [20, 14, 0, 0, 0, 0]
    assert files["junit"].read_text().count("<testsuite ") == 6
    captured = capsys.readouterr()
    assert "6/6" in captured.err
    assert "100.00 %" in captured.out


def test_one_submission_prints_its_table(course, submissions, tmp_path, capsys):
    out = tmp_path / "results.json"
    assert main(["course", "grade", "--assignment", "a1", "--gradescope", str(out), str(submissions[1])]) == 0
    printed = capsys.readouterr().out
    assert "hint: Twice as much." in printed
    assert printed.endswith("14 of 20 points (70 %)\n")
    assert json.loads(out.read_text())["score"] == 14


def test_hidden_tests_come_from_any_folder_and_can_be_left_out(course, submissions, tmp_path, capsys):
    mine = hand_in(tmp_path / "mine", (course.tests / "hidden" / "test_a1_hidden.py").read_text(), "test_a1_extra.py")
    (mine / "test_a1_extra.py").write_text((mine / "test_a1_extra.py").read_text().replace("points(10", "points(30"))
    command = ["course", "grade", "--assignment", "a1", str(submissions[0])]
    for more, points in (["--hidden", str(mine)], 40), (["--public"], 10), ([], 20):
        assert main([*command, *more]) == 0
        assert f"{points} of {points} points" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--gradescope", "x.json", "one", "two"], "--gradescope takes one submission, got 2"),
        (["--jobs", "0", "one"], "--jobs must be at least 1"),
        (["--csv", "no/such/folder/x.csv", "one"], "there is no folder"),
    ],
)
def test_what_cannot_be_done_is_said_before_the_work(course, options, words, capsys):
    assert main(["course", "grade", *options]) == 1
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--assignment", "a77"], "no assignment 'a77'; there are a1, a2"),
        (["--assignment", "a2"], "no tests for a2"),
        (["--assignment", "a1", "--hidden", "."], "no hidden tests test_a1_"),
        ([], "cannot tell which assignment"),
    ],
)
def test_an_unknown_assignment_or_missing_tests_are_told(course, submissions, options, words, capsys):
    assert main(["course", "grade", *options, str(submissions[0])]) == 0
    assert words in capsys.readouterr().out


def test_check_shows_points_and_hints(course, monkeypatch):
    folder = hand_in(course.folder("a1"), ANSWER.replace("2 * number", "'<b>'"))
    monkeypatch.chdir(folder)
    report = check("a1")
    html = report._repr_html_()
    assert "3 of 10 points" in html
    assert "Hint: Twice as much." in html
    assert "&lt;b&gt;" in html
    assert "<b>'" not in html
    assert "secret" not in html, "hidden tests are not for students"
    assert "3 of 10 points" in repr(report)


def test_check_sees_an_edit_at_once_and_survives_what_it_runs(course, monkeypatch):
    monkeypatch.chdir(hand_in(course.folder("a1"), "import os\nos._exit(0)\n"))
    assert check("a1").score.score == 0
    hand_in(course.folder("a1"), ANSWER)
    assert check("a1").score.score == 10


def test_check_says_what_is_missing(course):
    with pytest.raises(ValueError, match=r"no student\.py in"):
        check("a1")
    with pytest.raises(ValueError, match="no assignment 'b1'"):
        check("b1")


def test_grading_loads_no_torch():
    code = """
import sys
import nanoinfer.course.grading.plugin, nanoinfer.course.grading.grade, nanoinfer.course.cli
from nanoinfer.course.grading import check
print(sorted({"torch", "transformers", "pandas", "matplotlib"} & sys.modules.keys()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
