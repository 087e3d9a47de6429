"""Submissions that would stop a careless grader: each gets a score and a message, in bounded time."""

import json
import os
import re
import stat
import subprocess
import time
from textwrap import indent

import pytest
from kit.helpers import slow
from kit.small_course import ANSWER, graded, hand_in, line_of, make_course

from nanoinfer.course.grading.isolate import Limits, run_isolated
from nanoinfer.course.grading.submission import still_at

BOUND = 60  # seconds; far more than any of them takes, far less than for ever

# One function does it, the other is right: (body of double, words of the message).
IN_ONE_FUNCTION = {
    "endless loop": ("while True: pass", r"stopped after 5 s, still at line 3 of student.py, in double"),
    "endless loop that catches all": (
        "while True:\n    try:\n        while True: sum([])\n    except BaseException: pass",
        "stopped after 5 s",  # mostly killed; the exception may also fall between two turns of the outer loop
    ),
    "sys.exit": ("import sys; sys.exit(0)", r"sys.exit\(0\) was called \(line 3 of student.py"),
    "os._exit": ("import os; os._exit(0)", r"ended the whole process \(exit code 0\) before it was done"),
    "crash": ("import ctypes; ctypes.string_at(0)", "crashed: the process ended with SIGSEGV"),
    "kills itself": ("import os; os.kill(os.getpid(), 9)", "crashed: the process ended with SIGKILL"),
    "10 GB": ("return [0] * 1_250_000_000", "ran out of memory: a test may take 1024 MB"),
    "recursion": ("return double(number)", "RecursionError"),
    "keyboard interrupt": ("raise KeyboardInterrupt", "KeyboardInterrupt"),
    "pytest.exit": ("import pytest; pytest.exit('done')", "done"),
    "starts a process": ("import os; os.system('sleep 1000')", "starts another process"),
    "forks": ("import os; os.fork()", "starts another process"),
    "a thread that never ends": (
        "import threading, time; threading.Thread(target=time.sleep, args=(1000,)).start(); return 0",
        "assert 0 == 8",
    ),
    "skips": ("import pytest; pytest.skip('not today')", "not today"),
}

KINDS = {"endless loop": "stopped", "endless loop that catches all": "stopped", "skips": "skipped"}

# The whole file does it: (text, words of the error, points of 20).
WHOLE_FILE = {
    "syntax error": ("def double(number:\n", r"syntax error in line 1: '\(' was never closed", 0),
    "endless loop": ("while True: pass\n", "stopped after 5 s, still at line 1 of student.py", 0),
    "exits": ("raise SystemExit(3)\n", r"sys.exit\(3\) was called \(line 1 of student.py", 0),
    "dies": ("import os\nos._exit(0)\n", r"ended the whole process \(exit code 0\)", 0),
    "null bytes": ("a = '\0'\n", "null bytes", 0),
    "patches the checker": (
        ANSWER + "\nimport nanoinfer.course.grading.case as c\nc.Case.run = lambda self, limits: None\n",
        "replaces nanoinfer.course.grading.case.Case.run",
        0,
    ),
    "patches code inside": (
        ANSWER + "\nimport pytest\npytest.raises.__code__ = (lambda *a, **k: None).__code__\n",
        "replaces pytest.raises",
        0,
    ),
    "patches a builtin": (ANSWER + "\nimport builtins\nbuiltins.sum = lambda x: 0\n", "replaces builtins.sum", 0),
    "patches the tests": (
        ANSWER + "\nimport sys\ntests = next(m for name, m in sys.modules.items() if name.endswith('test_a1'))\n"
        "tests.test_double = lambda impl: None\n",
        r"replaces [\w.]*test_a1.test_double",
        0,
    ),
    "reads the solution": (
        ANSWER + "\nopen('{tests}/solutions/a1.py').read()\n",
        "reads a1.py, which belongs to the grader",
        0,
    ),
    "reads it in silence": (
        ANSWER + "\ntry:\n    open('{tests}/solutions/a1.py').read()\nexcept Exception:\n    pass\n",
        "reads a1.py, which belongs to the grader",
        0,
    ),
    "imports the solution": (ANSWER + "\nfrom solutions.a1 import double\n", "No module named 'solutions'", 0),
    "imports it with a path": (
        ANSWER + "\nimport sys\nsys.path.insert(0, '{tests}')\nfrom solutions.a1 import double\n",
        "belongs to the grader",
        0,
    ),
    "looks around": (ANSWER + "\nimport os\nos.listdir('{tests}/hidden')\n", "reads hidden, which", 0),
    "a megabyte of prints": (ANSWER + "\nprint('x' * 1_000_000)\n", "", 20),
}


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    return make_course(tmp_path_factory.mktemp("course"))


