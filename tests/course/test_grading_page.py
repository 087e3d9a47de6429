"""What the page for instructors says, done: its example of a hidden test, its script, its list."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from kit.small_course import ANSWER, hand_in, make_course

from nanoinfer.course.grading.assignments import ASSIGNMENTS
from nanoinfer.course.grading.grade import Grading, grade

PAGE = (Path(__file__).parents[2] / "docs" / "instructors.md").read_text()
SCHEDULERS = {
    "right": ("from nanoinfer import Scheduler\n", 1.0),
    "forgets victims": (
        "import nanoinfer\nclass Scheduler(nanoinfer.Scheduler):\n    def preempt(self, seq, on_behalf_of=None):\n"
        "        record = super().preempt(seq, on_behalf_of)\n        self.waiting.clear()\n        return record\n",
        0.0,
    ),
}


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, flags=re.S | re.M)


@pytest.mark.parametrize("name", SCHEDULERS)
def test_the_example_of_a_hidden_test(tmp_path, name):
    course = make_course(tmp_path / "course")
    (course.tests / "test_a6.py").write_text("")
    mine = hand_in(tmp_path / "secret", blocks("python")[0], "test_a6_more.py")
    text, share = SCHEDULERS[name]
    score = grade(hand_in(tmp_path / "ada", text), Grading(course, "a6", hidden=mine))
    assert (score.score, score.max_score, score.error) == (5 * share, 5, "")
    if not share:
        assert re.search("sequence . is lost|RuntimeError|expected 8 tokens each|no end", score.lines[0].message)


def test_the_script_for_gradescope(tmp_path):
    course = make_course(tmp_path / "course")
    (tmp_path / "results").mkdir()
    hand_in(tmp_path / "submission", ANSWER)
    script = next(block for block in blocks("bash") if "/autograder/submission" in block)
    for old, new in (
        ("/autograder/source/nanoinfer", str(course.root)),
        ("/opt/venv/bin/nanoinfer", f"{sys.executable} -m nanoinfer"),
        ("/autograder", str(tmp_path)),
        ("--assignment a2", "--assignment a1"),
    ):
        assert old in script
        script = script.replace(old, new)
    subprocess.run(["bash", "-e", "-c", script], check=True, capture_output=True)
    assert json.loads((tmp_path / "results" / "results.json").read_text())["score"] == 20


def test_the_page_lists_the_assignments():
    assert re.findall(r"^\| (a\d) \| ([^|]+) \|", PAGE, flags=re.M) == [(a.name, a.title) for a in ASSIGNMENTS.values()]


def test_the_limits_are_as_the_page_says():
    assert {a.seconds for a in ASSIGNMENTS.values() if not a.needs_torch} == {5}
    assert {(a.needs_torch, a.memory_mb) for a in ASSIGNMENTS.values()} == {(False, 1024), (True, 8192)}
    assert [a.name for a in ASSIGNMENTS.values() if a.needs_torch] == ["a8"]
