"""Vector shapes and how they become pixels: one photo and its exact labels, at any resolution.

A `Scene` holds shapes in fractions of the picture (x of its width, y of its height, both 0..1 from the top left
corner), so the same scene can be drawn at 192x256 and at 3024x4032. Both images come from one scanline algorithm: the
places where a shape's outline crosses a line of pixels. The labels ask only on which side of a crossing a pixel's
centre lies; the photo uses the share of the pixel that is covered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Colour = tuple[float, float, float]
"""Red, green, blue, in units of the 8-bit pixel; may lie outside 0..255 before the photo is clipped."""

Point = tuple[float, float]
"""x and y in fractions of the picture's width and height."""

Texture = Literal["plain", "cloud", "leaf", "blade", "grain"]

OCTAVES: dict[Texture, tuple[tuple[int, int, float], ...]] = {
    "plain": (),
    "cloud": ((4, 3, 1.0), (9, 6, 0.7), (20, 12, 0.4), (44, 28, 0.22), (96, 64, 0.1)),
    "leaf": ((24, 32, 0.5), (60, 80, 0.8), (130, 170, 0.8), (300, 400, 0.5)),
    "blade": ((12, 6, 0.8), (40, 24, 0.5), (140, 80, 0.6), (420, 300, 0.6)),
    "grain": ((10, 12, 0.5), (120, 160, 0.3), (360, 480, 0.8)),
}
"""The noise of each texture: (rows, columns, amplitude) of grids that are stretched over the whole picture.

The grids, not the pixels, carry the noise; so a texture looks the same at every resolution.
"""

LINES_PER_PIXEL = 4  # the photo's vertical antialiasing; horizontally the coverage is exact


@dataclass(frozen=True)
class Paint:
    """How a shape looks: a vertical gradient over the shape's own extent, and a texture on top.

    Attributes:
        top: colour at the shape's upper end.
        bottom: colour at its lower end.
        texture: which noise field varies the brightness.
        strength: standard deviation of that variation, in units of the 8-bit pixel.
        opacity: 0..1; below 1 the shapes behind shine through.
        veil: the texture varies the opacity instead of the brightness, which makes clouds.
    """

    top: Colour
    bottom: Colour
    texture: Texture = "plain"
    strength: float = 0.0
    opacity: float = 1.0
    veil: bool = False


class Crossings(NamedTuple):
    """Places where an outline crosses lines of pixels, in no order; three arrays of one length.

    Attributes:
        line: index of the line, int64.
        x: in fractions of the picture's width, float64.
        direction: +1 where the outline runs down, -1 where it runs up, int64; so the running sum along a line is 0
            outside the shape.
    """

    line: NDArray[np.int64]
    x: NDArray[np.float64]
    direction: NDArray[np.int64]


@dataclass(frozen=True)
class Polygon:
    """A simple polygon in either orientation. `label` None paints the photo and leaves the labels as they are."""

    points: tuple[Point, ...]
    label: int | None
    paint: Paint

    def bounds(self) -> tuple[float, float, float, float]:
        """Left, top, right, bottom, in fractions of the picture."""
        xs, ys = zip(*self.points, strict=True)
        return min(xs), min(ys), max(xs), max(ys)

    def crossings(self, lines: NDArray[np.float64]) -> Crossings:
        """Where the outline crosses the horizontal `lines` (ascending y, in fractions of the height)."""
        start = np.array(self.points)
        end = np.roll(start, -1, axis=0)
        # half-open in y: a line through a corner meets exactly one of the two edges there, a level edge meets none
        first = np.searchsorted(lines, np.minimum(start[:, 1], end[:, 1]))
        last = np.searchsorted(lines, np.maximum(start[:, 1], end[:, 1]))
        count = last - first
        edge = np.repeat(np.arange(len(start)), count)
        line = np.arange(len(edge)) + np.repeat(first - (np.cumsum(count) - count), count)
        x0, y0, (dx, dy) = start[edge, 0], start[edge, 1], (end - start)[edge].T
        return Crossings(line, x0 + (lines[line] - y0) * (dx / dy), np.where(dy > 0, 1, -1))


@dataclass(frozen=True)
class Ellipse:
    """An axis-parallel ellipse; `radii` horizontal and vertical. `label` as in `Polygon`."""

    centre: Point
    radii: Point
    label: int | None
    paint: Paint

    def bounds(self) -> tuple[float, float, float, float]:
        """Left, top, right, bottom, in fractions of the picture."""
        (x, y), (rx, ry) = self.centre, self.radii
        return x - rx, y - ry, x + rx, y + ry

    def crossings(self, lines: NDArray[np.float64]) -> Crossings:
        """As `Polygon.crossings`: the left half of the outline, then the right half."""
        (x, y), (rx, ry) = self.centre, self.radii
        first, last = np.searchsorted(lines, (y - ry, y + ry))
        half = rx * np.sqrt(np.maximum(0.0, 1.0 - ((lines[first:last] - y) / ry) ** 2))
        line = np.tile(np.arange(first, last), 2)
        return Crossings(line, np.concatenate([x - half, x + half]), np.repeat((1, -1), last - first))


Shape = Polygon | Ellipse


@dataclass(frozen=True)
class Scene:
    """A picture before it has pixels.

    Attributes:
        shapes: from back to front.
        seed: of the textures and of the sensor noise.
        sensor_noise: standard deviation of the noise each pixel gets for itself, in units of the 8-bit pixel.
    """

    shapes: tuple[Shape, ...]
    seed: int
    sensor_noise: float = 2.0


