"""A run as a moving picture, for slides and papers' web pages: a GIF, or an MP4 where ffmpeg is installed.

Every step is one picture: what happened in words, the timeline with a cursor, the block map and the
queues. All of them come from the functions that draw the figures; here they are only stacked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

import numpy as np
from matplotlib.colors import to_rgb, to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from tqdm.auto import tqdm

from nanoinfer.trace.trace import Trace
from nanoinfer.viz.block_map import block_map
from nanoinfer.viz.canvas import add_text, new_figure, text_width
from nanoinfer.viz.queues import queues
from nanoinfer.viz.theme import LABEL, MARGIN, THEMES, WIDTH, Theme, get_theme
from nanoinfer.viz.timeline import timeline

Picture = np.ndarray[Any, np.dtype[np.uint8]]  # height x width x red, green, blue
Writer = Callable[[Iterator[Picture], Path, float], None]

LINE = 0.2  # inches of a line of words
NO_FFMPEG = "an .mp4 needs ffmpeg, and no ffmpeg was found; install it, or write a .gif, which needs nothing else"


def animate(
    trace: Trace,
    path: str | Path,
    theme: str = "light",
    fps: float = 8,
    start: int | None = None,
    end: int | None = None,
) -> None:
    """Write steps `start` to `end - 1` of `trace` as an animation.

    A step takes about a third of a second to draw, and a GIF is put together in memory: choose a window
    of a long run.

    Args:
        trace: a recorded run.
        path: ends in .gif or .mp4, which says the format.
        theme: "light" or "dark".
        fps: steps shown in a second.
        start: the first step shown; negative counts from the end, as in a slice.
        end: the first step no longer shown.

    Raises:
        ValueError: another ending, an unknown theme, `fps` not above 0, or no step between `start` and `end`.
        RuntimeError: an .mp4 where ffmpeg is not installed.
    """
    path = Path(path)
    write = _writer(path)
    if not fps > 0:
        raise ValueError(f"fps must be above 0, got {fps}")
    film = _Film(trace, theme, start, end)
    write(film.pictures(), path, fps)


class _Film:
    """The pictures of a window of steps, all of one size."""

    def __init__(self, trace: Trace, theme: str, start: int | None, end: int | None) -> None:
        self.trace, self.theme, self.colors = trace, theme, get_theme(theme)
        self.steps = range(len(trace.steps))[start:end]
        self.timeline = _Cursor(timeline(trace, theme, start, end), self.colors)
        sizes = [[figure.get_size_inches() for figure in self._figures(i)] for i in _progress(self.steps, "measuring")]
        # Pixels from the top at which the words, the timeline, the blocks and the queues begin, and where all end.
        heights = [max(_pixels(size[part][1]) for size in sizes) for part in range(3)]
        self.tops = np.cumsum([0, heights[0], self.timeline.height, *heights[1:]])

    def pictures(self) -> Iterator[Picture]:
        """One picture for every step."""
        for i in _progress(self.steps, "drawing"):
            words, blocks, queue = map(_drawn, self._figures(i))
            yield self._stacked([words, self.timeline.at(i), blocks, queue])

    def _figures(self, i: int) -> tuple[Figure, Figure, Figure]:
        words = _words(self.colors, f"Step {i} / {len(self.trace.steps) - 1}", self.trace.explain(i))
        return words, block_map(self.trace, i, theme=self.theme), queues(self.trace, i, self.theme)

    def _stacked(self, parts: list[Picture]) -> Picture:
        """`parts` under each other; both sides are even, as MP4 wants them."""
        width, height = _pixels(WIDTH), int(self.tops[-1])
        background = [round(255 * part) for part in to_rgba(self.colors.background)[:3]]
        page = np.full((height + height % 2, width + width % 2, 3), background, dtype=np.uint8)
        for top, part in zip(self.tops, parts, strict=False):
            page[top : top + part.shape[0], : part.shape[1]] = part
        return page


class _Cursor:
    """A timeline that is drawn once, and a frame around one of its steps that is drawn over it again and again."""

    def __init__(self, figure: Figure, colors: Theme) -> None:
        self.figure, self.axes = figure, figure.axes[-1]
        bottom, top = sorted(self.axes.get_ylim())
        style: dict[str, Any] = {"facecolor": (*to_rgba(colors.ink)[:3], 0.13), "edgecolor": colors.ink}
        self.box = Rectangle((0, bottom), 1, top - bottom, linewidth=1.2, zorder=20, **style)
        self.axes.add_patch(self.box)
        self.box.set_animated(True)
        self.canvas = cast(Any, figure.canvas)  # an Agg canvas: new_figure made it
        self.canvas.draw()
        self.background = self.canvas.copy_from_bbox(figure.bbox)
        self.height = _rgb(figure).shape[0]

    def at(self, i: int) -> Picture:
        self.canvas.restore_region(self.background)
        self.box.set_x(i - 0.5)
        self.axes.draw_artist(self.box)
        return _rgb(self.figure)


def _words(colors: Theme, title: str, sentences: str) -> Figure:
    """A figure that is only text."""
    lines = [line for sentence in sentences.split("\n") for line in _wrapped(sentence, WIDTH - 2 * MARGIN)]
    figure = new_figure(colors, 0.5 + LINE * len(lines) + 0.1, title)
    height = figure.get_size_inches()[1]
    for number, line in enumerate(lines):
        add_text(figure, colors, (MARGIN / WIDTH, 1 - (0.5 + LINE * (number + 0.5)) / height), line)
    return figure


def _wrapped(sentence: str, width: float) -> list[str]:
    """`sentence` in lines of at most `width` inches."""
    lines = [""]
    for word in sentence.split(" "):
        longer = f"{lines[-1]} {word}".lstrip()
        if lines[-1] and text_width(longer, LABEL) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def _pixels(inches: float) -> int:
    return round(100 * float(inches))


def _drawn(figure: Figure) -> Picture:
    figure.canvas.draw()
    return _rgb(figure)


def _rgb(figure: Figure) -> Picture:
    """A copy of what the figure's canvas shows."""
    return np.array(cast(Any, figure.canvas).buffer_rgba())[..., :3]


