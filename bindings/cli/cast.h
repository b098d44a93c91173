// Elements of one dtype as elements of another, and as .npy files hold them.
#pragma once

#include <st/st.h>

#include <string>
#include <string_view>

namespace stctl {

// Packed elements of `from`, as many, of `to`: each the nearest that there is, of two as near the even one. Beyond the
// range of a float with infinities lies infinity. Elsewhere a number beyond the range is a Failure that names it. So is
// a NaN where the dtype has none, and a complex number with an imaginary part where the dtype is real.
std::string cast(st_dtype from, std::string_view bytes, st_dtype to);

// The size of that, in bytes.
uint64_t cast_size(st_dtype from, uint64_t nbytes, st_dtype to);

// "cast from F32 to BF16, each to the nearest, ties to even"
std::string cast_text(st_dtype from, st_dtype to);

// Elements of 4 and 6 bits from one byte each, as ml_dtypes has them, and back; of others the bytes as they are.
std::string packed(st_dtype dtype, std::string_view bytes);
std::string unpacked(st_dtype dtype, std::string_view bytes);

}  // namespace stctl
