// What people are told of the system (os/missing_calls.h has the like for Linux).
#include "os/missing_calls.h"

#include <windows.h>

#include "base/error.h"
#include "os/win32/nt.h"

namespace st::os {

// Which of them it has shows when they are used (replace.cpp).
std::vector<OptionalCall> optional_calls(Env &) {
  return {};
}

std::string platform(Env &) {
  RTL_OSVERSIONINFOW version = {};
  version.dwOSVersionInfoSize = sizeof version;
  ::RtlGetVersion(&version);
  std::string wine;
  if (const HMODULE ntdll = ::GetModuleHandleW(L"ntdll.dll"))
    if (const auto told =
            reinterpret_cast<const char *(*)()>(reinterpret_cast<void *>(::GetProcAddress(ntdll, "wine_get_version"))))
      wine = text(", wine ", told());
  return text("Windows ", version.dwMajorVersion, ".", version.dwMinorVersion, ".", version.dwBuildNumber, " x86_64",
              wine);
}

}  // namespace st::os
