// Which sanitizer a program is built with, by g++ or by clang.
#pragma once

#ifdef __has_feature
#define ST_HAS_FEATURE(feature) __has_feature(feature)
#else
#define ST_HAS_FEATURE(feature) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || ST_HAS_FEATURE(address_sanitizer)
#define ST_UNDER_ASAN
#endif
#if defined(__SANITIZE_THREAD__) || ST_HAS_FEATURE(thread_sanitizer)
#define ST_UNDER_TSAN
#endif
