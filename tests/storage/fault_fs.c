/* A filesystem that fails: FUSE, passes everything through to a folder, and
 * goes wrong as a mapped control file tells it.
 *
 *   fault_fs [OPTION...] SOURCE CONTROL /dev/fd/N     (N: an open /dev/fuse, mounted by the caller)
 *     --locks       byte-range locks come here (else the kernel keeps them)
 *     --direct-io   no page cache: a shared mapping answers ENODEV
 *     --own-inodes  inode numbers are this mount's own, as with gcsfuse or sshfs
 *     --hide        an open file that is unlinked is renamed to .fuse_hidden… till
 *                   its last close, as libfuse does unless told otherwise
 *
 * Without `lose` a failing sync changes nothing. With it, what was written to
 * the file since its last good sync is lost: the disk below goes back to the
 * old bytes while the page cache still shows the new ones, as a real disk does.
 * And with `cut`, unmounting is a power cut on the strictest of filesystems,
 * counted from when `lose` was set: unsynced bytes are lost (1), or files and
 * folders made since the last sync of their folder (2), or both (3).
 * Locks that come here are real ones, between open descriptions, unless
 * `lock_answer` says otherwise. */
#define FUSE_USE_VERSION 31
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <dirent.h>
#include <time.h>
#include <unistd.h>

/* One kind of call: counted, and failing at the n-th (from 1; 0: never). */
struct fault {
  uint32_t count, at;
  uint32_t error;  /* errno; 0 with `at`: half of the write is done (a short write) */
  uint32_t sticky; /* and at every one after it */
};

enum { CUT_BYTES = 1, CUT_NAMES = 2 };
enum { LOCK_REAL, LOCK_GRANT_ALL, LOCK_ENOSYS, LOCK_ENOLCK };

/* Shared with the test: the layout is also in faults.py. */
struct control {
  struct fault sync, write, read, create, fallocate;
  uint32_t lose;
  uint32_t lock_answer;
  uint32_t delay_us; /* of every call that reads, writes or syncs */
  uint32_t cut;
};

static struct control *control;
static char *source;
static int direct_io, own_inodes, hide;

static const char *at(const char *path) {
  return path[1] ? path + 1 : ".";
} /* the source is the working directory */

/* The n-th of its kind? Its errno then, else 0. */
static int fails(struct fault *f) {
  ++f->count;
  const int now = f->at && (f->count == f->at || (f->sticky && f->count > f->at));
  return now ? -(int)f->error : 0;
}

static void delay(void) {
  if (!control->delay_us) return;
  const struct timespec t = {control->delay_us / 1000000, control->delay_us % 1000000 * 1000L};
  nanosleep(&t, NULL);
}

/* Bytes that unsynced writes have replaced, newest first. */
struct undo {
  struct undo *older;
  ino_t inode;
  off_t offset, size_before;
  size_t n;
  char bytes[];
};
static struct undo *undos;

/* The files that they are of, and names that no sync of their folder has made durable. */
struct unsynced {
  struct unsynced *older;
  ino_t inode; /* of the file; of a name: of the folder that it is in */
  int fd;      /* of the file, or -1 */
  char *name;  /* its path, or NULL */
};
static struct unsynced *unsynced;

static void note(ino_t inode, int fd, const char *name) {
  struct unsynced *u = malloc(sizeof *u);
  if (!u) abort();
  *u = (struct unsynced){unsynced, inode, fd, name ? strdup(name) : NULL};
  unsynced = u;
}

static void remember(int fd, off_t offset, size_t n) {
  struct stat s;
  struct undo *u = malloc(sizeof *u + n);
  if (!u || fstat(fd, &s) != 0) abort();
  const ssize_t had = pread(fd, u->bytes, n, offset);
  *u = (struct undo){undos, s.st_ino, offset, s.st_size, had < 0 ? 0 : (size_t)had};
  undos = u;
  const struct unsynced *known = unsynced;
  while (known && (known->name || known->inode != s.st_ino)) known = known->older;
  if (!known) note(s.st_ino, dup(fd), NULL);
}

/* The file's unsynced writes are on the disk now, or lost. */
static void settle(int fd, int is_good) {
  struct stat s;
  if (fstat(fd, &s) != 0) abort();
  for (struct undo **at = &undos; *at;) {
    struct undo *u = *at;
    if (u->inode != s.st_ino) {
      at = &u->older;
      continue;
    }
    if (!is_good && (pwrite(fd, u->bytes, u->n, u->offset) != (ssize_t)u->n || ftruncate(fd, u->size_before) != 0))
      abort();
    *at = u->older;
    free(u);
  }
}

