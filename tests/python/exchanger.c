// The owner of a folder, which exchanges it for a link of its own as soon as anybody touches a file in it.
// Arguments: the folder, the link. It reads 'o' (once at a touch, and back) or 'f' (over and over from the first touch
// on), and answers '.'. At 's' it puts all back and answers '.' again.
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char *folder, *other;

static int exchanged(void) {
  struct stat s;
  return lstat(folder, &s) == 0 && S_ISLNK(s.st_mode);
}

static void exchange(void) {
  renameat2(AT_FDCWD, folder, AT_FDCWD, other, RENAME_EXCHANGE);
}

static void pause_us(long us) {
  const struct timespec t = {0, us * 1000};
  nanosleep(&t, NULL);
}

int main(int argc, char **argv) {
  char command, events[65536];
  if (argc != 3) return 2;
  folder = argv[1], other = argv[2];
  const int watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  if (inotify_add_watch(watch, folder, IN_ALL_EVENTS) < 0) return 3;
  for (unsigned round = 0; read(0, &command, 1) == 1; ++round) {
    while (read(watch, events, sizeof events) > 0) {
    }
    if (write(1, ".", 1) != 1) return 4;
    struct pollfd of[2] = {{watch, POLLIN, 0}, {0, POLLIN, 0}};
    poll(of, 2, -1);
    if (command == 'o' && (of[0].revents & POLLIN)) {
      // At the first touch, or at one of those that follow it.
      for (unsigned skip = round % 8; skip > 0 && poll(of, 2, 5) > 0 && !(of[1].revents & POLLIN); --skip)
        while (read(watch, events, sizeof events) > 0) {
        }
      exchange();
      pause_us(50 << (round / 8 % 6));
      exchange();
    }
    while (command == 'f' && poll(of + 1, 1, 0) == 0) {
      exchange();
      pause_us(round % 4 ? 10 * (round % 4) : 0);
    }
    if (read(0, &command, 1) != 1) break;
    if (exchanged()) exchange();
    if (write(1, ".", 1) != 1) return 4;
  }
  if (exchanged()) exchange();
  return 0;
}
