// What stctl asks of the system beyond the C library, POSIX in one source and Windows in the other. Answers are those
// of POSIX calls: below 0, or null, with errno.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace stctl {

// Called first. A descriptor 0, 1 or 2 that the shell closed must not become the model's, or output would be written
// into it. Writing to such a one fails.
void prepare_standard_descriptors();

// Interruptions of a person or the system come to `handler`, but for those that were ignored; a write to a reader that
// left answers EPIPE, and one beyond the longest file that is allowed EFBIG.
void handle_signals(void (*handler)(int));
// Ends the process as the signal itself would: a shell then ends the script that waits for it, too. Returns where there
// is no such end: on Windows, and for the first process of a container. A handler may call it.
void end_by_signal(int signal);
// Until no call of the handler is under way that another thread may make.
void await_handler();

int open_to_read(const std::string &path);
// Not the file that a link leads to, and without waiting for a pipe's other side.
int open_itself(const std::string &path);
int open_to_write(const std::string &path);

// The folder of a path, and the name in it. The folder is held open: an exchange of it, or a link in its place, leads
// nobody elsewhere. Windows has the path alone.
struct Entry {
  int folder = -1;
  std::string path, name;
};
bool find_entry(const std::string &path, Entry *entry);
void close_entry(Entry *entry);
int create_file(const Entry &folder, const std::string &name);
// A file that has no name, so that nothing stays of it if the process dies, and a name for it. Not every system or
// filesystem has these; what the first has made, the second can name.
int create_unnamed(const Entry &folder);
int name_file(int fd, const Entry &folder, const std::string &name);
int rename_over(const Entry &folder, const std::string &from, const std::string &to);
void remove_file(const Entry &folder, const std::string &name);

ssize_t read_at(int fd, void *buffer, size_t n, uint64_t offset);
void *map_file(int fd, size_t n);
void unmap_file(void *mapping, size_t n);

// A file that was rewritten is in another state. Nothing at all may be there.
struct FileState {
  bool exists = false;
  uint64_t inode = 0;
  int64_t size = 0, seconds = 0, nanoseconds = 0;
  bool operator==(const FileState &) const = default;
};
FileState state_of(const std::string &path);

int sync_file(int fd);
// A new file gets the owner, extended attributes, ACL and mode of the one at `path`, which it is to replace. An owner
// or a group that may not be given stays the caller's, and a new group then may do no more than others.
int hand_on_rights(const std::string &path, int fd);
// What is written to that goes to `path`.
struct Target {
  int fd = -1;       // a duplicate, where it is a descriptor of this process, as /dev/stdout is
  std::string path;  // else: symbolic links at its end are followed, also one that leads to nothing yet
};
// A file that standard output or error is written to is such a descriptor, too, by whatever path.
bool find_target(const std::string &path, Target *target);
// A new folder, and empty. `path` is what was tried, also if it failed.
bool make_temporary_folder(std::string *path);
void remove_folder(const std::string &path);

// Looks at each page on which these bytes lie, 1 to 1 MiB of them. False, with EFAULT, if a page is not to be had, as
// where the file of a mapping was cut: a look of the process's own would be a signal.
bool touch_pages(const char *bytes, size_t n);

bool is_terminal(int fd);
bool obeys_escapes(int fd);  // a terminal that takes sequences for colours and for wiping a line
size_t terminal_columns();   // of standard output; 0 if it is no terminal

}  // namespace stctl
