"""The things that stand in a scene: houses, trees, lamps, cars, persons, each built from shapes.

Everything is measured in metres. `Stage` says where a point of that world lies in the picture; a prop is a function
that takes the stage, a random generator and a place on the ground, and returns shapes from back to front.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from raster import Colour, Ellipse, Paint, Point, Polygon, Shape, Texture

CLASSES: tuple[str, ...] = ("sky", "grass", "road", "house", "tree", "car", "person", "lamp")
"""Class names; the index is the class id in the labels."""

SKY, GRASS, ROAD, HOUSE, TREE, CAR, PERSON, LAMP = range(len(CLASSES))

ASPECT = 3 / 4  # height / width of the picture in which a circle is round
FOCAL = 1.05  # focal length in units of the picture's height
HAZE_DISTANCE = 160.0  # metres after which two thirds of a colour are lost in the haze

Place = tuple[float, float]
"""x (metres right of the road's middle) and z (metres ahead of the camera)."""


@dataclass(frozen=True)
class Stage:
    """The camera, the light and the bend of the road.

    Attributes:
        horizon: height of the horizon in the picture, 0..1 from the top.
        vanish: where the road would vanish if it were straight, 0..1 from the left.
        eye: height of the camera, metres.
        aside: metres the camera stands right of the road's middle.
        bend: how fast the road leaves its direction; the world is shifted by `bend * z**2` metres.
        tint: factor of red, green and blue on everything that the sun lights.
        haze: the colour of far things.
    """

    horizon: float
    vanish: float
    eye: float
    aside: float
    bend: float
    tint: Colour
    haze: Colour

    def at(self, x: float, y: float, z: float) -> Point:
        """Where in the picture the point `x` right of the road, `y` above the ground, `z` ahead lies."""
        scale = FOCAL / z
        across = x - self.aside + self.bend * z * z
        return self.vanish + ASPECT * scale * across, self.horizon + scale * (self.eye - y)

    def paint(
        self,
        colour: Colour,
        z: float,
        *,
        shade: tuple[float, float] = (1.0, 1.0),
        texture: Texture = "plain",
        strength: float = 0.0,
    ) -> Paint:
        """Paint for a thing at distance `z`: tinted by the sun, faded by the haze.

        Args:
            colour: in neutral light.
            z: metres ahead of the camera.
            shade: factor on the brightness at the thing's upper and lower end.
            texture: see `raster.Paint`.
            strength: see `raster.Paint`; the haze takes from it too.
        """
        clear = math.exp(-z / HAZE_DISTANCE)

        def seen(factor: float) -> Colour:
            r, g, b = (h + (c * factor * t - h) * clear for c, t, h in zip(colour, self.tint, self.haze, strict=True))
            return r, g, b

        return Paint(seen(shade[0]), seen(shade[1]), texture, strength * clear)

    def polygon(self, corners: Sequence[tuple[float, float, float]], label: int | None, paint: Paint) -> Polygon:
        """The polygon with these `corners` (x, y, z in metres)."""
        return Polygon(tuple(self.at(*corner) for corner in corners), label, paint)

    def board(self, place: Place, outline: Sequence[tuple[float, float]], label: int | None, paint: Paint) -> Polygon:
        """A flat thing that faces the camera; `outline` in metres right of and above `place`."""
        return self.polygon([(place[0] + x, y, place[1]) for x, y in outline], label, paint)

    def ball(self, place: Place, centre: Point, radii: Point, label: int | None, paint: Paint) -> Ellipse:
        """An ellipse that faces the camera; `centre` and `radii` in metres, relative to `place`."""
        scale = FOCAL / place[1]
        return Ellipse(
            self.at(place[0] + centre[0], centre[1], place[1]),
            (ASPECT * scale * radii[0], scale * radii[1]),
            label,
            paint,
        )


def shadow(stage: Stage, place: Place, radius: float) -> Polygon:
    """The soft dark disc that a thing of that `radius` (metres) throws on the ground; it changes no label."""
    x, z = place
    angles = [2 * math.pi * step / 20 for step in range(20)]
    rim = [(x + 0.25 * radius + 1.25 * radius * math.cos(a), 0.0, z + 0.8 * radius * math.sin(a)) for a in angles]
    return stage.polygon(rim, None, Paint((15, 20, 35), (15, 20, 35), opacity=0.38))


def house(stage: Stage, rng: np.random.Generator, place: Place) -> list[Shape]:
    """A house whose front stands at `place` (the middle of its foot) and looks at the camera."""
    x, z = place
    half, depth = rng.uniform(3.2, 5.5), rng.uniform(6, 10)
    floors = int(rng.integers(1, 4))
    eaves = 2.8 * floors + 0.4
    ridge = eaves + rng.uniform(1.8, 3.2)
    wall = _pick(rng, WALLS)
    front = stage.paint(wall, z, shade=(1.02, 0.92), texture="grain", strength=4)
    side = stage.paint(wall, z, shade=(0.74, 0.66), texture="grain", strength=4)
    tiles = _pick(rng, ROOFS)
    roof = stage.paint(tiles, z, shade=(1.08, 0.88), texture="grain", strength=7)
    inner = x - half if x > 0 else x + half  # the wall that looks at the road
    out = math.copysign(0.35, inner - x)  # the roof reaches over the walls
    back, middle = z + depth, z + depth / 2
    shapes: list[Shape] = []
    if rng.random() < 0.7:
        chimney = x + rng.uniform(-0.5, 0.5) * half
        top = ridge + rng.uniform(0.3, 0.9)
        brick = stage.paint((140, 78, 62), z, shade=(1, 0.85), texture="grain", strength=5)
        shapes.append(_box(stage, (chimney, middle), (0.4, eaves, top), HOUSE, brick))
    if rng.random() < 0.5:  # the gable looks at the camera
        shapes += [
            stage.polygon([(inner, 0, z), (inner, eaves, z), (inner, eaves, back), (inner, 0, back)], HOUSE, side),
            *_side_windows(stage, inner, floors, (z, back)),
            stage.polygon(
                [
                    (inner + out, eaves - 0.2, z),
                    (x, ridge, z),
                    (x, ridge, back),
                    (inner + out, eaves - 0.2, back),
                ],
                HOUSE,
                stage.paint(tiles, z, shade=(0.85, 0.72), texture="grain", strength=7),
            ),
            stage.board(place, [(-half, 0), (-half, eaves), (0, ridge), (half, eaves), (half, 0)], HOUSE, front),
        ]
        for sign in (-1, 1):  # the edge of the roof, seen as a band along the gable
            low = (sign * (half + 0.45), eaves - 0.35)
            band = [low, (0, ridge + 0.05), (0, ridge + 0.4), (low[0], low[1] + 0.35)]
            shapes.append(stage.board(place, band, HOUSE, roof))
    else:  # the slope looks at the camera, the gable at the road
        gable = [(0, z), (eaves, z), (ridge, middle), (eaves, back), (0, back)]
        shapes += [
            stage.polygon([(inner, y, at) for y, at in gable], HOUSE, side),
            *_side_windows(stage, inner, floors, (z, back)),
            stage.board(place, [(-half, 0), (-half, eaves), (half, eaves), (half, 0)], HOUSE, front),
            stage.polygon(
                [
                    (x - half - 0.35, eaves - 0.2, z - 0.3),
                    (x + half + 0.35, eaves - 0.2, z - 0.3),
                    (x + half + 0.35, ridge, middle),
                    (x - half - 0.35, ridge, middle),
                ],
                HOUSE,
                roof,
            ),
        ]
    return shapes + _front_openings(stage, rng, place, half, floors)


def leafy_tree(stage: Stage, rng: np.random.Generator, place: Place) -> list[Shape]:
    """A trunk below a crown of many balls, lit from the upper left."""
    z = place[1]
    height = rng.uniform(5, 10)
    radius = height * rng.uniform(0.24, 0.35)
    green = _vary(rng, _pick(rng, LEAVES), 12)
    crown = height - radius
    width = rng.uniform(0.14, 0.26)
    bark = stage.paint(_vary(rng, (96, 74, 56), 10), z, shade=(0.7, 1.05), texture="grain", strength=9)
    trunk = [(-width, 0), (-0.6 * width, crown), (0.6 * width, crown), (width, 0)]
    shapes: list[Shape] = [stage.board(place, trunk, TREE, bark)]
    balls = 7 if z < 60 else 3  # far away nobody counts them
    for layer, shade in enumerate((0.72, 0.94, 1.2)):  # dark balls below, bright ones on the sunny side
        for _ in range(balls):
            angle, far = rng.uniform(0, 2 * math.pi), radius * 0.75 * math.sqrt(rng.random())
            dx = far * math.cos(angle) - 0.22 * layer * radius
            dy = 1.1 * far * math.sin(angle) + 0.2 * layer * radius
            size = radius * rng.uniform(0.34, 0.56) * (1 - 0.16 * layer)
            leaves = stage.paint(green, z, shade=(shade * 1.1, shade * 0.82), texture="leaf", strength=15)
            shapes.append(stage.ball(place, (dx, crown + dy), (size, size), TREE, leaves))
    return shapes


def conifer(stage: Stage, rng: np.random.Generator, place: Place) -> list[Shape]:
    """A trunk and four skirts of needles."""
    z = place[1]
    height, radius = rng.uniform(6, 12), rng.uniform(1.3, 2.2)
    green = _vary(rng, (44, 88, 62), 12)
    bark = stage.paint((84, 62, 48), z, shade=(0.7, 1), texture="grain", strength=8)
    shapes: list[Shape] = [stage.board(place, [(-0.18, 0), (-0.18, 2), (0.18, 2), (0.18, 0)], TREE, bark)]
    for skirt in range(4):
        low, high = height * (0.12 + 0.2 * skirt), height * (0.46 + 0.18 * skirt)
        reach = radius * (1 - 0.21 * skirt)
        needles = stage.paint(green, z, shade=(1.3, 0.72), texture="leaf", strength=12)
        outline = [
            (-reach, low),
            (-0.5 * reach, low - 0.18),
            (0, low),
            (0.5 * reach, low - 0.18),
            (reach, low),
        ]
        shapes.append(stage.board(place, [*outline, (0, min(high, height))], TREE, needles))
    return shapes


def lamp(stage: Stage, rng: np.random.Generator, place: Place) -> list[Shape]:
    """A street lamp: pole, arm over the road, head."""
    x, z = place
    height, reach = rng.uniform(4.6, 5.4), math.copysign(rng.uniform(1.0, 1.4), -x)
    metal = stage.paint((72, 78, 84), z, shade=(1.1, 0.8))
    glass = stage.paint((250, 240, 205), z)
    lower, upper = 0.10, 0.065  # half of the pole's width
    pole = [(-lower, 0), (-lower, 0.9), (-upper, 1.0), (-upper, height), (upper, height), (upper, 1.0)]
    arm = [(0, height - 0.12), (reach, height + 0.28), (reach, height + 0.42), (-upper, height + 0.04)]
    start, end = 0.75 * reach, 1.55 * reach
    head = [(start, height + 0.2), (start, height + 0.44), (end, height + 0.5), (end, height + 0.2)]
    light = [(start * 1.1, height + 0.1), (start * 1.1, height + 0.22), (end * 0.96, height + 0.22)]
    return [
        stage.board(place, [*pole, (lower, 0.9), (lower, 0)], LAMP, metal),
        stage.board(place, arm, LAMP, metal),
        stage.board(place, [*light, (end * 0.96, height + 0.1)], LAMP, glass),
        stage.board(place, head, LAMP, metal),
    ]


def car(stage: Stage, rng: np.random.Generator, place: Place, *, oncoming: bool) -> list[Shape]:
    """A car whose near end stands at `place`; of an `oncoming` one we see the front."""
    x, z = place
    half, length = 0.92, rng.uniform(3.9, 4.6)
    belt, top = 0.88, rng.uniform(1.42, 1.62)
    lacquer = _vary(rng, _pick(rng, LACQUERS), 10)
    near = stage.paint(lacquer, z, shade=(1.05, 0.72))
    flank = stage.paint(lacquer, z, shade=(0.85, 0.6))
    lid = stage.paint(lacquer, z, shade=(1.25, 1.12))
    glass = stage.paint((58, 76, 92), z, shade=(1.35, 0.75))
    rubber = stage.paint((28, 28, 31), z)
    seen_from_left = stage.at(x, 0, z)[0] > stage.at(stage.aside - stage.bend * z * z, 0, z)[0]
    side = x - half if seen_from_left else x + half
    # the cabin's posts: foot and head of the near window, head and foot of the far one
    posts = (0.75, 1.45, 2.7, 3.3) if oncoming else (0.2, 0.8, 2.3, 3.2)
    foot, brow, crest, end = (z + post * length / 4.2 for post in posts)
    inset = side + (0.14 if seen_from_left else -0.14)  # the cabin is narrower at its top
    shapes: list[Shape] = [
        stage.polygon([(side, 0.3, z), (side, belt, z), (side, belt, z + length), (side, 0.3, z + length)], CAR, flank)
    ]
    for axle in (0.19, 0.8):
        shapes += [
            _wheel(stage, side, z + axle * length, 0.33, rubber),
            _wheel(stage, side, z + axle * length, 0.18, stage.paint((150, 152, 156), z)),
        ]
    shapes += [
        _flat(stage, (x - half, x + half), (belt, z), (belt, z + length), lid),
        stage.polygon([(side, belt, foot), (inset, top, brow), (inset, top, crest), (side, belt, end)], CAR, flank),
        stage.polygon(
            [
                (side, belt + 0.05, foot + 0.35),
                (inset, top - 0.08, brow + 0.12),
                (inset, top - 0.08, crest - 0.1),
                (side, belt + 0.05, end - 0.35),
            ],
            None,
            glass,
        ),
        _flat(stage, (x - half + 0.14, x + half - 0.14), (top, brow), (top, crest), lid),
        _slope(stage, x, (half, belt, foot), (half - 0.14, top, brow), CAR, near),
        _slope(stage, x, (half - 0.14, belt + 0.06, foot), (half - 0.24, top - 0.08, brow - 0.05), None, glass),
    ]
    for wheel in (-half + 0.16, half - 0.16):
        tyre = [(wheel - 0.13, 0), (wheel - 0.13, 0.45), (wheel + 0.13, 0.45), (wheel + 0.13, 0)]
        shapes.append(stage.board(place, tyre, CAR, rubber))
    outline = [
        (-half + 0.08, 0.22),
        (-half, 0.32),
        (-half, belt),
        (half, belt),
        (half, 0.32),
        (half - 0.08, 0.22),
    ]
    shapes.append(stage.board(place, outline, CAR, near))
    return shapes + _car_face(stage, place, half, oncoming)


def person(stage: Stage, rng: np.random.Generator, place: Place) -> list[Shape]:
    """A walking person."""
    z = place[1]
    size = rng.uniform(1.55, 1.92) / 1.75  # the figures below are those of a person 1.75 m tall
    stride, swing = rng.uniform(0.05, 0.3), rng.uniform(0.1, 0.3)
    build = rng.uniform(0.9, 1.15)
    skin = stage.paint(_pick(rng, SKINS), z, shade=(1.05, 0.9))
    hair = stage.paint(_pick(rng, HAIRS), z, shade=(1.2, 0.9))
    jacket = _vary(rng, _pick(rng, CLOTHES), 14)
    upper = stage.paint(jacket, z, shade=(1.1, 0.85), texture="grain", strength=5)
    sleeve = stage.paint(jacket, z, shade=(0.95, 0.72), texture="grain", strength=5)
    trousers = stage.paint(_vary(rng, _pick(rng, TROUSERS), 10), z, shade=(1.05, 0.85), texture="grain", strength=4)
    shoe = stage.paint((38, 32, 30), z)

    def limb(a: Point, b: Point, wide: float, narrow: float, paint: Paint) -> Shape:
        outline = [(a[0] - wide, a[1]), (a[0] + wide, a[1]), (b[0] + narrow, b[1]), (b[0] - narrow, b[1])]
        return stage.board(place, [(size * dx, size * y) for dx, y in outline], PERSON, paint)

    def ball(centre: Point, radii: Point, paint: Paint) -> Shape:
        cx, cy = centre
        return stage.ball(place, (size * cx, size * cy), (size * radii[0], size * radii[1]), PERSON, paint)

    hip, shoulder = 0.10 * build, 0.19 * build
    shapes: list[Shape] = []
    for sign in (-1, 1):
        ankle = sign * (0.06 + stride / 2)
        shapes += [
            limb((sign * hip * 0.7, 0.92), (ankle, 0.07), 0.10 * build, 0.06, trousers),
            ball((ankle + 0.03, 0.05), (0.11, 0.05), shoe),
        ]
    for sign in (-1, 1):
        hand = (sign * (shoulder + swing), 0.84)
        shapes += [
            limb((sign * shoulder, 1.42), hand, 0.065, 0.05, sleeve),
            ball(hand, (0.05, 0.06), skin),
        ]
    torso = [
        (-shoulder, 1.44),
        (-0.08, 1.5),
        (0.08, 1.5),
        (shoulder, 1.44),
        (hip + 0.07, 0.86),
        (-hip - 0.07, 0.86),
    ]
    shapes += [
        limb((0, 1.56), (0, 1.46), 0.05, 0.06, skin),
        stage.board(place, [(size * dx, size * y) for dx, y in torso], PERSON, upper),
        ball((0, 1.635), (0.1, 0.13), skin),
        ball((-0.01, 1.69), (0.112, 0.08), hair),
    ]
    return shapes


WALLS: tuple[Colour, ...] = (
    *((232, 222, 200), (214, 178, 140), (196, 110, 88), (226, 204, 142)),
    *((188, 200, 208), (240, 238, 232), (206, 150, 130), (168, 182, 158)),
)
ROOFS: tuple[Colour, ...] = ((158, 78, 60), (120, 62, 52), (92, 92, 102), (134, 98, 78), (80, 72, 78))
LEAVES: tuple[Colour, ...] = ((72, 122, 52), (92, 138, 58), (58, 104, 58), (132, 140, 52), (178, 122, 48))
LACQUERS: tuple[Colour, ...] = (
    *((186, 36, 40), (34, 74, 150), (226, 228, 230), (52, 56, 62)),
    *((228, 176, 44), (62, 128, 112), (150, 156, 164), (216, 110, 50)),
)
SKINS: tuple[Colour, ...] = ((236, 192, 160), (206, 156, 120), (150, 104, 76), (104, 70, 52))
HAIRS: tuple[Colour, ...] = ((40, 30, 26), (88, 58, 36), (190, 150, 84), (150, 146, 142))
CLOTHES: tuple[Colour, ...] = (
    *((196, 52, 58), (44, 92, 168), (240, 240, 236), (236, 178, 52)),
    *((120, 62, 130), (36, 40, 50), (226, 120, 60), (70, 150, 140)),
)
TROUSERS: tuple[Colour, ...] = ((44, 58, 92), (40, 40, 44), (124, 104, 80), (92, 98, 104))


def _pick(rng: np.random.Generator, colours: Sequence[Colour]) -> Colour:
    return colours[int(rng.integers(len(colours)))]


def _vary(rng: np.random.Generator, colour: Colour, spread: float) -> Colour:
    """`colour` with each channel moved by up to `spread`."""
    r, g, b = (channel + rng.uniform(-spread, spread) for channel in colour)
    return r, g, b


def _box(stage: Stage, place: Place, size: tuple[float, float, float], label: int, paint: Paint) -> Polygon:
    """A rectangle that faces the camera: half its width, then the height of its lower and upper edge."""
    half, low, high = size
    return stage.board(place, [(-half, low), (-half, high), (half, high), (half, low)], label, paint)


def _front_openings(stage: Stage, rng: np.random.Generator, place: Place, half: float, floors: int) -> list[Shape]:
    """The door and the windows of a house's front."""
    z = place[1]
    frame = stage.paint((242, 240, 234), z)
    pane = stage.paint((70, 92, 112), z, shade=(1.4, 0.75))
    columns = 3 if half > 4 else 2
    door_column = int(rng.integers(columns))
    shutter = stage.paint(_pick(rng, LACQUERS), z, shade=(0.9, 0.75))
    with_shutters = rng.random() < 0.4
    shapes: list[Shape] = []

    def rectangle(x: float, y: float, wide: float, high: float, paint: Paint) -> None:
        outline = [(x - wide, y), (x - wide, y + high), (x + wide, y + high), (x + wide, y)]
        shapes.append(stage.board(place, outline, None, paint))

    for floor in range(floors):
        for column in range(columns):
            x = half * (2 * (column + 0.5) / columns - 1)
            if floor == 0 and column == door_column:
                rectangle(x, 0, 0.62, 2.2, frame)
                rectangle(x, 0, 0.5, 2.1, shutter)
                continue
            y = 2.8 * floor + 1.0
            if with_shutters:
                rectangle(x, y - 0.05, 1.05, 1.4, shutter)
            rectangle(x, y - 0.1, 0.6, 1.5, frame)
            rectangle(x - 0.26, y, 0.22, 1.3, pane)
            rectangle(x + 0.26, y, 0.22, 1.3, pane)
    return shapes


def _side_windows(stage: Stage, x: float, floors: int, reach: tuple[float, float]) -> list[Shape]:
    """Two windows a floor in the wall that runs away from the camera at `x`, from `reach[0]` to `reach[1]` metres."""
    z0, z1 = reach
    pane = stage.paint((52, 70, 88), z0, shade=(1.2, 0.8))
    shapes: list[Shape] = []
    for floor in range(floors):
        low, high = 2.8 * floor + 1.0, 2.8 * floor + 2.3
        for middle in (0.3, 0.7):
            near, far = (z0 + (z1 - z0) * (middle + shift) for shift in (-0.08, 0.08))
            shapes.append(stage.polygon([(x, low, near), (x, high, near), (x, high, far), (x, low, far)], None, pane))
    return shapes


def _flat(
    stage: Stage,
    across: tuple[float, float],
    near: tuple[float, float],
    far: tuple[float, float],
    paint: Paint,
) -> Polygon:
    """A car's level surface over x `across`; `near` and `far` are (y, z) of its two edges."""
    left, right = across
    return stage.polygon([(left, *near), (right, *near), (right, *far), (left, *far)], CAR, paint)


def _slope(
    stage: Stage,
    x: float,
    low: tuple[float, float, float],
    high: tuple[float, float, float],
    label: int | None,
    paint: Paint,
) -> Polygon:
    """A car's window, or the wall around it: (half width, y, z) of the lower and the upper edge."""
    corners = [
        *((x - low[0], low[1], low[2]), (x - high[0], high[1], high[2])),
        *((x + high[0], high[1], high[2]), (x + low[0], low[1], low[2])),
    ]
    return stage.polygon(corners, label, paint)


def _wheel(stage: Stage, x: float, z: float, radius: float, paint: Paint) -> Polygon:
    """A wheel seen from the side, in the plane at `x`."""
    angles = [2 * math.pi * step / 24 for step in range(24)]
    rim = [(x, 0.33 + radius * math.sin(a), z + radius * math.cos(a)) for a in angles]
    return stage.polygon(rim, CAR, paint)


def _car_face(stage: Stage, place: Place, half: float, oncoming: bool) -> list[Shape]:
    """The lights, the plate, and the grille or the bumper."""
    z = place[1]
    light = stage.paint((255, 250, 225) if oncoming else (214, 30, 34), z)
    dark = stage.paint((40, 42, 46), z)
    plate = stage.paint((238, 236, 220), z)

    def rectangle(x: float, y: float, wide: float, high: float, paint: Paint) -> Shape:
        outline = [(x - wide, y), (x - wide, y + high), (x + wide, y + high), (x + wide, y)]
        return stage.board(place, outline, None, paint)

    grille = rectangle(0, 0.52, 0.42, 0.16, dark) if oncoming else rectangle(0, 0.27, half - 0.12, 0.1, dark)
    return [
        grille,
        rectangle(0, 0.38, 0.26, 0.11, plate),
        rectangle(-half + 0.2, 0.6, 0.14, 0.15, light),
        rectangle(half - 0.2, 0.6, 0.14, 0.15, light),
    ]
