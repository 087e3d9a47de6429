"""What students get, and what they must not get."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from kit.small_course import ANSWER, SOLUTION, graded, hand_in, make_course

import nanoinfer
from nanoinfer.cli import main
from nanoinfer.course.grading.assignments import Course, assignment_of, find_course
from nanoinfer.course.grading.release import held_out_in, release, starter, without_answers

CHECKOUT = Course(Path(nanoinfer.__file__).parents[1])
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
NAMES = [path.stem for path in sorted((CHECKOUT.tests / "solutions").glob("a*.py"))]


@pytest.fixture
def course(tmp_path):
    return make_course(tmp_path / "course")


def test_a_starter_keeps_all_but_the_marked_regions():
    text = starter(SOLUTION)
    assert text.count("    # YOUR CODE HERE\n    raise NotImplementedError") == 2
    assert '"""Twice `number`."""' in text
    assert "one true way" not in text
    assert "SOLUTION" not in text


def test_a_region_outside_of_functions_leaves_no_raise():
    text = starter(
        "X = 1\n# BEGIN SOLUTION\nY = 2\n# END SOLUTION\n"
        "class A:\n    # BEGIN SOLUTION\n    z = 1\n    # END SOLUTION\n    w = 2\n"
    )
    helpers = "# Helpers of your own go here.\n"
    assert text == f"X = 1\n{helpers}class A:\n    {helpers}    w = 2\n"


@pytest.mark.parametrize(
    ("source", "line"),
    [("# BEGIN SOLUTION\n", 1), ("\n# END SOLUTION\n", 2), ("# BEGIN SOLUTION\n# BEGIN SOLUTION\n# END SOLUTION\n", 2)],
)
def test_marks_that_do_not_pair_up_are_an_error(source, line):
    with pytest.raises(ValueError, match=f"line {line}: "):
        starter(source)


def test_the_copy_has_starters_and_public_tests_alone(course, tmp_path):
    assert release(course, tmp_path / "copy") == ["a1"]
    files = {str(path.relative_to(tmp_path / "copy")) for path in (tmp_path / "copy").rglob("*") if path.is_file()}
    assert files == {"README.md", "pytest.ini", "notebooks/assignments/a1/student.py", "tests/assignments/test_a1.py"}


def test_a_copy_is_graded_like_the_checkout(course, tmp_path):
    """Untouched it has no point; with the answers in it, all that are visible."""
    release(course, tmp_path / "copy")
    copy = find_course(tmp_path / "copy" / "notebooks" / "assignments" / "a1")
    assert copy.root == tmp_path / "copy"
    assert graded(copy, copy.student("a1")).percent == 0
    copy.student("a1").write_text(ANSWER)
    assert (graded(copy, copy.root).score, graded(copy, copy.root).max_score) == (10, 10)


def test_pytest_alone_runs_in_the_copy(course, tmp_path):
    release(course, tmp_path / "copy")
    done = subprocess.run([sys.executable, "-m", "pytest"], cwd=tmp_path / "copy", capture_output=True, text=True)
    assert "0 of 10 points" in done.stdout


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("data.txt", "def test_a_secret_property(): ..."),
        ("data.txt", "return number + number  # the one true way of doubling"),
        ("data.txt", "# BEGIN SOLUTION"),
        ("a1_wrong.py", "x = 1"),
        ("a1_wrong.toml", "x = 1"),
        ("test_a1_hidden.py", "x = 1"),
        ("solutions/notes.txt", "x"),
    ],
)
def test_held_out_material_stops_the_release(course, tmp_path, name, text):
    path = course.folder("a1") / name
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(RuntimeError, match=f"notebooks/assignments/a1/{name}: "):
        release(course, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_release_overwrites_nothing(course, tmp_path):
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "work.py").write_text("weeks of work")
    with pytest.raises(ValueError, match="is not empty"):
        release(course, tmp_path / "copy")


def test_litter_stays_here(course, tmp_path):
    for name in ("failed-test_x.jsonl", "__pycache__/a.pyc", ".ipynb_checkpoints/a1.ipynb"):
        path = course.folder("a1") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    release(course, tmp_path / "copy")
    assert [path.name for path in (tmp_path / "copy" / "notebooks" / "assignments" / "a1").iterdir()] == ["student.py"]


def test_notebooks_lose_outputs_and_solution_cells():
    cells = [
        {"cell_type": "markdown", "source": "Read."},
        {"cell_type": "code", "source": "f()", "outputs": [{"text": "42"}], "execution_count": 3, "metadata": {}},
        {"cell_type": "code", "source": "answer", "outputs": [], "metadata": {"tags": ["solution"]}},
    ]
    kept = json.loads(without_answers(json.dumps({"cells": cells, "nbformat": 4})))["cells"]
    assert [cell["source"] for cell in kept] == ["Read.", "f()"]
    assert (kept[1]["outputs"], kept[1]["execution_count"]) == ([], None)


def test_a_variant_is_the_same_for_one_student_and_differs_between_two(course, tmp_path):
    test = (
        "import pytest\n\n@pytest.mark.points(1)\ndef test_v(impl, variant):\n    pytest.fail(str(variant.random()))\n"
    )
    course.public_tests("a1").write_text(test)
    seen = {}
    for student in ("ada", "bob", "ada"):
        folder = hand_in(tmp_path / student, ANSWER)
        message = graded(course, folder, by_name=True, public_only=True).lines[0].message
        assert seen.setdefault(student, message) == message
        release(course, tmp_path / "copies" / f"{student}{len(list(tmp_path.glob('copies/*')))}", student)
    assert len(set(seen.values())) == 2
    copy = find_course(tmp_path / "copies" / "ada0")
    copy.student("a1").write_text(ANSWER)
    assert graded(copy, copy.student("a1")).lines[0].message == seen["ada"]


@pytest.mark.parametrize(
    ("path", "name"),
    [("x/test_a2.py", "a2"), ("x/test_a2_hidden.py", "a2"), ("x/a3_leak.py", "a3"), ("a4/student.py", "a4")],
)
def test_an_assignment_is_told_from_a_path(path, name):
    assert assignment_of(Path(path)).name == name


def test_a_path_that_tells_no_assignment_is_an_error():
    with pytest.raises(ValueError, match="--assignment"):
        assignment_of(Path("homework/student.py"))


# ---- the assignments of the project -----------------------------------------------------------


def test_the_project_releases_without_held_out_material(tmp_path, capsys):
    assert main(["course", "release", str(tmp_path / "copy")]) == 0
    assert ", ".join(NAMES[:2]) in capsys.readouterr().out
    assert held_out_in(CHECKOUT, tmp_path / "copy") == []
    tests = sorted(path.stem for path in (tmp_path / "copy" / "tests").rglob("*.py"))
    assert tests == [f"test_{name}" for name in NAMES]
    assert len(held_out_in(CHECKOUT, CHECKOUT.tests)) > 20, "it would find nothing at all"


def prose(page):
    """The words of a page or a notebook, without code."""
    if page.suffix == ".md":
        return CODE.sub("", page.read_text())
    cells = json.loads(page.read_text())["cells"]
    return CODE.sub("", "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"))


def test_every_link_of_the_copy_leads_somewhere(tmp_path):
    release(CHECKOUT, tmp_path / "copy")
    pages = [path for path in (tmp_path / "copy").rglob("*") if path.suffix in (".md", ".ipynb")]
    links = [(page, link) for page in pages for link in re.findall(r"\]\(([^)#\s]+)", prose(page))]
    broken = {(page.name, link) for page, link in links if "://" not in link and not (page.parent / link).exists()}
    assert broken == set()
    assert len(links) > 100


@pytest.mark.parametrize("name", NAMES)
def test_the_committed_starter_is_cut_from_the_solution(name):
    """To cut them anew: python -m nanoinfer.course.grading.release"""
    assert CHECKOUT.student(name).read_text() == starter(CHECKOUT.solution(name).read_text())
