// A program that was linked with -static opens no URLs, and is told why. What it would load crashes, if it is found.
#include <cstdio>
#include <cstring>

#include "os/remote_library.h"

int main() {
  const auto found = st::os::find_in_remote_library("st_remote_v1");
  if (found) return std::puts("a static program has loaded a library"), 1;
  std::puts(found.error().message.c_str());
  const bool told =
      found.error().status == st::Status::unsupported && found.error().message.find("statically") != std::string::npos;
  return told ? 0 : 1;
}
