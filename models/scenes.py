"""Random streets: which things stand where, under which sky.

`random_scene(seed)` lays a scene out and `draw(scene, height, width)` turns it into a photo and its exact labels; how
a single thing looks is the subject of `props`, how shapes become pixels that of `raster`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from props import (
    ASPECT,
    CLASSES,
    GRASS,
    ROAD,
    SKY,
    Place,
    Stage,
    car,
    conifer,
    house,
    lamp,
    leafy_tree,
    person,
    shadow,
)
from raster import Colour, Ellipse, Paint, Point, Polygon, Scene, Shape, Texture, draw

__all__ = ["CLASSES", "Scene", "draw", "random_scene"]

NEAREST, FARTHEST = 1.2, 900.0  # metres; the ground is drawn between these


@dataclass(frozen=True)
class Weather:
    """The light of a scene: the sky's gradient, the clouds, the tint of what the sun lights."""

    zenith: Colour
    skyline: Colour
    cloud: Colour
    tint: Colour
    clouds: float
    sun: Colour | None


WEATHERS: tuple[Weather, ...] = (
    Weather((72, 132, 206), (190, 216, 236), (250, 250, 252), (1.06, 1.04, 0.98), 0.9, (255, 250, 225)),
    Weather((98, 158, 214), (214, 228, 234), (252, 252, 252), (1.0, 1.0, 1.0), 0.7, None),
    Weather((92, 108, 168), (250, 190, 136), (250, 206, 176), (1.1, 0.94, 0.8), 0.8, (255, 226, 170)),
    Weather((150, 164, 180), (206, 212, 218), (228, 230, 234), (0.88, 0.9, 0.94), 1.0, None),
)
"""Noon, morning, evening, overcast."""


def random_scene(seed: int) -> Scene:
    """A street with houses, trees, lamps, cars and persons; the same for the same `seed`."""
    rng = np.random.default_rng(seed)
    weather = WEATHERS[int(rng.choice(len(WEATHERS), p=(0.4, 0.25, 0.2, 0.15)))]
    stage = Stage(
        horizon=rng.uniform(0.42, 0.56),
        vanish=rng.uniform(0.36, 0.64),
        eye=rng.uniform(1.8, 3.0),
        aside=rng.uniform(-1.6, 1.6),
        bend=rng.uniform(-0.0025, 0.0025),
        tint=weather.tint,
        haze=weather.skyline,
    )
    road = rng.uniform(2.9, 3.6)  # half its width, metres
    pavement = rng.uniform(1.4, 2.2)
    shapes = _sky(stage, rng, weather) + _hills(stage, rng) + _ground(stage, rng, road, pavement)
    things = sorted(_things(stage, rng, road, pavement), key=lambda thing: -thing.place[1])
    shapes += [shadow(stage, thing.place, thing.shadow) for thing in things if thing.shadow]
    for thing in things:
        shapes += thing.shapes
    return Scene(tuple(shapes), seed, sensor_noise=rng.uniform(1.0, 3.0))


@dataclass(frozen=True)
class _Thing:
    """A prop that has found its place; `shadow` is the radius of its shadow in metres, 0 for none."""

    place: Place
    shapes: list[Shape]
    shadow: float


def _things(stage: Stage, rng: np.random.Generator, road: float, pavement: float) -> list[_Thing]:
    """Everything that stands on the ground, in no order."""
    kerb = road + pavement
    things: list[_Thing] = []
    for side in (-1, 1):
        things += _houses(stage, rng, side, kerb)
        things += _trees(stage, rng, side, kerb)
        if rng.random() < 0.85:
            things += _lamps(stage, rng, side, road)
        things += _cars(stage, rng, side, road)
        things += _persons(stage, rng, side, road, pavement)
    return things + _wood(stage, rng, kerb)


def _houses(stage: Stage, rng: np.random.Generator, side: int, kerb: float) -> list[_Thing]:
    """A row of houses with gaps."""
    things: list[_Thing] = []
    z = rng.uniform(9, 20)
    while z < 110:
        if rng.random() < 0.72:
            spot = (side * (kerb + rng.uniform(7.5, 11.5)), z)
            things.append(_Thing(spot, house(stage, rng, spot), 0))
        z += rng.uniform(10.5, 18)
    return things


