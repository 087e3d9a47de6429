"""The moving picture: as many pictures as steps, each of its step, in both themes, and clear errors."""

import subprocess
import sys

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from PIL import Image

from nanoinfer import simulate
from nanoinfer.viz.animation import _Film, _wrapped, animate
from nanoinfer.viz.canvas import text_width
from nanoinfer.viz.theme import LABEL, get_theme


def frames_of(path):
    """Every picture of a GIF as an array of colours, and for how many milliseconds it shows."""
    frames = []
    with Image.open(path) as image:
        for number in range(image.n_frames):
            image.seek(number)
            frames.append((np.array(image.convert("RGB")), image.info["duration"]))
    return frames


@pytest.fixture(scope="module")
def gif(self_preemption, tmp_path_factory):
    """Steps 3, 4 and 5, of which the middle one has the preemption."""
    path = tmp_path_factory.mktemp("animation") / "run.gif"
    animate(self_preemption, path, fps=10, start=3, end=6)
    return frames_of(path)


def test_a_gif_has_a_picture_for_every_step(gif):
    assert len(gif) == 3
    assert {picture.shape for picture, _ in gif} == {gif[0][0].shape}
    assert [duration for _, duration in gif] == [100] * 3


def test_the_pictures_are_those_of_the_figures(self_preemption, gif):
    """Each part of a frame is the figure of that step, down to what a palette of few colours can show."""
    film = _Film(self_preemption, "light", 3, 6)
    for (shown, _), i in zip(gif, film.steps, strict=True):
        figures = [self_preemption.block_map(i), self_preemption.queues(i)]
        for figure, top in zip(figures, film.tops[[2, 3]], strict=True):
            figure.canvas.draw()
            drawn = np.array(figure.canvas.buffer_rgba())[..., :3].astype(int)
            part = shown[top : top + drawn.shape[0], : drawn.shape[1]]
            assert np.abs(part - drawn).mean() < 0.3, (i, top)


def test_the_words_are_those_of_explain(self_preemption):
    film = _Film(self_preemption, "light", 3, 6)
    for i in film.steps:
        title, *lines = [text.get_text() for text in film._figures(i)[0].texts]
        assert title == f"Step {i} / {len(self_preemption.steps) - 1}"
        assert " ".join(lines) == self_preemption.explain(i).replace("\n", " ")


def test_the_cursor_stands_over_the_step(self_preemption, gif):
    film = _Film(self_preemption, "light", 3, 6)
    axes, height = film.timeline.axes, film.timeline.height
    row = int(film.tops[1] + height - axes.transAxes.transform((0, 0.02))[1])
    ink = np.array(to_rgb(get_theme("light").ink)) * 255
    for (shown, _), i in zip(gif, film.steps, strict=True):
        left, right = (axes.transData.transform((i + side, 0))[0] for side in (-0.5, 0.5))
        dark = [x for x in range(shown.shape[1]) if np.abs(shown[row, x] - ink).max() < 90]
        assert min(abs(x - left) for x in dark) <= 2, i
        assert min(abs(x - right) for x in dark) <= 2, i


def test_the_dark_theme_is_dark(self_preemption, tmp_path):
    animate(self_preemption, tmp_path / "dark.gif", theme="dark", start=-1)
    ((picture, _),) = frames_of(tmp_path / "dark.gif")
    background = np.array(to_rgb(get_theme("dark").background)) * 255
    assert np.abs(picture[2, 2] - background).max() < 3
    assert picture.mean() < 80


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_rare_state_keeps_its_colour(self_preemption, tmp_path, theme):
    """A GIF has 256 colours; those of the letters' edges must not push out that of a preemption."""
    animate(self_preemption, tmp_path / "run.gif", theme=theme, start=3, end=6)
    for name in ("preempted", "shared", "prefill", "decode"):
        color = np.round(np.array(to_rgb(getattr(get_theme(theme), name))) * 255)
        for picture, _ in frames_of(tmp_path / "run.gif"):
            assert (picture == color).all(-1).sum() > 20, name


def test_long_sentences_are_wrapped_and_lose_no_word():
    sentence = "Sequence 12 decodes one token. " * 20
    lines = _wrapped(sentence.strip(), 5.0)
    assert " ".join(lines) == sentence.strip()
    assert len(lines) > 3
    assert max(text_width(line, LABEL) for line in lines) <= 5.0
    assert _wrapped("x" * 400, 5.0) == ["x" * 400]


def test_another_ending_is_refused_before_anything_is_drawn(self_preemption, tmp_path):
    for name in ("run.webm", "run", "gif"):
        with pytest.raises(ValueError, match=r"must end in \.gif or \.mp4"):
            animate(self_preemption, tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_without_ffmpeg_an_mp4_says_what_works(self_preemption, tmp_path, monkeypatch):
    monkeypatch.setitem(mpl.rcParams, "animation.ffmpeg_path", str(tmp_path / "no-such-ffmpeg"))
    with pytest.raises(RuntimeError, match=r"ffmpeg.*\.gif"):
        animate(self_preemption, tmp_path / "run.mp4")
    assert not list(tmp_path.iterdir())


def test_an_mp4_hands_every_picture_to_ffmpeg(self_preemption, tmp_path, monkeypatch):
    """A stand-in for ffmpeg that keeps what it is given: raw pictures of one even size."""
    fake = tmp_path / "ffmpeg"
    fake.write_text(
        f"#!{sys.executable}\nimport json, sys\ndata = sys.stdin.buffer.read()\n"
        "open(sys.argv[-1], 'w').write(json.dumps([sys.argv[1:], len(data)]))\n"
    )
    fake.chmod(0o755)
    monkeypatch.setitem(mpl.rcParams, "animation.ffmpeg_path", str(fake))
    animate(self_preemption, tmp_path / "run.mp4", fps=4, start=3, end=6)
    import json

    arguments, size = json.loads((tmp_path / "run.mp4").read_text())
    width, height = map(int, arguments[arguments.index("-s") + 1].split("x"))
    assert (width % 2, height % 2) == (0, 0)
    assert arguments[arguments.index("-framerate") + 1] == "4"
    assert size == 3 * width * height * 4


def test_bad_values_are_named(self_preemption, tmp_path):
    with pytest.raises(ValueError, match="fps must be above 0, got 0"):
        animate(self_preemption, tmp_path / "run.gif", fps=0)
    with pytest.raises(ValueError, match="theme must be one of"):
        animate(self_preemption, tmp_path / "run.gif", theme="pink")
    with pytest.raises(ValueError, match="no step to draw"):
        animate(self_preemption, tmp_path / "run.gif", start=5, end=5)
    with pytest.raises(ValueError, match="no step to draw"):
        animate(simulate([]), tmp_path / "run.gif")


def test_importing_it_loads_neither_torch_nor_pyplot():
    code = "import sys, nanoinfer.viz.animation\nprint({'torch', 'matplotlib.pyplot'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "set()", done.stderr