def draw(
    scene: Scene, height: int, width: int, *, antialias: bool = True
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Draw the photo and its labels.

    Args:
        scene: what to draw.
        height: of both images, in pixels.
        width: of both images, in pixels.
        antialias: False colours a pixel by what lies at its centre alone, which is how a large photo looks after it
            was shrunk without a filter.

    Returns:
        The photo, uint8 [height, width, 3] (RGB), and the class ids, uint8 [height, width]; a pixel's class is that of
        the frontmost labelled shape at the pixel's centre, 0 where there is none.
    """
    photo = np.zeros((height, width, 3), np.float32)
    labels = np.zeros((height, width), np.uint8)
    textures: dict[Texture, NDArray[np.float32]] = {}
    for shape in scene.shapes:
        window = _window(shape, height, width)
        if window is None:
            continue
        inside = _inside(shape, window, height, width)
        if shape.label is not None:
            labels[window][inside] = shape.label
        coverage = _coverage(shape, window, height, width) if antialias else inside.astype(np.float32)
        name = shape.paint.texture
        if name not in textures:
            textures[name] = texture_field(name, scene.seed, height, width)
        y = (np.arange(height, dtype=np.float32)[window[0]] + np.float32(0.5)) / np.float32(height)
        _blend(photo[window], coverage, shape, y, textures[name][window])
    noise = np.random.default_rng((scene.seed, height, width))
    for row in range(height):  # one at a time: a 12-megapixel photo needs no second array of its size
        photo[row] += scene.sensor_noise * noise.standard_normal((width, 3), np.float32)
    return np.clip(np.rint(photo, out=photo), 0, 255, out=photo).astype(np.uint8), labels


def texture_field(name: Texture, seed: int, height: int, width: int) -> NDArray[np.float32]:
    """The noise of texture `name` over the whole picture: float32 [height, width], mean about 0, deviation about 1."""
    field = np.zeros((height, width), np.float32)
    norm = sum(amplitude**2 for _, _, amplitude in OCTAVES[name]) ** 0.5
    for octave, (rows, columns, amplitude) in enumerate(OCTAVES[name]):
        rng = np.random.default_rng((seed, octave, rows, columns))
        grid = rng.standard_normal((rows, columns), np.float32) * (1.5 * amplitude / norm)  # bicubic takes a third
        field += np.asarray(Image.fromarray(grid).resize((width, height), Image.Resampling.BICUBIC))
    return field


def _window(shape: Shape, height: int, width: int) -> tuple[slice, slice] | None:
    """The rows and columns of the pixels that `shape` can touch, or None where it lies outside the picture."""
    left, top, right, bottom = shape.bounds()
    rows = slice(max(0, int(np.floor(top * height))), min(height, int(np.ceil(bottom * height))))
    columns = slice(max(0, int(np.floor(left * width))), min(width, int(np.ceil(right * width))))
    return (rows, columns) if rows.start < rows.stop and columns.start < columns.stop else None


def _inside(shape: Shape, window: tuple[slice, slice], height: int, width: int) -> NDArray[np.bool_]:
    """Which pixel centres of the window lie in the shape: bool [rows, columns]."""
    rows, columns = window
    span = columns.stop - columns.start
    winding = np.zeros((rows.stop - rows.start, span + 1), np.int8)
    line, x, direction = shape.crossings((np.arange(rows.start, rows.stop) + 0.5) / height)
    # from the first pixel on whose centre lies right of the crossing
    column = np.ceil(x * width - 0.5).astype(np.int64) - columns.start
    np.add.at(winding, (line, np.minimum(np.maximum(column, 0), span)), direction)
    np.cumsum(winding, axis=1, dtype=np.int8, out=winding)
    inside: NDArray[np.bool_] = winding[:, :span] != 0
    return inside


def _coverage(shape: Shape, window: tuple[slice, slice], height: int, width: int) -> NDArray[np.float32]:
    """Which share of each pixel of the window the shape covers: float32 [rows, columns], 0..1."""
    rows, columns = window
    span = columns.stop - columns.start
    # Between two crossings the coverage is constant, so only its change is written, and summed up along the row. Two
    # more columns take what changes right of the window.
    change = np.zeros((rows.stop - rows.start, span + 2), np.float32)
    count = LINES_PER_PIXEL
    lines = (np.arange(rows.start * count, rows.stop * count) + 0.5) / (height * count)
    line, x, direction = shape.crossings(lines)
    x = np.minimum(np.maximum(x * width - columns.start, 0), span)
    column = x.astype(np.int64)
    outside = (x - column) * direction / count  # the part of the crossed pixel that lies left of the crossing
    np.add.at(change, (line // count, column), direction / count - outside)
    np.add.at(change, (line // count, column + 1), outside)
    np.cumsum(change, axis=1, out=change)
    return np.minimum(np.abs(change[:, :span]), 1.0)


def _blend(
    photo: NDArray[np.float32],
    coverage: NDArray[np.float32],
    shape: Shape,
    y: NDArray[np.float32],
    texture: NDArray[np.float32],
) -> None:
    """Paint one shape onto its window of the photo, in place; `y` is the height of each row in the whole picture."""
    paint = shape.paint
    _, top, _, bottom = shape.bounds()
    t = np.clip((y - top) / max(bottom - top, 1e-9), 0, 1)[:, None]
    alpha = coverage * paint.opacity
    if paint.veil:
        alpha *= np.clip(0.5 * texture + 0.1, 0, 1)
    for channel in range(3):  # one at a time keeps the temporaries at a third
        colour = paint.top[channel] + (paint.bottom[channel] - paint.top[channel]) * t
        if paint.strength and not paint.veil:
            colour = colour + paint.strength * texture
        photo[..., channel] += alpha * (colour - photo[..., channel])