/* The folder's names are on the disk now. */
static void settle_names(int dir) {
  struct stat s;
  if (fstat(dir, &s) != 0) abort();
  for (struct unsynced *u = unsynced; u; u = u->older)
    if (u->name && u->inode == s.st_ino) {
      free(u->name);
      u->name = NULL;
    }
}

static void made(const char *path) {
  if (!control->lose) return;
  const int n = (int)(strrchr(path, '/') - path); /* of the folder's path, with its first slash */
  char folder[4096];
  snprintf(folder, sizeof folder, ".%.*s", n, path);
  struct stat s;
  if (stat(folder, &s) != 0) abort();
  note(s.st_ino, -1, at(path));
}

static void lose_all_unsynced(void) {
  static int lost;
  for (struct unsynced *u = unsynced; u; u = u->older) {
    if (u->fd >= 0 && control->cut & CUT_BYTES) settle(u->fd, 0);
    if (!u->name || !(control->cut & CUT_NAMES)) continue;
    char elsewhere[64]; /* a folder goes with all that is in it */
    snprintf(elsewhere, sizeof elsewhere, "../lost.%d.%d", (int)getpid(), ++lost);
    if (rename(u->name, elsewhere) != 0 && errno != ENOENT) abort();
  }
}

/* An open file. */
struct opened {
  int fd;
  uint64_t lock_owner;
};
static struct opened *of(struct fuse_file_info *file) {
  return (struct opened *)(uintptr_t)file->fh;
}

static int answer(long result) {
  return result < 0 ? -errno : (int)result;
}

static int keep(int fd, struct fuse_file_info *file) {
  if (fd < 0) return -errno;
  struct opened *o = malloc(sizeof *o);
  if (!o) abort();
  *o = (struct opened){fd, 0};
  file->fh = (uintptr_t)o;
  file->direct_io = (unsigned)direct_io & 1;
  return 0;
}

static int on_getattr(const char *path, struct stat *out, struct fuse_file_info *file) {
  return answer(file ? fstat(of(file)->fd, out) : lstat(at(path), out));
}

static int on_open(const char *path, struct fuse_file_info *file) {
  return keep(open(at(path), file->flags & ~(O_DIRECT | O_NOFOLLOW)), file);
}

static int on_create(const char *path, mode_t mode, struct fuse_file_info *file) {
  const int error = fails(&control->create);
  if (error) return error;
  const int kept = keep(open(at(path), file->flags | O_CREAT, mode), file);
  if (kept == 0) made(path);
  return kept;
}

static int on_release(const char *path, struct fuse_file_info *file) {
  (void)path;
  close(of(file)->fd);
  free(of(file));
  return 0;
}

static int on_read(const char *path, char *to, size_t n, off_t offset, struct fuse_file_info *file) {
  (void)path;
  delay();
  const int error = fails(&control->read);
  return error ? error : answer(pread(of(file)->fd, to, n, offset));
}

static int on_write(const char *path, const char *bytes, size_t n, off_t offset, struct fuse_file_info *file) {
  (void)path;
  delay();
  const int error = fails(&control->write);
  if (error) return error;
  if (control->write.at == control->write.count && control->write.error == 0) n = (n + 1) / 2;
  if (control->lose) remember(of(file)->fd, offset, n);
  return answer(pwrite(of(file)->fd, bytes, n, offset));
}

static int on_fsync(const char *path, int data_only, struct fuse_file_info *file) {
  (void)path;
  delay();
  const int error = fails(&control->sync);
  if (control->lose) settle(of(file)->fd, error == 0);
  if (error) return error;
  return answer(data_only ? fdatasync(of(file)->fd) : fsync(of(file)->fd));
}

static int on_fallocate(const char *path, int mode, off_t offset, off_t n, struct fuse_file_info *file) {
  (void)path;
  const int error = fails(&control->fallocate);
  return error ? error : answer(fallocate(of(file)->fd, mode, offset, n));
}

static int on_lock(const char *path, struct fuse_file_info *file, int command, struct flock *lock) {
  (void)path;
  struct opened *o = of(file);
  switch (control->lock_answer) {
    case LOCK_GRANT_ALL:
      if (command == F_GETLK) lock->l_type = F_UNLCK;
      return 0;
    case LOCK_ENOSYS: return -ENOSYS;
    case LOCK_ENOLCK: return -ENOLCK;
    default: break;
  }
  /* Every close sends an unlock; only that of the locks' owner counts. */
  if (lock->l_type == F_UNLCK && command != F_GETLK && o->lock_owner && o->lock_owner != file->lock_owner) return 0;
  if (lock->l_type != F_UNLCK && command != F_GETLK) o->lock_owner = file->lock_owner;
  lock->l_pid = 0;
  const int ofd = command == F_GETLK ? F_OFD_GETLK : command == F_SETLK ? F_OFD_SETLK : F_OFD_SETLKW;
  return answer(fcntl(o->fd, ofd, lock));
}

