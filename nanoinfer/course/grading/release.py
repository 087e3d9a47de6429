"""What students get: starters cut from the solutions, public tests, notebooks without outputs.

`python -m nanoinfer.course.grading.release` cuts the starters of the checkout anew.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from nanoinfer import __version__
from nanoinfer.course.grading.assignments import ASSIGNMENTS, HELD_OUT, Course, find_course

BEGIN, END = "# BEGIN SOLUTION", "# END SOLUTION"


def starter(solution: str) -> str:
    """The source of a solution without its marked regions.

    A region inside a function becomes `raise NotImplementedError`, one outside becomes a comment.

    Raises:
        ValueError: the marks do not pair up; names the line.
    """
    return "\n".join(_cut(solution)) + "\n"


def _cut(source: str) -> Iterator[str]:
    inside = _lines_of_functions(source)
    begun = 0
    for number, line in enumerate(source.splitlines(), 1):
        mark = line.strip()
        if mark in (BEGIN, END) and (mark == BEGIN) == bool(begun):
            raise ValueError(f"line {number}: {mark} without its counterpart")
        if mark == BEGIN:
            begun = number
            indent = line[: len(line) - len(line.lstrip())]
            if number in inside:
                yield f"{indent}# YOUR CODE HERE"
                yield f'{indent}raise NotImplementedError("to be written")'
            else:
                yield f"{indent}# Helpers of your own go here."
        elif mark == END:
            begun = 0
        elif not begun:
            yield line
    if begun:
        raise ValueError(f"line {begun}: {BEGIN} without its counterpart")


def _lines_of_functions(source: str) -> set[int]:
    """Numbers of the lines that lie inside a function."""
    found: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found.update(range(node.lineno + 1, (node.end_lineno or node.lineno) + 1))
    return found


# ---- the students' copy ---------------------------------------------------------------------

INI = """[pytest]
addopts = -p nanoinfer.course.grading.plugin -p no:cacheprovider --tb=no
"""
LITTER = ("__pycache__", ".ipynb_checkpoints", "failed-*.jsonl")
LESSONS = ("notebooks/*.ipynb", "notebooks/traces/*", "docs/*.md", "docs/images/*")  # what assignments refer to
EVIDENCE = ("docs/recipe/README.md", "docs/recipe/eval.log", "docs/benchmarks/evidence/*")  # what pages refer to
SITE = ("index.md", "instructors.md")  # the first leads to the second
TEACHING = (*SITE, "assignment_matrix.json", "assignment_mutants.json", "class_run.csv", "class_run.json")
SHORT = 25  # characters: shorter lines of a solution stand elsewhere by chance


def release(course: Course, target: Path, student: str | None = None) -> list[str]:
    """Write what students get to `target`, and look for everything that they must not get.

    Args:
        course: the checkout.
        target: a folder that does not exist, or is empty.
        student: whose variant it is; None for a copy that is for everybody.

    Returns:
        the names of the assignments in it.

    Raises:
        ValueError: `target` holds something, or there is nothing to release.
        RuntimeError: held-out material is in the copy; nothing was written.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ValueError(f"{target} is not empty; name a folder that does not exist yet")
    names = [name for name in ASSIGNMENTS if course.solution(name).is_file() and course.public_tests(name).is_file()]
    if not names:
        raise ValueError(f"no assignment with a solution and public tests in {course.tests}; release from a checkout")
    with TemporaryDirectory(prefix="release-") as folder:
        copy = Course(Path(folder) / "copy")
        _fill(course, copy, names, student)
        found = held_out_in(course, copy.root)
        if found:
            raise RuntimeError("held-out material would be released:\n" + "\n".join(found))
        shutil.copytree(copy.root, target, dirs_exist_ok=True)
    return names


def write_starters(course: Course) -> list[Path]:
    """Cut student.py of every assignment anew from its solution, in the checkout itself."""
    return [_write_starter(course, course, name) for name in ASSIGNMENTS if course.solution(name).is_file()]