def _trees(stage: Stage, rng: np.random.Generator, side: int, kerb: float) -> list[_Thing]:
    """Trees between the pavement and the houses."""
    things: list[_Thing] = []
    for _ in range(int(rng.integers(5, 11))):
        z = 7 * math.exp(rng.uniform(0, 2.6))  # equally many near and far in the picture, not on the ground
        spot = (side * (kerb + rng.uniform(1.6, 5) + 0.12 * z * rng.random()), z)
        grow = conifer if rng.random() < 0.3 else leafy_tree
        things.append(_Thing(spot, grow(stage, rng, spot), 1.7))
    return things


def _lamps(stage: Stage, rng: np.random.Generator, side: int, road: float) -> list[_Thing]:
    """Street lamps at equal distances along the edge of the road."""
    things: list[_Thing] = []
    z, step = rng.uniform(6, 14), rng.uniform(12, 20)
    while z < 75:
        spot = (side * (road + 0.35), z)
        things.append(_Thing(spot, lamp(stage, rng, spot), 0.25))
        z += step
    return things


def _cars(stage: Stage, rng: np.random.Generator, side: int, road: float) -> list[_Thing]:
    """The cars of one lane; those on the left come towards us."""
    things: list[_Thing] = []
    z = rng.uniform(5, 16)
    while z < 90:
        if rng.random() < 0.7:
            x = side * road * rng.uniform(0.42, 0.6)
            # sorted by its middle, and so is its shadow
            things.append(_Thing((x, z + 2), car(stage, rng, (x, z), oncoming=side < 0), 0))
            things.append(_Thing((x, z + 2.2), [], 1.35))
        z += rng.uniform(7, 22)
    return things


def _persons(stage: Stage, rng: np.random.Generator, side: int, road: float, pavement: float) -> list[_Thing]:
    """People on the pavement; a few walk on the road."""
    things: list[_Thing] = []
    for _ in range(int(rng.integers(1, 6))):
        z = 4.2 * math.exp(rng.uniform(0, 2.2))
        on_road = rng.random() < 0.15
        across = road * rng.uniform(0, 0.9) if on_road else road + rng.uniform(0.3, 1.2) * pavement
        spot = (side * across, z)
        things.append(_Thing(spot, person(stage, rng, spot), 0.32))
    return things


def _wood(stage: Stage, rng: np.random.Generator, kerb: float) -> list[_Thing]:
    """Trees in the distance, on both sides."""
    things: list[_Thing] = []
    for _ in range(int(rng.integers(14, 30))):
        spot = (rng.uniform(-150, 150), rng.uniform(115, 190))
        if abs(spot[0]) > kerb + 4:
            grow = conifer if rng.random() < 0.5 else leafy_tree
            things.append(_Thing(spot, grow(stage, rng, spot), 0))
    return things


def _sky(stage: Stage, rng: np.random.Generator, weather: Weather) -> list[Shape]:
    """The gradient, perhaps the sun, the clouds."""
    low = stage.horizon + 0.02
    everything = ((0.0, 0.0), (1.0, 0.0), (1.0, low), (0.0, low))
    shapes: list[Shape] = [Polygon(everything, SKY, Paint(weather.zenith, weather.skyline))]
    if weather.sun is not None:
        centre = (rng.uniform(0.1, 0.9), rng.uniform(0.08, 0.6) * stage.horizon)
        for size in np.linspace(0.34, 0.04, 24):  # rings too faint to be seen one by one
            glow = Paint(weather.sun, weather.sun, opacity=0.03)
            shapes.append(Ellipse(centre, (ASPECT * size, size), None, glow))
        shapes.append(Ellipse(centre, (ASPECT * 0.034, 0.034), None, Paint(weather.sun, weather.sun)))
    veil = Paint(weather.cloud, weather.cloud, "cloud", opacity=weather.clouds, veil=True)
    shapes.append(Polygon(everything, None, veil))
    return shapes


