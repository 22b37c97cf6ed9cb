"""The stand-in driver, through the real pycuda."""

from __future__ import annotations

import ctypes
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import control
import graphs
import numpy as np
import pycuda.driver as cuda
import pytest

from trtpost.cuda import driver as driver_here

PTX = """//
.version 8.8
.target sm_75
.address_size 64
/* .entry not_this_one( .param .u32 x ) */
.visible .entry scale(
    .param .u64 .ptr .global .align 16 values,
    .param .f32 factor,
    .param .u32 number
)
.maxntid 256, 1, 1
{
    ret;
}
.visible .entry by_value(
    .param .u8 flag,
    .param .align 8 .b8 region[24],
    .param .s32 last
)
.reqntid 32
{
    ret;
}
.visible .entry unknown_to_the_host() { ret; }
"""