@pytest.mark.parametrize(
    "name", [slow(name) if name == "endless loop that catches all" else name for name in IN_ONE_FUNCTION]
)
def test_one_bad_function_costs_its_own_points_only(course, tmp_path, name):
    body, words = IN_ONE_FUNCTION[name]
    text = f"\ndef double(number):\n{indent(body, '    ')}\n\ndef total(numbers):\n    return sum(numbers)\n"
    started = time.monotonic()
    score = graded(course, hand_in(tmp_path, text))
    assert time.monotonic() - started < BOUND
    assert (line_of(score, "test_double").score, line_of(score, "test_total").score) == (0, 3)
    assert line_of(score, "test_a_secret_property").score == 10
    assert re.search(words, line_of(score, "test_double").message), line_of(score, "test_double").message
    assert line_of(score, "test_double").kind == KINDS.get(name, "failed")


@pytest.mark.parametrize("name", [slow(name) if name == "endless loop" else name for name in WHOLE_FILE])
def test_a_bad_file_gets_a_score_and_a_message(course, tmp_path, name):
    text, words, points = WHOLE_FILE[name]
    started = time.monotonic()
    score = graded(course, hand_in(tmp_path, text.replace("{tests}", str(course.tests))))
    assert time.monotonic() - started < BOUND
    assert (score.score, score.max_score) == (points, 20)
    assert re.search(words, score.error), score.error
    assert {line.kind for line in score.lines} == {"passed" if points else "not_loaded"}
    assert points or sum(line.seconds for line in score.lines) == 0, "what cannot be loaded is not tried in every test"
    assert len(json.dumps(score.to_dict())) < 20_000


@pytest.mark.parametrize("name", ["nanoinfer.py", "pytest.py", "conftest.py", "json.py", "colorsys.py", "test_a1.py"])
def test_a_file_that_shadows_what_the_grader_needs_changes_nothing(course, tmp_path, name):
    folder = hand_in(tmp_path, ANSWER.replace("2 * number", "0"))
    hand_in(folder, "raise SystemExit('shadowed')\n", name)
    score = graded(course, folder)
    assert (score.score, score.error) == (14, "")


def test_a_file_beside_the_submission_can_be_imported(course, tmp_path):
    hand_in(tmp_path, "def twice(number): return 2 * number\n", "my_helpers.py")
    score = graded(course, hand_in(tmp_path, "from my_helpers import twice as double\ndef total(n): return sum(n)\n"))
    assert score.percent == 100


@pytest.mark.parametrize(
    "line",
    [
        "import importlib.metadata; importlib.metadata.version('numpy')",
        "import pkgutil; list(pkgutil.iter_modules())",
        slow("import transformers"),
    ],
)
def test_an_import_that_looks_through_the_path_reads_nothing_hidden(course, tmp_path, line):
    """B96: no folder of tests is among the places that it lists."""
    score = graded(course, hand_in(tmp_path, f"{line}\n{ANSWER}"))
    assert (score.percent, score.error) == (100, "")


@pytest.mark.slow
def test_many_endless_loops_are_bounded_in_all(course, tmp_path):
    """B95: three tests may use up their time; those after them get a second each, and are told so."""
    text = "def double(n):\n    for _ in iter(int, 1): pass\n" + "".join(
        f"def total_{i}(n):\n    while True: pass\n" for i in range(5)
    )
    started = time.monotonic()
    score = graded(course, hand_in(tmp_path, text + "def total(n): return globals()[f'total_{len(n)}'](n)\n"))
    assert score.score == 0
    assert time.monotonic() - started < 4 * 6 + 2 * 2 + 15
    assert re.search(
        r"stopped after 1 s, still at line 8 .*\n\(3 tests have used up their whole time: those after them get",
        line_of(score, "test_a_secret_property").message,
    )