static DIR *dir_of(struct fuse_file_info *file) {
  return (DIR *)(uintptr_t)file->fh;
}

static int on_opendir(const char *path, struct fuse_file_info *file) {
  DIR *d = opendir(at(path));
  file->fh = (uintptr_t)d;
  return d ? 0 : -errno;
}

static int on_readdir(const char *path, void *buffer, fuse_fill_dir_t fill, off_t offset, struct fuse_file_info *file,
                      enum fuse_readdir_flags flags) {
  (void)path, (void)offset, (void)flags;
  rewinddir(dir_of(file));
  for (struct dirent *e; (e = readdir(dir_of(file)));) {
    const struct stat s = {.st_ino = e->d_ino, .st_mode = (mode_t)e->d_type << 12};
    fill(buffer, e->d_name, &s, 0, 0);
  }
  return 0;
}

static int on_releasedir(const char *path, struct fuse_file_info *file) {
  (void)path;
  return answer(closedir(dir_of(file)));
}

static int on_fsyncdir(const char *path, int data_only, struct fuse_file_info *file) {
  (void)path, (void)data_only;
  delay();
  const int error = fails(&control->sync);
  if (error) return error;
  settle_names(dirfd(dir_of(file)));
  return answer(fsync(dirfd(dir_of(file))));
}

static int on_unlink(const char *path) {
  return answer(unlink(at(path)));
}
static int on_mkdir(const char *path, mode_t mode) {
  const int error = fails(&control->create);
  if (error) return error;
  if (mkdir(at(path), mode) != 0) return -errno;
  made(path);
  return 0;
}
static int on_rmdir(const char *path) {
  return answer(rmdir(at(path)));
}
static int on_rename(const char *from, const char *to, unsigned flags) {
  return flags ? -EINVAL : answer(rename(at(from), at(to)));
}
static int on_truncate(const char *path, off_t size, struct fuse_file_info *file) {
  return answer(file ? ftruncate(of(file)->fd, size) : truncate(at(path), size));
}
static int on_chmod(const char *path, mode_t mode, struct fuse_file_info *file) {
  return answer(file ? fchmod(of(file)->fd, mode) : chmod(at(path), mode));
}
static int on_statfs(const char *path, struct statvfs *out) {
  return answer(statvfs(at(path), out));
}

static void *on_init(struct fuse_conn_info *connection, struct fuse_config *config) {
  connection->want &= ~(unsigned)FUSE_CAP_WRITEBACK_CACHE;
  config->use_ino = !own_inodes;
  config->attr_timeout = config->entry_timeout = config->negative_timeout = 0;
  config->hard_remove = !hide;
  config->nullpath_ok = 1;
  if (chdir(source) != 0) abort(); /* here, as fuse_main goes to "/" */
  return NULL;
}

static void on_destroy(void *unused) {
  (void)unused;
  if (control->cut) lose_all_unsynced();
}

int main(int argc, char **argv) {
  static struct fuse_operations operations = {
      .getattr = on_getattr,
      .open = on_open,
      .create = on_create,
      .release = on_release,
      .read = on_read,
      .write = on_write,
      .fsync = on_fsync,
      .fsyncdir = on_fsyncdir,
      .fallocate = on_fallocate,
      .opendir = on_opendir,
      .readdir = on_readdir,
      .releasedir = on_releasedir,
      .unlink = on_unlink,
      .mkdir = on_mkdir,
      .rmdir = on_rmdir,
      .rename = on_rename,
      .truncate = on_truncate,
      .chmod = on_chmod,
      .statfs = on_statfs,
      .init = on_init,
      .destroy = on_destroy,
  };
  int i = 1;
  for (; i < argc && !strncmp(argv[i], "--", 2); ++i) {
    if (!strcmp(argv[i], "--locks"))
      operations.lock = on_lock;
    else if (!strcmp(argv[i], "--direct-io"))
      direct_io = 1;
    else if (!strcmp(argv[i], "--own-inodes"))
      own_inodes = 1;
    else if (!strcmp(argv[i], "--hide"))
      hide = 1;
    else
      return 2;
  }
  if (argc - i != 3) return 2;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  source = argv[i];
  const int fd = open(argv[i + 1], O_RDWR | O_CLOEXEC);
  control = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (control == MAP_FAILED || source[0] != '/') {
    perror("fault_fs");
    return 1;
  }
  umask(0);
  char *arguments[] = {argv[0], "-f", "-s", argv[i + 2], NULL};
  return fuse_main(4, arguments, &operations, NULL);
}
