/* Forks while another thread loads libst-remote. The child opens a URL too, and waits for nobody. The program's own
 * dlopen holds up the load until the fork is done, or for a second where the fork waits for the load. With the word
 * "waits" it has no such end, as if what is loaded waited for the fork. Then the child opens no URL, and says why. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <st/st.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static sem_t amid, forked;
static int holds_up = 1, waits;

void *dlopen(const char *file, int how) {
  void *(*real)(const char *, int);
  *(void **)&real = dlsym(RTLD_NEXT, "dlopen");
  if (holds_up) {
    struct timespec until;
    holds_up = 0;
    clock_gettime(CLOCK_REALTIME, &until);
    ++until.tv_sec;
    sem_post(&amid);
    if (waits)
      sem_wait(&forked);
    else
      sem_timedwait(&forked, &until);
  }
  return real(file, how);
}

/* No URL that is asked: it is not encrypted. */
static void *look(void *unused) {
  st_file *file;
  (void)unused;
  return st_open("http://example.com/a", NULL, &file) == ST_E_UNSUPPORTED ? NULL : &amid;
}

int main(int words, char **word) {
  pthread_t loads;
  int status = -1;
  void *failed = NULL;
  pid_t child;
  waits = words > 1 && strcmp(word[1], "waits") == 0;
  sem_init(&amid, 0, 0);
  sem_init(&forked, 0, 0);
  if (pthread_create(&loads, NULL, look, NULL)) return 1;
  sem_wait(&amid);
  child = fork();
  if (child == 0) {
    alarm(20);
    if (look(NULL)) _exit(1);
    _exit(!strstr(st_last_error(), "forked while another thread loaded") == !waits ? 0 : 2);
  }
  sem_post(&forked);
  if (waitpid(child, &status, 0) != child) return 1;
  pthread_join(loads, &failed);
  printf("%d\n", status);
  return failed ? 1 : 0;
}