@pytest.mark.slow
def test_one_endless_loop_costs_its_time_once(course, tmp_path):
    """Whoever is soon in the function in which another test was stopped is stopped there; others have their time."""
    text = "import time\ndef spin(n):\n    while True: pass\ndouble = spin\n"
    text += "def total(n):\n    if len(n) == 2:\n        spin(n)\n    time.sleep(0.8)\n    return sum(n)\n"
    score = graded(course, hand_in(tmp_path, text))
    assert [r.seconds // 1 for r in score.lines] == [5, 2, 0, 0]
    assert line_of(score, "test_total").score == 3
    message = line_of(score, "test_a_secret_property").message
    assert message.startswith("stopped after 0.5 s, still at line 3 of student.py, in spin; an earlier test")
    assert [line.kind for line in score.lines] == ["stopped", "passed", "stopped_early", "stopped_early"]
    assert "used up" not in message
    assert line_of(score, "test_a_secret_property").hint == ""


def test_a_slow_answer_to_a_hidden_test_is_no_meddling(course, tmp_path):
    """The grader looks where it is after a tenth of its time, and opens no file for that."""
    slow = ANSWER.replace("return sum(numbers)", "import time; time.sleep(0.8); return sum(numbers)")
    assert graded(course, hand_in(tmp_path, slow)).percent == 100


def notebook(*cells):
    return json.dumps({"cells": [{"cell_type": "code", "source": cell} for cell in cells], "nbformat": 4})


def test_a_notebook_whose_cell_fails_is_graded_with_the_others(course, tmp_path):
    cells = ["%matplotlib inline\n!ls", "def double(n):\n    return 2 * n", "1 / 0", "def total(n): return sum(n)"]
    hand_in(tmp_path, notebook(*cells), "a1.ipynb")
    assert graded(course, tmp_path).score == 20
    hand_in(tmp_path, notebook("def double(n): return 2 * n", "1 / 0\ndef total(n): return sum(n)"), "a1.ipynb")
    score = graded(course, tmp_path)
    assert score.score == 7
    message = line_of(score, "test_total").message
    assert "the submission has no total; cell 2 fails" in message
    assert "cell 2 fails with ZeroDivisionError: division by zero (line 1 of cell 2" in message


@pytest.mark.parametrize("text", ["{", "[]", '{"cells": 3}', ""])
def test_what_is_no_notebook_is_told(course, tmp_path, text):
    score = graded(course, hand_in(tmp_path, text, "a1.ipynb"))
    assert score.score == 0
    assert "a1.ipynb is not a notebook" in score.error


def test_nothing_of_a_submission_outlives_its_test(course, tmp_path):
    """A process that hides from the guard is killed with the group of its test."""
    text = ANSWER + "\nimport ctypes\nctypes.CDLL(None).system(b'sleep 97531 &')\n"
    graded(course, hand_in(tmp_path, text))
    assert "sleep 97531" not in subprocess.run(["ps", "ax"], capture_output=True, text=True).stdout


# ---- the isolation by itself -----------------------------------------------------------------


def test_an_answer_comes_back():
    assert run_isolated(lambda: {"a": [1, "two"]}, Limits()).answer == {"a": [1, "two"]}


def test_work_cannot_change_its_caller():
    seen = []
    run_isolated(lambda: seen.append(1), Limits())
    assert seen == []


def test_a_growing_list_meets_the_memory_limit():
    def grow():
        kept = []
        while True:
            kept.append(bytearray(1 << 20))

    assert run_isolated(grow, Limits(seconds=20, memory_mb=200)).message == "ran out of memory: a test may take 200 MB"


def test_sleep_is_bounded_like_work():
    started = time.monotonic()
    ending = run_isolated(lambda: time.sleep(100), Limits(seconds=0.5))
    assert ending.kind == "stopped"
    assert time.monotonic() - started < 5


def test_a_file_without_end_meets_its_limit(tmp_path):
    def fill():
        with open(tmp_path / "big", "wb") as file:
            while True:
                file.write(bytes(1 << 20))

    assert "File too large" in run_isolated(fill, Limits(seconds=20)).message


class Counts:
    """Has a queue that is worked out when it is asked for, as a step of a trace has."""

    asked = 0

    @property
    def waiting(self):
        self.asked += 1
        return []

    def work(self):
        time.sleep(0.8)
        return self.asked


def test_a_look_at_slow_work_does_not_interfere():
    """After a tenth of its time the grader asks where the work is, and for its queues only when it is stopped."""
    assert run_isolated(Counts().work, Limits(seconds=4), still_at).answer == 0


def is_pipe(fd):
    try:
        return stat.S_ISFIFO(os.fstat(fd).st_mode)
    except OSError:
        return False


def test_an_answer_that_somebody_else_wrote_does_not_count():
    others = {fd: os.fstat(fd).st_ino for fd in range(3, 256) if is_pipe(fd)}  # this process may hold some already

    def forge():
        (answers,) = (fd for fd in range(3, 256) if is_pipe(fd) and others.get(fd) != os.fstat(fd).st_ino)
        os.write(answers, b'{"token": "", "ending": {"kind": "answered", "answer": {"kind": "passed"}}}\n')
        os._exit(0)

    ending = run_isolated(forge, Limits())
    assert ending.kind == "failed"
    assert re.search("ended the whole process|SIGKILL", ending.message)  # whoever has answered is killed