def _hills(stage: Stage, rng: np.random.Generator) -> list[Shape]:
    """Two or three ridges of meadows behind everything else."""
    shapes: list[Shape] = []
    ridges = int(rng.integers(2, 4))
    for ridge in range(ridges):
        share = (ridges - ridge) / ridges
        phase, waves = rng.uniform(0, 6, 3), rng.uniform((3, 7, 13), (6, 12, 24))
        tall = 0.075 * share
        outline: list[Point] = []
        for step in range(65):
            x = step / 64
            swell = 0.5 + 0.5 * float(np.dot((0.55, 0.3, 0.15), np.sin(waves * x + phase)))
            outline.append((x, stage.horizon - tall * (0.25 + 0.75 * swell)))
        paint = stage.paint((84, 128, 70), 90 + 170 * share, shade=(1, 1.1), texture="leaf", strength=6)
        base = stage.horizon + 0.02
        shapes.append(Polygon((*outline, (1.0, base), (0.0, base)), GRASS, paint))
    return shapes


def _ground(stage: Stage, rng: np.random.Generator, road: float, pavement: float) -> list[Shape]:
    """The meadow, the road with its pavements and marks, tufts and flowers."""
    near = stage.paint((92, 148, 52), 4, texture="blade", strength=11)
    far = stage.paint((128, 172, 78), 120)
    meadow = Paint(far.top, near.bottom, near.texture, near.strength)
    horizon = stage.horizon
    shapes: list[Shape] = [Polygon(((0, horizon), (1, horizon), (1, 1), (0, 1)), GRASS, meadow)]
    shapes += _flowers(stage, rng, road + pavement)

    asphalt = _strip(stage, -road, road, ROAD, (104, 106, 112), "grain")
    for side in (-1, 1):
        inner, outer = side * road, side * (road + pavement)
        shapes += [
            _strip(stage, inner, outer, ROAD, (172, 166, 156), "grain"),
            _strip(stage, inner, inner + side * 0.16, None, (206, 202, 194), "plain"),
        ]
    shapes.append(asphalt)
    for side in (-1, 1):
        edge = side * (road - 0.3)
        shapes.append(_strip(stage, edge - 0.06, edge + 0.06, None, (226, 226, 220), "plain"))
    white = (234, 234, 228)
    z = rng.uniform(2, 5)
    while z < 120:
        shapes.append(_strip(stage, -0.075, 0.075, None, white, "plain", (z, z + 2.2)))
        z += 5.5
    if rng.random() < 0.4:  # a zebra crossing
        z = rng.uniform(8, 22)
        for x in np.arange(-road + 0.5, road - 0.5, 0.95):
            shapes.append(_strip(stage, x, x + 0.5, None, white, "plain", (z, z + 2.8)))
    return shapes


def _flowers(stage: Stage, rng: np.random.Generator, kerb: float) -> list[Shape]:
    """Blades and flowers in the near meadow; detail only, so they are painted and not labelled."""
    shapes: list[Shape] = []
    petals: tuple[Colour, ...] = ((246, 240, 226), (240, 206, 70), (212, 84, 96), (156, 120, 200))
    colour = petals[int(rng.integers(len(petals)))]
    for _ in range(90):
        z = 2.5 * math.exp(rng.uniform(0, 2))
        spot = (math.copysign(kerb + rng.uniform(0.2, 9), rng.uniform(-1, 1)), z)
        lean, tall = rng.uniform(-0.1, 0.1), rng.uniform(0.12, 0.32)
        green = stage.paint((86, 132, 48), z, shade=(1.2, 0.75))
        shapes.append(stage.board(spot, [(-0.025, 0), (lean, tall), (0.025, 0)], None, green))
        if rng.random() < 0.4:
            shapes.append(stage.ball(spot, (lean, tall), (0.05, 0.05), None, stage.paint(colour, z)))
    return shapes


def _strip(
    stage: Stage,
    left: float,
    right: float,
    label: int | None,
    colour: Colour,
    texture: Texture,
    reach: tuple[float, float] = (NEAREST, FARTHEST),
) -> Polygon:
    """A band of the ground along the road: x from `left` to `right`, z over `reach`, all in metres."""
    # the bend is a curve, so the band needs corners in between; in equal steps of the picture, not of the ground
    zs = np.geomspace(*reach, 40 if reach[1] / reach[0] > 10 else 6)
    corners = [(left, 0.0, z) for z in zs] + [(right, 0.0, z) for z in zs[::-1]]
    near, far = stage.paint(colour, reach[0]), stage.paint(colour, min(reach[1], 150))
    return stage.polygon(corners, label, Paint(far.top, near.top, texture, 0.0 if texture == "plain" else 6.0))
