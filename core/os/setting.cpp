#include "os/setting.h"

namespace st::os {

std::optional<std::string_view> setting(Env &env, const char *name) {
  const char *value = env.getenv(name);
  if (!value || !*value) return std::nullopt;
  return value;
}

Failure no_such_setting(const char *name, std::string_view value, std::string_view takes) {
  return fail(Status::invalid_argument, "the environment has ", name, "=", in_quotes(value), "; it takes ", takes);
}

}  // namespace st::os
