// The cell rule, for every kernel: why bilinear resize of logits, then ArgMax, costs little more than nearest.
//
// A cell is the square between four neighbouring source pixels. Inside it every class is a convex combination of its
// four corners. So (1) where one class is the ArgMax at all four corners, it is the ArgMax in the whole cell; and
// (2) elsewhere a class whose largest corner lies below another's smallest corner cannot win and is not evaluated.
//
// Numbers: a NaN loses against every number, and where all classes are NaN the answer is class 0. For interpolation
// values are limited to +-2^125, so that infinities interpolate like large numbers instead of turning into NaN; which of
// several values beyond the limit wins is not defined.
#pragma once

#include "index.h"

#define TRTPOST_LIMIT 4.253529586511731e37f  // 2^125: differences of differences are still finite

// NaN to -limit, infinities to the limits.
TRTPOST_FN float trtpost_limited(float value) {
  const float low = value > -TRTPOST_LIMIT ? value : -TRTPOST_LIMIT;
  return low < TRTPOST_LIMIT ? low : TRTPOST_LIMIT;
}

// Value inside a cell: down the left and right side first, then across.
TRTPOST_FN float trtpost_lerp(float from, float to, float weight) { return from + (to - from) * weight; }
