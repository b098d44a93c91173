// Numbers of errors by which the rooms decide, also those that a C library lacks because its system never answers them.
#pragma once

#include <cerrno>

#ifndef ESTALE
#define ESTALE 116
#endif
#ifndef EDQUOT
#define EDQUOT 122
#endif