def _write_starter(course: Course, copy: Course, name: str) -> Path:
    """Cut student.py of `copy` from the solution in `course`."""
    path = copy.student(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(starter(course.solution(name).read_text(encoding="utf-8")), encoding="utf-8")
    return path


def _fill(course: Course, copy: Course, names: list[str], student: str | None) -> None:
    copy.tests.mkdir(parents=True)
    for name in names:
        if course.folder(name).is_dir():
            shutil.copytree(course.folder(name), copy.folder(name), ignore=shutil.ignore_patterns(*LITTER))
        for notebook in copy.folder(name).glob("*.ipynb"):
            notebook.write_text(without_answers(notebook.read_text(encoding="utf-8")), encoding="utf-8")
        shutil.copy(course.public_tests(name), copy.public_tests(name))
        _write_starter(course, copy, name)
    for path in _lessons(course):
        goal = copy.root / path.relative_to(course.root)
        goal.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, goal)
    readme = Path(__file__).with_name("students.md").read_text(encoding="utf-8").replace("VERSION", __version__)
    (copy.root / "README.md").write_text(readme, encoding="utf-8")
    (copy.root / "pytest.ini").write_text(INI, encoding="utf-8")
    if student:
        (copy.root / "student.txt").write_text(student + "\n", encoding="utf-8")


def _lessons(course: Course) -> list[Path]:
    found = [path for pattern in (*LESSONS, *EVIDENCE) for path in course.root.glob(pattern)]
    return [path for path in found if path.is_file() and path.name not in TEACHING]


def without_answers(notebook: str) -> str:
    """A notebook without outputs and without cells tagged `solution`."""
    content = json.loads(notebook)
    content["cells"] = [c for c in content["cells"] if "solution" not in c.get("metadata", {}).get("tags", ())]
    for cell in content["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def held_out_in(course: Course, tree: Path) -> list[str]:
    """Held-out material in `tree`, as `file: what`: names of files, hidden tests by name, lines of solutions."""
    lines, tests = sorted(set(_lines_of_solutions(course))), _hidden_tests(course)
    files = [file for folder in course.held_out for file in folder.iterdir() if file.is_file()]
    names = {name for file in files for name in (file.name, file.stem + ".py")}  # wrong submissions are written out
    found = []
    for path in sorted(path for path in tree.rglob("*") if path.is_file()):
        if path.name in names or set(path.relative_to(tree).parts) & set(HELD_OUT):
            found.append(f"{path.relative_to(tree)}: held out by name")
        text = path.read_bytes().decode("utf-8", errors="ignore")
        secrets = [line for line in lines if line in text] + sorted(tests & set(re.findall(r"\w+", text)))
        found += [f"{path.relative_to(tree)}: {secret}" for secret in secrets]
    return found


def _hidden_tests(course: Course) -> set[str]:
    """Their names: no public test may have the same one."""
    texts = [path.read_text(encoding="utf-8") for path in (course.tests / "hidden").glob("*.py")]
    functions = [node for text in texts for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    return {function.name for function in functions if function.name.startswith("test_")}


def _lines_of_solutions(course: Course) -> Iterator[str]:
    """The longer ones that stand in no starter, public test or lesson."""
    solutions = [path.read_text(encoding="utf-8") for path in (course.tests / "solutions").glob("*.py")]
    pages = [path for path in _lessons(course) if path.suffix in (".md", ".ipynb")]
    readable = [path.read_text(encoding="utf-8") for path in (*course.tests.glob("test_*.py"), *pages)]
    public = "".join([*readable, *map(starter, solutions)])
    lines = {line.strip() for source in solutions for line in source.splitlines()}
    yield from (line for line in lines if len(line) > SHORT and line not in public)
    yield BEGIN


if __name__ == "__main__":
    for student_file in write_starters(find_course(Path.cwd())):
        print(student_file)
