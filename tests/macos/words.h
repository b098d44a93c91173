// Included first in each test of unit/, so that it compiles for macOS with zig's headers.
#pragma once

#include <float.h>  // which GoogleTest takes for granted
#include <math.h>

#ifndef INFINITY  // which libc++'s <random> takes for granted
#define INFINITY __builtin_inff()
#endif
