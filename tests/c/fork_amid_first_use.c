/* Forks while another thread uses libst for the first time: at each moment at which that registers something with the
 * system, of which it is held up until the fork is done. The child uses libst too, and waits for nobody.
 *   fork_amid_first_use FILE */
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <st/st.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static sem_t amid, forked;
static int left; /* registrations until the one that is held up; 0: none is */

static void hold_up(void) {
  if (left == 0 || --left > 0) return;
  sem_post(&amid);
  sem_wait(&forked);
}

/* What pthread_atfork of glibc calls. */
int __register_atfork(void (*before)(void), void (*in_parent)(void), void (*in_child)(void), void *library) {
  int (*real)(void (*)(void), void (*)(void), void (*)(void), void *);
  *(void **)&real = dlsym(RTLD_NEXT, "__register_atfork");
  hold_up();
  return real(before, in_parent, in_child, library);
}

int pthread_key_create(pthread_key_t *key, void (*end)(void *)) {
  int (*real)(pthread_key_t *, void (*)(void *));
  *(void **)&real = dlsym(RTLD_NEXT, "pthread_key_create");
  hold_up();
  return real(key, end);
}

/* NULL, if all went well. */
static void *use(void *path) {
  st_open_options options = {.struct_size = sizeof options, .map = ST_MAP_COPY_ON_WRITE};
  st_file *file;
  st_tensor tensor;
  int is_right;
  if (st_open(path, &options, &file)) return path;
  is_right = st_get(file, "a", ST_NTS, &tensor) == ST_OK && memcmp(tensor.data, "data", 4) == 0 &&
             st_get(file, "b", ST_NTS, &tensor) == ST_E_NOT_FOUND && strstr(st_last_error(), "'b'");
  st_close(file);
  return is_right ? NULL : path;
}

static void *use_first(void *path) {
  void *const failed = use(path);
  if (left > 0) sem_post(&amid); /* there are fewer registrations */
  return failed;
}

/* In a process that has not used libst. */
static int child_ends_well(char *path) {
  pthread_t first;
  pid_t child;
  void *failed = path;
  int status = -1;
  if (pthread_create(&first, NULL, use_first, path)) return 0;
  sem_wait(&amid);
  child = fork();
  if (child == 0) {
    left = 0;
    alarm(20); /* ends it where it hangs */
    _exit(use(path) ? 1 : 0);
  }
  sem_post(&forked);
  if (child < 0 || waitpid(child, &status, 0) != child) return 0;
  pthread_join(first, &failed);
  return status == 0 && !failed;
}

static int write_model(const char *path) {
  static const char model[] =
      "\x38\0\0\0\0\0\0\0{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}   data";
  FILE *const out = fopen(path, "wb");
  if (!out) return 0;
  return (fwrite(model, sizeof model - 1, 1, out) == 1) & (fclose(out) == 0);
}

int main(int words, char **word) {
  enum { most = 8 }; /* registrations: more than there are */
  int failed = 0;
  if (words != 2 || !write_model(word[1])) return 1;
  sem_init(&amid, 0, 0);
  sem_init(&forked, 0, 0);
  for (int nth = 1; nth <= most; ++nth) {
    int status = -1;
    const pid_t anew = fork();
    if (anew == 0) {
      left = nth;
      _exit(child_ends_well(word[1]) ? 0 : 1);
    }
    if (anew < 0 || waitpid(anew, &status, 0) != anew || status != 0) {
      fprintf(stderr, "registration %d: the child of a fork amid it did not end well\n", nth);
      ++failed;
    }
  }
  remove(word[1]);
  return failed != 0;
}
