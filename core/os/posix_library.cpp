#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "os/remote_library.h"

namespace st::os {
namespace {

constexpr const char *library = "libst-remote.so.2";

// A program that was linked with -static has none, and no use for dlopen: what glibc's then loads has a C library of
// its own, whose thread-locals nobody set up. The first object that is told of is the program.
bool program_has_loader() {
  bool has = false;
  dl_iterate_phdr(
      [](dl_phdr_info *program, size_t, void *out) {
        for (const ElfW(Phdr) *part = program->dlpi_phdr; part != program->dlpi_phdr + program->dlpi_phnum; ++part)
          if (part->p_type == PT_INTERP) *static_cast<bool *>(out) = true;
        return 1;
      },
      &has);
  return has;
}

}  // namespace

Result<void *> find_in_remote_library(const char *name) {
  if (!program_has_loader())
    return fail(Status::unsupported, "libst reads URLs by ", library,
                ", which a program that is linked statically cannot load; link it without -static, or take the feature "
                "`remote` of the crate libst, for programs in Rust");
  constexpr int how = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
  void *loaded = nullptr;
  std::string why;
  const auto load = [&](const char *file) {
    loaded = dlopen(file, how);
    const char *said = loaded ? nullptr : dlerror();
    if (said) why = said;
  };
  Dl_info here = {};
  if (dladdr(reinterpret_cast<const void *>(&find_in_remote_library), &here) != 0 && here.dli_fname &&
      std::strchr(here.dli_fname, '/')) {
    const std::string own = here.dli_fname, beside = own.substr(0, own.rfind('/') + 1) + library;
    load(beside.c_str());
    // One that is there, and lacks a library of its own.
    if (!loaded && access(beside.c_str(), F_OK) == 0)
      return fail(Status::unsupported, "libst reads URLs by ", in_quotes(beside), ", which cannot be loaded (", why,
                  "); install what it needs");
  }
  if (!loaded) load(library);
  if (loaded) return dlsym(loaded, name);
  return fail(Status::unsupported, "libst reads URLs by ", library, ", which cannot be loaded (",
              why.empty() ? "no reason is told" : why,
              "); install it: `pip install libst-remote` beside libst of pip, or Debian's package libst-remote2; "
              "programs in Rust may take the feature `remote` of the crate libst; and a build of libst makes it "
              "where libcurl, OpenSSL and pugixml are installed");
}

}  // namespace st::os
