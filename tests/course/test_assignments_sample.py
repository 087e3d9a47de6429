"""A fixed sample of the matrix of solutions, starters and wrong submissions; tests/assignments/matrix.py grades all."""

import pytest
from assignments.matrix import COURSE, graded, hint_of, problems, problems_of_mutant, problems_of_points
from kit.helpers import one_in
from kit.small_course import make_course

from nanoinfer.course.grading.mutants import write_mutants
from nanoinfer.course.grading.score import Score, ScoreLine


def line(name, cases, passed, hint=""):
    return ScoreLine(name, name, "", 5.0, hint, "visible", cases=cases, passed=passed)


# Two wrong submissions of each assignment: where there is one, the second gets its hint from a hidden test only.
SAMPLE = {
    "a1": ("first_token_reset", "newest_token_is_waste"),
    "a2": ("boundary_at_zero", "hash_trusted"),
    "a3": ("any_may_be_cut", "length_before_eos"),
    "a4": ("sample_thrown_away", "starts_over"),
    "a5": ("off_by_one", "half_prompt_holds"),
    "a6": ("leaf_only", "never_ages"),
    "a7": ("boundary_at_zero", "decodes_only"),
    "a8": ("padding_stored", "no_maximum"),
}


@pytest.mark.parametrize("name", one_in(2, SAMPLE))
def test_solution_and_starter(name):
    """100 % and 0 %; points, tests and hints are all there."""
    assert problems(name, graded(name, [])) == []


@pytest.mark.parametrize("name", one_in(8, SAMPLE))
def test_wrong_submissions(name, tmp_path):
    """Between 0 and 100 %, with the hint that the docstring names."""
    mutants = write_mutants(COURSE, name, tmp_path)
    sample = [path for path in mutants if path.stem.partition("_")[2] in SAMPLE[name]]
    assert len(sample) == len(SAMPLE[name])
    assert problems(name, graded(name, sample)) == []
    assert len(mutants) >= 6


def test_what_does_not_hold_is_said(tmp_path):
    """A wrong submission that nothing fails, one that is told the right hint, and points that do not add up."""
    score, mutant = Score("x", [line("t", cases=1, passed=1)]), write_mutants(COURSE, "a1", tmp_path)[0]
    assert problems_of_mutant(mutant, score) == [
        f"{mutant.name} scores 5 of 5 points (100 %)",
        f"{mutant.name}: no failing test says {hint_of(mutant)!r}",
    ]
    half = Score("x", [line("t", cases=1, passed=1), line("u", cases=1, passed=0, hint=f"So: {hint_of(mutant)}!")])
    assert problems_of_mutant(mutant, half) == []
    assert problems_of_points(half.lines) == [
        "t has no hint",
        "2 visible tests have 10 points",
        "0 hidden tests have 0 points",
    ]


@pytest.mark.parametrize("old", ["no such line", "return"], ids=["nowhere", "twice"])
def test_an_edit_without_a_place_of_its_own_is_an_error(tmp_path, old):
    course = make_course(tmp_path / "course")
    path = course.tests / "mutants" / "a1_more.toml"
    path.write_text(f'mistake = "More."\nhint = "less"\n[[edits]]\nold = "{old}"\nnew = ""\n')
    with pytest.raises(ValueError, match=rf"a1_more.toml: this must stand in its solution once.*\n{old}"):
        write_mutants(course, "a1", tmp_path)
