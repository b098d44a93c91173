// Element types and the library's version.
#include "boundary.h"
#include "format/dtype.h"

#define ST_STRING(x) #x
#define ST_EXPANDED(x) ST_STRING(x)

#define ST_DTYPE(name, number, bits, rank) static_assert(ST_DTYPE_##name == (number));
#include "format/dtype_list.h"
#undef ST_DTYPE

const char *st_dtype_name(st_dtype dtype) {
  return st::is_dtype(dtype) ? st::dtype_name(static_cast<st::Dtype>(dtype)).data() : nullptr;
}

uint32_t st_dtype_bits(st_dtype dtype) {
  return st::is_dtype(dtype) ? st::dtype_bits(static_cast<st::Dtype>(dtype)) : 0;
}

st_status st_dtype_parse(const char *name, size_t name_len, st_dtype *out) {
  return st::capi::boundary([&]() -> st::Result<void> {
    ST_TRY(st::capi::require("st_dtype_parse", name, out));
    const std::string_view wanted = st::capi::name_of(name, name_len);
    const auto dtype = st::parse_dtype(wanted);
    if (!dtype) return st::fail(st::Status::dtype, "there is no dtype named ", st::in_quotes(wanted));
    *out = static_cast<st_dtype>(*dtype);
    return {};
  });
}

const char *st_version(void) {
  return ST_EXPANDED(ST_VERSION_MAJOR) "." ST_EXPANDED(ST_VERSION_MINOR) "." ST_EXPANDED(ST_VERSION_PATCH);
}