def _progress(steps: range, what: str) -> Any:
    """A progress bar that appears once the work has taken a second."""
    return tqdm(steps, desc=what, unit="step", delay=1)


# ---- files --------------------------------------------------------------------------------------


def _writer(path: Path) -> Writer:
    """Who can write such a file."""
    from matplotlib.animation import FFMpegWriter

    suffix = path.suffix.lower()
    if suffix == ".gif":
        return _write_gif
    if suffix != ".mp4":
        raise ValueError(f"an animation's path must end in .gif or .mp4, got {str(path)!r}")
    if not FFMpegWriter.isAvailable():
        raise RuntimeError(NO_FFMPEG)
    return _write_mp4


def _write_gif(pictures: Iterator[Picture], path: Path, fps: float) -> None:
    from PIL import Image

    def indexed(picture: Picture) -> Image.Image:
        numbers, palette = _in_256_colors(picture)
        image = Image.fromarray(numbers)
        image.putpalette(palette.tobytes())
        return image

    first = indexed(next(pictures))
    first.save(path, save_all=True, append_images=map(indexed, pictures), duration=1000 / fps, loop=0)


def _in_256_colors(picture: Picture) -> tuple[np.ndarray[Any, np.dtype[np.uint8]], Picture]:
    """(the number of each pixel's colour, at most 256 colours): all that mean something, and the most frequent.

    A palette of averages would turn a rare preemption into the colour of something frequent.
    """
    names = [field.name for field in fields(Theme) if field.name != "name"]
    meant = [[round(255 * part) for part in to_rgb(getattr(t, name))] for t in THEMES.values() for name in names]
    packed = picture @ np.array([1 << 16, 1 << 8, 1])
    found, place, count = np.unique(packed, return_inverse=True, return_counts=True)
    colors = np.stack([found >> 16, (found >> 8) & 255, found & 255], -1)
    palette = np.array(meant + colors[np.argsort(-count)][: 256 - len(meant)].tolist())
    nearest = ((colors[:, None] - palette[None]) ** 2).sum(-1).argmin(-1)
    return nearest.astype(np.uint8)[place].reshape(packed.shape), palette.astype(np.uint8)


def _write_mp4(pictures: Iterator[Picture], path: Path, fps: float) -> None:
    from matplotlib.animation import FFMpegWriter

    picture = next(pictures)
    height, width, _ = picture.shape
    page = Figure(figsize=(width / 100, height / 100), dpi=100)
    shown = page.figimage(picture)
    writer = FFMpegWriter(fps=fps)  # type: ignore[arg-type]  # ffmpeg takes any number
    with writer.saving(page, str(path), 100):
        writer.grab_frame()
        for picture in pictures:
            shown.set_data(picture)
            writer.grab_frame()
