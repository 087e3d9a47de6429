"""The palette and the type sizes of every picture, light and dark.

Colour never stands alone: each state also has a shape (see `marks.py`), so the pictures survive
greyscale printing and colour-blind readers. Change a colour or a size here and nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass

FONT = "DejaVu Sans"  # ships with matplotlib, so a picture looks the same on every machine

# Type sizes in points.
TITLE = 11.0
LABEL = 8.5
SMALL = 7.5
TINY = 6.5

# Inches.
WIDTH = 9.5  # of a whole figure: a notebook cell or a page in landscape
MARGIN = 0.2
PX = 1 / 100  # the pixel that "2 px" means: 100 to the inch

# Nine muted hues (Paul Tol) for "coloured by owner"; they repeat, so the number in the cell identifies.
OWNERS = ("#cc6677", "#332288", "#ddcc77", "#117733", "#88ccee", "#882255", "#44aa99", "#999933", "#aa4499")


@dataclass(frozen=True)
class Theme:
    """Colours by what they mean, as hex strings.

    Attributes:
        background, surface: behind everything, and the faint band or chip upon it.
        ink, muted, hairline: text, secondary text, rules and ticks.
        waiting, prefill, decode, preempted, finished: states of a sequence.
        empty, cached, private, shared, selected: states of a KV block.
    """

    name: str
    background: str
    surface: str
    ink: str
    muted: str
    hairline: str
    waiting: str
    prefill: str
    decode: str
    preempted: str
    finished: str
    empty: str
    cached: str
    private: str
    shared: str
    selected: str


# Each colour in the light theme and in the dark one.
COLORS = {
    "background": ("#ffffff", "#15181d"),
    "surface": ("#f4f6f8", "#20252a"),
    "ink": ("#1b1f24", "#f4f6f8"),
    "muted": ("#59636e", "#a3adb8"),
    "hairline": ("#d5dae0", "#3a424b"),
    "waiting": ("#868e98", "#6b7682"),
    "prefill": ("#004d9d", "#3d8fe0"),
    "decode": ("#3b97d3", "#a5d8ff"),
    "preempted": ("#d55e00", "#ff8a5c"),
    "finished": ("#1b1f24", "#f4f6f8"),
    "empty": ("#f4f6f8", "#20252a"),
    "cached": ("#c9d1da", "#414a54"),
    "private": ("#7a90a8", "#728ba6"),
    "shared": ("#e69f00", "#f0b429"),
    "selected": ("#004d9d", "#cfe8ff"),
}

LIGHT, DARK = (
    Theme(name, *colors) for name, colors in zip(("light", "dark"), zip(*COLORS.values(), strict=True), strict=True)
)
THEMES = {theme.name: theme for theme in (LIGHT, DARK)}


def get_theme(name: str) -> Theme:
    """The theme called `name`. Raises ValueError with the known names."""
    if name not in THEMES:
        raise ValueError(f"theme must be one of {', '.join(map(repr, THEMES))}, got {name!r}")
    return THEMES[name]


def channels(color: str) -> bytes:
    """Red, green and blue of "#rrggbb", from 0 to 255."""
    return bytes.fromhex(color[1:])


def luminance(color: str) -> float:
    """Relative luminance as WCAG defines it: 0 is black, 1 is white."""
    shares = [channel / 255 for channel in channels(color)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    """WCAG contrast ratio, from 1 (equal) to 21 (black on white)."""
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


def ink_on(fill: str) -> str:
    """Black or white, whichever reads better on `fill`."""
    return max(("#ffffff", "#0b0d10"), key=lambda ink: contrast(ink, fill))


def mix(color: str, other: str, share: float) -> str:
    """`color` with `share` (0 to 1) of `other` stirred in."""
    pairs = zip(channels(color), channels(other), strict=True)
    return "#" + bytes(round((1 - share) * a + share * b) for a, b in pairs).hex()
