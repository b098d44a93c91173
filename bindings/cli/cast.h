// Elements of one dtype as elements of another, and as .npy files hold them.
#pragma once

#include <st/st.h>

#include <optional>
#include <string>
#include <string_view>

namespace stctl {

// Packed elements of `from`, as many, of `to`: each the nearest that there is, of two as near the even one. Beyond the
// range of a float with infinities lies infinity. Elsewhere a number beyond the range is a Failure that names it. So is
// a NaN where the dtype has none, and a complex number with an imaginary part where the dtype is real.
std::string cast(st_dtype from, std::string_view bytes, st_dtype to);

// The same of a tensor. A Failure names it if it has other bytes than its dtype and shape tell: a part of an element
// would get lost unseen.
std::string cast(std::string_view name, const st_tensor &tensor, st_dtype to);

// Bytes of a packed tensor. Nothing if that is too large a number.
std::optional<uint64_t> size_of(st_dtype dtype, const uint64_t *shape, size_t rank);

// The size of what is cast, in bytes.
uint64_t cast_size(st_dtype from, uint64_t nbytes, st_dtype to);

// "cast from F32 to BF16, each to the nearest, ties to even"
std::string cast_text(st_dtype from, st_dtype to);

// Elements of 4 and 6 bits from one byte each, as ml_dtypes has them, and back; of others the bytes as they are.
std::string packed(st_dtype dtype, std::string_view bytes);
std::string unpacked(st_dtype dtype, std::string_view bytes);

}  // namespace stctl
