/* Debian's State Threads owns libst.so.1 and the unversioned names st_open,
 * st_read and st_write. Both libraries in one process, loaded in either order,
 * by name or by a plugin that is linked to libst: each answers to its own.
 * (But for one order: where State Threads is in the *global* scope first, the
 * loader binds anybody's st_open to its unversioned one; versions cannot help.)
 * Exit 77: there is no State Threads library here.
 *   two_libraries LIBST.SO.2 PLUGIN.SO */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <st/st.h>

/* As its manual gives them. */
typedef struct _st_netfd *st_netfd_t;
typedef int (*st_threads_init_fn)(void);
typedef st_netfd_t (*st_threads_open_fn)(const char *path, int flags, mode_t mode);
typedef ssize_t (*st_threads_read_fn)(st_netfd_t fd, void *buffer, size_t n, unsigned long long timeout);
typedef int (*st_threads_close_fn)(st_netfd_t fd);

typedef st_status (*open_fn)(const char *path, const st_open_options *options, st_file **out);
typedef st_status (*read_fn)(st_file *file, const char *name, size_t name_len, void *to, size_t n, st_tensor *read);
typedef void (*close_fn)(st_file *file);

#define NEED(condition)                                                       \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                                \
    }                                                                         \
  } while (0)

/* dlsym answers a pointer to data; C wants it copied into one to a function. */
#define FIND(library, name, out)                          \
  do {                                                    \
    void *found_ = dlsym(library, name);                  \
    NEED(found_ != NULL && sizeof found_ == sizeof(out)); \
    memcpy(&(out), &found_, sizeof(out));                 \
  } while (0)

static const char state_threads[] = "libst.so.1";
static char path[] = "/tmp/libst-two-XXXXXX";
static const char bytes[] = "\x38\0\0\0\0\0\0\0{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}   data";

static void use_threads(void *library) {
  st_threads_init_fn init;
  st_threads_open_fn open_it;
  st_threads_read_fn read_it;
  st_threads_close_fn close_it;
  st_netfd_t fd;
  char got[8];
  FIND(library, "st_init", init);
  FIND(library, "st_open", open_it);
  FIND(library, "st_read", read_it);
  FIND(library, "st_netfd_close", close_it);
  NEED(init() == 0);
  fd = open_it(path, O_RDONLY, 0);
  NEED(fd != NULL);
  NEED(read_it(fd, got, 8, (unsigned long long)-1) == 8);
  NEED(memcmp(got, bytes, 8) == 0);
  NEED(close_it(fd) == 0);
}

static void use_libst(void *library) {
  open_fn open_it;
  read_fn read_it;
  close_fn close_it;
  st_file *file = NULL;
  char got[4];
  FIND(library, "st_open", open_it);
  FIND(library, "st_read", read_it);
  FIND(library, "st_close", close_it);
  NEED(open_it(path, NULL, &file) == ST_OK);
  NEED(read_it(file, "a", ST_NTS, got, sizeof got, NULL) == ST_OK);
  NEED(memcmp(got, "data", 4) == 0);
  close_it(file);
}

/* As an extension module of Python or another host: linked, and loaded locally. */
static void use_plugin(const char *plugin) {
  int (*run)(const char *path);
  void *library = dlopen(plugin, RTLD_NOW | RTLD_LOCAL);
  NEED(library != NULL);
  FIND(library, "plugin_run", run);
  NEED(run(path) == 0);
}

/* In a process of its own, as a library once loaded stays. */
static void both(const char *libst, const char *plugin, int threads_first, int flags) {
  int status = 0;
  const pid_t child = fork();
  NEED(child >= 0);
  if (child == 0) {
    void *one = dlopen(threads_first ? state_threads : libst, RTLD_NOW | flags);
    void *two = dlopen(threads_first ? libst : state_threads, RTLD_NOW | flags);
    void *threads = threads_first ? one : two, *ours = threads_first ? two : one;
    NEED(one != NULL && two != NULL);
    NEED(dlsym(threads, "st_open") != dlsym(ours, "st_open"));
    NEED(dlvsym(ours, "st_open", "ST_2.0") == dlsym(ours, "st_open"));
    use_libst(ours);
    use_threads(threads);
    use_libst(ours);
    use_threads(threads);
    if (flags == RTLD_LOCAL) use_plugin(plugin);
    exit(0);
  }
  NEED(waitpid(child, &status, 0) == child);
  NEED(status == 0);
}

int main(int argc, char **argv) {
  int fd, first;
  NEED(argc == 3);
  if (!dlopen(state_threads, RTLD_NOW)) {
    printf("skipped: no State Threads library (Debian: libst1): %s\n", dlerror());
    return 77;
  }
  fd = mkstemp(path);
  NEED(fd >= 0 && write(fd, bytes, sizeof bytes - 1) == (ssize_t)(sizeof bytes - 1) && close(fd) == 0);
  for (first = 0; first < 2; ++first) {
    both(argv[1], argv[2], first, RTLD_LOCAL);
    both(argv[1], argv[2], first, RTLD_GLOBAL);
  }
  unlink(path);
  return 0;
}
