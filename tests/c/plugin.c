/* A plugin that is linked to libst, for two_libraries.c. */
#include <st/st.h>

#include <string.h>

int plugin_run(const char *path);

int plugin_run(const char *path) {
  st_file *file = NULL;
  char got[4] = {0};
  int answer;
  if (st_open(path, NULL, &file) != ST_OK) return 1;
  answer = st_read(file, "a", ST_NTS, got, sizeof got, NULL) == ST_OK && memcmp(got, "data", 4) == 0 ? 0 : 2;
  st_close(file);
  return answer;
}
