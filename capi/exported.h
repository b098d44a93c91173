// Before any other header, where everything is hidden else: what st.h declares can be seen.
#pragma GCC visibility push(default)
#include <st/st.h>
#pragma GCC visibility pop
