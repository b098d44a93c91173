/* st.h: libst, a storage engine for safetensors files.
 *
 * Open a file, look at its tensors without a copy, change them in place with
 * all the guarantees of a database, close it:
 *
 *     st_open_options opts = {.struct_size = sizeof opts,
 *                             .flags = ST_OPEN_READ_WRITE};
 *     st_file *f;  st_tensor w;
 *     if (st_open("model.safetensors", &opts, &f)) puts(st_last_error());
 *     st_get(f, "w", ST_NTS, &w);              (w.data: the bytes, not a copy)
 *     w.data = my_new_bytes;
 *     st_update(f, "w", ST_NTS, &w);           (durable when it returns ST_OK)
 *     st_close(f);
 *
 * The first half of this page is what most programs need: errors, open and
 * close, list, view, read, update, transactions, save. The second half is for
 * special needs: bulk reads, snapshots, shards, deltas, upkeep, observation.
 *
 * Rules. They hold unless a function says otherwise.
 *
 *  Errors    Every function that can fail returns an st_status; ST_OK is 0.
 *            After a failure st_last_error() holds one sentence for the calling
 *            thread: what, where, what to do. Output parameters are untouched.
 *            But the memory that a read was to fill may hold any bytes. Any
 *            call may change errno.
 *            Any function may return ST_E_NOMEM, ST_E_INTERNAL, or
 *            ST_E_INVALID_ARGUMENT: NULL where it is not allowed, a struct_size
 *            of less than 4 or more than 4096. So is a negative lock_timeout_ms
 *            that is no ST_TIMEOUT_...
 *  Names     A name of a tensor, and a key of the metadata, is UTF-8 that may
 *            hold NUL. It is given as pointer and length. The length ST_NTS
 *            says that the name ends before its first NUL. Names that libst
 *            gives out end with a NUL, which the length does not count. Paths
 *            are plain C strings.
 *  Numbers   Sizes of memory, counts and indices are size_t. Quantities of
 *            files are uint64_t, in bytes. Numbers of shards are uint32_t.
 *  Options   A struct that may grow begins with struct_size. Zero is the
 *            default of every field. So a zeroed struct with its size is a
 *            whole set-up, and NULL in its place gives the defaults. Bytes
 *            beyond those that the library knows must be zero, else
 *            ST_E_UNSUPPORTED. So is a flag, or a value of a named choice
 *            (map, layout), that it does not know. The library takes fields
 *            beyond struct_size for zero.
 *  Results   A struct that the library fills and that may grow begins with
 *            struct_size too. The library fills no more than that, and zeroes
 *            what it does not know.
 *  Ownership No memory that the caller must free crosses this interface. What
 *            st_open, st_open_memory, st_open_source, st_reopen and
 *            st_snapshot give is freed by st_close; what st_txn_begin gives, by
 *            st_txn_free; what st_writer_open gives, by st_writer_free; what
 *            st_mapping_keep gives, by st_mapping_free. Nothing else frees
 *            them. All four accept NULL.
 *  Lifetime  Pointers taken from a handle (views, names, shapes, metadata,
 *            paths) live until its st_close or st_release; views may be kept
 *            longer by st_mapping_keep.
 *  Threads   A handle (st_file) may be used from many threads at once, also for
 *            commits. A transaction (st_txn) and a writer (st_writer) belong to
 *            one thread at a time. st_close must not race with another call on
 *            the same handle, nor on a transaction of it. A thread must not be
 *            cancelled inside a call (pthread_cancel), and a callback must
 *            return: no longjmp, and no C++ exception, leaves it.
 *  State     A handle shows one state of its file. Its own commits show at
 *            once. A patch by another handle shows at once through shared
 *            mappings. A tensor that another handle adds, removes or publishes
 *            shows after st_refresh. On overlayfs (containers) the first change
 *            of a file also shows after st_refresh. Each call sees one state,
 *            also beside commits in other threads; st_snapshot gives several
 *            calls the same state.
 *            A state is which tensors there are, and where. Their bytes are
 *            read without a lock. While a patch runs, any call may return old
 *            bytes, new bytes, or a mix. A handle of st_snapshot may return
 *            them too. A change that readers must see whole is committed with
 *            ST_TXN_PUBLISH. st_join, st_reshard, st_delta_merge and
 *            st_delta_create hold a lock. They read one state, bytes included.
 *  Hosts     On storage that several hosts share, a handle shows every commit
 *            of another host that came before its last st_refresh. A handle
 *            for writing also shows those before its st_open, and each
 *            transaction goes on from all before it. Beyond that, st_get and
 *            st_read may show older bytes, also in a part of a tensor. They do
 *            so until this host drops these bytes from its cache. A mapping
 *            that the caller asks for (ST_MAP_SHARED, ST_MAP_PRIVATE) may show
 *            them for ever.
 *  Progress  The options of a call take a callback for that call. Calls without
 *            one, and calls that are given NULL, use the handle's.
 *  Words     To patch is to write new bytes in place, through a journal. To
 *            publish is to write a new file beside the old one and to rename
 *            it into place.
 *  Stack     A call on local files needs at most 64 KiB, whatever they hold.
 *
 * Types, statuses and functions are stable within libst.so.2: they are added,
 * never renamed, renumbered or removed. All are since 2.0 but where "Since 2.x"
 * says otherwise.
 */
#ifndef ST_ST_H
#define ST_ST_H

#include <stddef.h>
#include <stdint.h>

#define ST_VERSION_MAJOR 2
#define ST_VERSION_MINOR 0
#define ST_VERSION_PATCH 0

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the library that runs, as "2.0.0". Static. */
const char *st_version(void);

/* What the library that runs is made of and finds here, for people and for
 * reports of bugs: lines of "name: value", each ended by a newline. First
 * version, platform, processors, compiler, libraries, and the settings of the
 * environment. Then each system call that an old kernel or a sandbox may lack:
 * "yes", or "no; " and the replacement. Then whether libst reads URLs. More
 * lines may be added. This function tries each call, and loads
 * libst-remote.so.2. "" if memory ran out. Lives until this thread's next
 * st_build_info. Any thread. */
const char *st_build_info(void);

/* An open file, a transaction on it, a file being written. All opaque. */
typedef struct st_file st_file;
typedef struct st_txn st_txn;
typedef struct st_writer st_writer;
typedef struct st_mapping st_mapping;

/* The length of a name that ends before its first NUL ("NUL-terminated
 * string"). In every name_len, key_len and value_len. */
#define ST_NTS ((size_t)-1)

/* ================================================================= errors */

/* What a call answers. Each value is fixed for ever. */
typedef int32_t st_status;

#define ST_OK 0

/* The word before the colon says what a caller can do; st_status_action tells
 * it, also of statuses that came after the program was built:
 *   fix     mend the argument or the file; the same call fails again
 *   retry   call again, later
 *   reopen  close the handle, open the file anew, and look at what it holds
 *   space   free space on the disk or in memory, then call again
 *   move    use another filesystem, machine or library
 *   end     this call, or this transaction, was stopped; begin it anew
 *   report  a bug in libst; please report it
 * Nothing of the file has changed but where the function says so. A later
 * version may answer other statuses, and listed ones where a function does not
 * list them. */

/* The call. */
#define ST_E_INVALID_ARGUMENT 1 /* fix: a parameter is not what the call
                                   takes */
#define ST_E_NOMEM 2            /* space: memory could not be had */
#define ST_E_INTERNAL 3         /* report: an error inside libst */
#define ST_E_UNSUPPORTED 4      /* move: an option or struct of a newer version,
                                   or a thing this platform cannot do */
#define ST_E_CANCELLED 5        /* end: a progress callback asked to stop */
#define ST_E_INTERRUPTED 6      /* end: st_interrupt was called */
#define ST_E_NOT_FOUND 7        /* fix: no tensor, or no key, of that name */
#define ST_E_OUT_OF_RANGE 8     /* fix: an index or a slice lies outside */
#define ST_E_BUFFER_SIZE 9      /* fix: the destination buffer is too small */
#define ST_E_READ_ONLY 10       /* fix: the handle was opened for reading
                                   only */
#define ST_E_BUSY 11            /* retry: another worker holds the lock */
#define ST_E_FORKED 12          /* end: this transaction, or this call, is the
                                   parent process's */

/* The storage. */
#define ST_E_IO 20               /* retry: the system failed a call;
                                    st_last_error_info has errno */
#define ST_E_NO_FILE 21          /* fix: no such file */
#define ST_E_PERMISSION 22       /* fix: the operating system forbids it */
#define ST_E_NO_SPACE 23         /* space: the disk, or the quota, is full */
#define ST_E_NOT_REGULAR 24      /* fix: a folder, a device or a pipe, where a
                                    plain file is needed */
#define ST_E_FILE_CHANGED 25     /* reopen: the file was truncated or replaced
                                    under an open handle, or its folder moved */
#define ST_E_LOCK_UNSUPPORTED 26 /* move: the filesystem cannot lock, or grants
                                    every lock; changing is refused */
#define ST_E_POISONED 27         /* reopen: a write or a sync failed on this
                                    handle */
#define ST_E_CHECKSUM 28         /* retry: the bytes that came are not those
                                    that were stored */

/* The format, one status a rule: capi/README.md has them with examples. Rules
 * that come later have numbers from 100 to 199. */
#define ST_E_HEADER_TOO_SMALL 40 /* fix: the file is shorter than its 8-byte
                                    length */
#define ST_E_HEADER_TOO_LARGE 41 /* fix: the header has more than 100,000,000
                                    bytes */
#define ST_E_HEADER_TRUNCATED 42 /* fix: the file ends inside its header */
#define ST_E_HEADER_UTF8 43      /* fix: the header is not UTF-8 */
#define ST_E_HEADER_JSON 44      /* fix: the header is not one JSON object */
#define ST_E_METADATA 45         /* fix: __metadata__ is not a map from string
                                    to string */
#define ST_E_TENSOR_INFO 46      /* fix: an entry is not {dtype, shape,
                                    data_offsets}, each once and of its type */
#define ST_E_DTYPE 47            /* fix: a dtype that the format does not
                                    have */
#define ST_E_SHAPE_OVERFLOW 48   /* fix: the product of the shape, in bits,
                                    exceeds 2^64 */
#define ST_E_OFFSETS 49          /* fix: data_offsets end before they begin */
#define ST_E_OVERLAP 50          /* fix: two tensors share bytes */
#define ST_E_HOLE 51             /* fix: bytes between tensors, or before the
                                    first, belong to none */
#define ST_E_SIZE_MISMATCH 52    /* fix: data_offsets span another size than
                                    shape and dtype ask for */
#define ST_E_SUBBYTE 53          /* fix: 4- and 6-bit elements that do not fill
                                    whole bytes */
#define ST_E_TRUNCATED 54        /* fix: the file ends before the last tensor */
#define ST_E_TRAILING_DATA 55    /* fix: bytes follow the last tensor */
#define ST_E_DUPLICATE_NAME 56   /* fix: a name stands twice, which would hide a
                                    tensor */
#define ST_E_SHARD_INDEX 57      /* fix: an index of shards is not
                                    {"metadata": {},
                                     "weight_map": {name: shard}} */
#define ST_E_SHARD_MISSING 58    /* fix: a shard that the index names is not
                                    there */
#define ST_E_SHARD_TENSOR 59     /* fix: index and shards disagree about where a
                                    tensor is */
#define ST_E_SHARD_DUPLICATE 60  /* fix: a tensor stands twice: in the index, or
                                    in two shards */
#define ST_E_SHARD_PATH 61       /* fix: a shard's name leads out of the index's
                                    folder */

/* Deltas. */
#define ST_E_DELTA 62      /* fix: the file is no delta, or a damaged one */
#define ST_E_DELTA_BASE 63 /* fix: the delta was made for another base, or has
                              been applied already */

/* Changing. */
#define ST_E_DTYPE_MISMATCH 70  /* fix: an update may not change the dtype */
#define ST_E_SHAPE_MISMATCH 71  /* fix: an update may not change the shape */
#define ST_E_NBYTES_MISMATCH 72 /* fix: the payload has another size than the
                                   tensor */
#define ST_E_NEEDS_RECOVERY 73  /* reopen: the next open, where the file can be
                                   written, finishes the change or undoes it */
#define ST_E_JOURNAL 74         /* reopen: a journal is damaged or foreign; it
                                   was not applied */
#define ST_E_TXN_FAILED 75      /* end: this transaction, or writer, has ended,
                                   or an earlier call of it failed; free it */
#define ST_E_HARD_LINKS 80      /* fix: the file has other names, which would
                                   keep the old bytes; see ST_TXN_BREAK_LINKS */
#define ST_E_INCOMPLETE 81      /* fix: bytes of a declared tensor are
                                   missing */

/* What survives a crash or a power cut, by what a commit answered. Commits are
 * st_update, st_txn_commit, st_delta_apply, st_apply_delta, st_save,
 * st_writer_finish, st_compact, st_reshard, st_join, st_delta_merge and
 * st_delta_create.
 *
 *   status               the file, after it            durable
 *   ST_OK                new                           file and folder
 *   ST_OK with           new                           the journal; the file
 *   ST_TXN_JOURNAL_ONLY                                after st_sync, st_close
 *   ST_E_NEEDS_RECOVERY  new or old, once it was       the journal; or new and
 *                        opened again: look which      old, but not the name
 *   any other            old                           as before
 *
 * A patch is durable as a journal before it touches the file, so no crash
 * leaves a mix. A publish is durable as a whole file before it takes its name.
 * Where ST_TXN_JOURNAL_ONLY changes nothing (see st_sync), the first row
 * holds. */

/* The name of a status, as above ("ST_E_BUSY"); "ST_E_UNKNOWN" for a number
 * that is none. Static. Any thread. */
const char *st_status_name(st_status status);

/* What a caller can do, by the word of the status. */
#define ST_ACTION_NONE 0u /* ST_OK, or a number that is no status */
#define ST_ACTION_FIX 1u
#define ST_ACTION_RETRY 2u
#define ST_ACTION_REOPEN 3u
#define ST_ACTION_SPACE 4u
#define ST_ACTION_MOVE 5u
#define ST_ACTION_END 6u
#define ST_ACTION_REPORT 7u

/* What a caller can do about a status: ST_ACTION_... Any thread. */
uint32_t st_status_action(st_status status);

/* The sentence for the last failed call of this thread; "" if none failed yet.
 * Lives until this thread's next failing call. */
const char *st_last_error(void);

/* The last failure of this thread, in parts. */
typedef struct st_error_info {
  uint32_t struct_size;
  st_status status;
  int32_t os_errno;    /* errno of the failed system call; 0 if there was
                          none */
  uint32_t shard;      /* number of the shard; 0 in a single file */
  uint64_t offset;     /* in the file; UINT64_MAX if it is about no place */
  const char *message; /* as st_last_error() */
  const char *tensor;  /* its name; NULL if the failure is about none */
  size_t tensor_len;
  int64_t holder_pid;  /* ST_E_BUSY: who holds the lock; 0 if unknown */
} st_error_info;

/* Fill *out. The strings live until this thread's next failing call. Where this
 * call itself fails, st_last_error keeps the sentence of the call before. */
st_status st_last_error_info(st_error_info *out);

/* Told now and then during long work: bytes of this call done, and in all, or 0
 * if not known. It is one count to one total, also over several files. The
 * total may be 0 where the call waits, for a lock or a server.
 * st_update counts its bytes twice: as they are staged, and as they are
 * committed. Each call of a transaction, or of a writer, has a count of its
 * own. A read of at most 64 KiB in one piece is no long work. Return non-zero
 * to cancel: the call answers ST_E_CANCELLED and has changed nothing.
 * st_compact may have rewritten shards before; these stay.
 * If this function forks, the call goes on in the parent alone. Where it
 * returns in the child, the call ends there and answers ST_E_FORKED, unless all
 * was done.
 * A call may wait for the server of a URL, or for threads of its own that read.
 * Then libst calls this function ten times a second. The numbers may repeat.
 * Such calls are an open, a read, and a call that reads whole models.
 * Called on the thread that called libst: of a handle that several threads use,
 * by several at once. It must not call libst with the same handle, but for
 * st_interrupt, nor wait for a thread that does: that thread may be waiting for
 * this call. */
typedef int (*st_progress_fn)(void *user, uint64_t done_bytes,
                              uint64_t total_bytes);

/* Told what a user may want to know: a mapping fell back, a journal was
 * recovered. Called as st_progress_fn is. `message` lives during the call.
 * What a commit or a recovery has to tell is told when nothing is locked: this
 * function may then use the model by another handle. */
typedef void (*st_log_fn)(void *user, uint32_t level, const char *message);
#define ST_LOG_INFO 1
#define ST_LOG_WARNING 2
#define ST_LOG_ERROR 3 /* in reports of st_verify and st_recover alone */

/* ========================================================= open and close */

#define ST_OPEN_READ_WRITE 1u /* allow changes; the file must be writable */

/* How the data is reached (st_open_options.map). */
#define ST_MAP_AUTO 0u    /* as the storage asks: see st_file_io_info */
#define ST_MAP_SHARED 1u  /* MAP_SHARED; falls back to private, then to none */
#define ST_MAP_PRIVATE 2u /* MAP_PRIVATE; falls back to none */
#define ST_MAP_NONE 3u    /* no mapping: tensors are read into memory that the
                             handle owns, when first viewed */
#define ST_MAP_COPY_ON_WRITE 4u /* views that may be written and never reach the
                                   file: see st_get. MAP_PRIVATE with
                                   PROT_WRITE; acts as ST_MAP_NONE where such a
                                   mapping is refused or slow (network, FUSE,
                                   object stores) */

/* How much is read ahead of use (st_open_options.prefetch): by st_prefetch, and
 * how the bulk reads st_read_many and st_load go about it. */
#define ST_PREFETCH_AUTO 0u       /* as the storage asks: see st_file_io_info */
#define ST_PREFETCH_NONE 1u       /* st_prefetch does nothing */
#define ST_PREFETCH_SEQUENTIAL 2u /* one reader, in file order */
#define ST_PREFETCH_PARALLEL 3u   /* several readers; on network and FUSE
                                     storage each in a contiguous range of its
                                     own */

/* Whether bulk reads into memory go past the page cache
 * (st_open_options.direct). */
#define ST_DIRECT_AUTO 0u /* on a local disk the first load of a file that is
                             not in memory does, unless io_threads is set; later
                             loads, in any process, use the page cache */
#define ST_DIRECT_OFF 1u
#define ST_DIRECT_ON 2u   /* O_DIRECT, by several threads; as ST_DIRECT_OFF
                             where the filesystem cannot */

/* How long a call waits for locks, in milliseconds (every lock_timeout_ms). It
 * is the sum of its waits; the work between them does not count. A compact of
 * shards may wait so long for each shard. */
#define ST_TIMEOUT_DEFAULT 0    /* ten seconds; of st_txn_begin and
                                   st_apply_delta, what the handle has */
#define ST_TIMEOUT_FOREVER (-1)
#define ST_TIMEOUT_NONE (-2)    /* do not wait */

typedef struct st_open_options {
  uint32_t struct_size;
  uint32_t flags;          /* ST_OPEN_...; 0: read only */
  uint32_t map;            /* ST_MAP_...; the environment's ST_MAP ("auto",
                              "shared", "private", "none") stands in for
                              ST_MAP_AUTO */
  int32_t lock_timeout_ms; /* of this handle's updates and of recovery */
  st_progress_fn progress; /* of this handle's long calls; may be NULL */
  void *progress_user;
  st_log_fn log;           /* may be NULL */
  void *log_user;
  /* Bulk reads. Zero leaves each to the storage; the environment's ST_PREFETCH
     ("auto", "none", "sequential", "parallel"), ST_DIRECT ("0", "1"),
     ST_IO_THREADS and ST_BLOCK_SIZE (bytes, at most 2^32 - 1) stand in for
     zeros. */
  uint32_t prefetch;       /* ST_PREFETCH_... */
  uint32_t direct;         /* ST_DIRECT_... */
  uint32_t io_threads;     /* readers; more than 64 count as 64 */
  uint32_t block_size;     /* bytes a request; what lies outside 64 KiB to
                              256 MiB counts as the nearer of the two, and
                              other sizes as the next lower multiple of 4 KiB */
  uint32_t worker_index;   /* this handle's number in a group of workers that
                              share the warming of a file, from 0 on */
  uint32_t worker_count;   /* how many there are; 0 or 1: alone */
  uint64_t memory_limit;   /* bytes that bulk reads and st_prefetch may leave in
                              the page cache; 0: no limit. A low one makes
                              their requests shorter than block_size */
  /* No field, but in the environment: ST_JOURNAL says what the journal of a
     patch holds. "redo": the new bytes. "undo": the old blocks, shared with the
     file, so that new bytes are written once; only on xfs and btrfs, which can
     share blocks, elsewhere as "redo". "auto": "undo" where most bytes are of
     tensors of at least 1 MiB that ST_TXN_COPY does not copy; else "redo". Both
     keep the same promises. */
  /* Deltas that lie on what is opened: paths, the oldest first. Borrowed. */
  const char *const *deltas;
  size_t delta_count;
} st_open_options;

/* Open a safetensors file: read and check its header, map its data. First
 * finish what a crashed writer had committed (see st_recover), and remove the
 * empty journals of some dead writers, if this process may. So an open for
 * reading may write, too. Data is not touched.
 *   path  the file; symbolic links are followed. Or the index of a sharded
 *         checkpoint (*.safetensors.index.json): see "Shards". Or a folder:
 *         its model.safetensors, unless that is or was a shard of an index
 *         there, or else its one index. Or a URL, for reading only: see below.
 *   opts  NULL for the defaults. With deltas the handle shows, for reading
 *         only, what st_delta_apply with each of them in turn would make: see
 *         "Deltas".
 *   out   the handle; free it with st_close.
 * A file without a name (memfd_create) opens for reading by its path in
 * /proc/self/fd. With ST_OPEN_READ_WRITE that is ST_E_UNSUPPORTED.
 * After fork() a child may go on using the handle: at the first use it opens
 * the file and maps it for itself.
 * SCHEME://... is a URL: https, s3 (or s3a), gs (gcs), az (abfs, abfss), hf;
 * and http of this machine, or of any with ST_ALLOW_HTTP=1 in the environment.
 * libst-remote.so.2 reads it. The first URL loads that library, from beside
 * this one or as the loader finds it. A URL is read as st_open_source says, in
 * the version that was opened. If the server has another by then, the call is
 * ST_E_FILE_CHANGED. A URL may name an index of shards. A shard that was put
 * there after the index was opened, by the clock of the server, is
 * ST_E_FILE_CHANGED, too. With a slash at its end a URL names a folder, with a
 * model.safetensors.index.json or else a model.safetensors.
 * st_verify takes URLs too, and so does each call that takes a model or a delta
 * to read. Calls that write or recover a file answer ST_E_UNSUPPORTED.
 * core/remote/README.md has the credentials.
 * Statuses: ST_E_NO_FILE, ST_E_PERMISSION, ST_E_NOT_REGULAR, ST_E_IO; the
 * format's (40 to 61); ST_E_NEEDS_RECOVERY, ST_E_BUSY, ST_E_JOURNAL (recovery);
 * ST_E_CANCELLED; ST_E_INVALID_ARGUMENT (a worker_index that is not below
 * worker_count; in the environment a word that ST_MAP, ST_JOURNAL, ST_PREFETCH,
 * ST_DIRECT, ST_IO_THREADS or ST_BLOCK_SIZE does not take: st_open_options has
 * the words); with deltas ST_E_DELTA, ST_E_DELTA_BASE, ST_E_INVALID_ARGUMENT
 * (ST_OPEN_READ_WRITE), ST_E_FILE_CHANGED (the index of the shards below them
 * is replaced again and again).
 * With a URL also ST_E_FILE_CHANGED, ST_E_CHECKSUM and ST_E_UNSUPPORTED (no
 * libst-remote.so.2, an unknown scheme, a server without ranges,
 * ST_OPEN_READ_WRITE).
 * Any thread. */
st_status st_open(const char *path, const st_open_options *opts, st_file **out);

/* Open a file that lies in memory, for reading only. `bytes` is borrowed until
 * st_close, also of its snapshots, and must not change meanwhile. st_reopen of
 * the handle is ST_E_UNSUPPORTED. Statuses: the format's. Any thread. */
st_status st_open_memory(const void *bytes, size_t size, st_file **out);

/* Free the handle. Every view, name and shape taken from it dies with it. Its
 * transactions end, and drop what they staged; each still wants its
 * st_txn_free, and answers ST_E_TXN_FAILED till then. Snapshots live on. After
 * commits with ST_TXN_JOURNAL_ONLY it waits as st_sync does, but no longer than
 * ten seconds for a lock; the next st_open finishes what is left. It answers no
 * status: st_sync before it does. */
void st_close(st_file *file);

/* Show the file as it is now: what others have committed, replaced files
 * included. Names, shapes and views that were given out stay valid, and show
 * the file that they were taken from; indices are new. Memory that the handle
 * owns (ST_MAP_NONE, st_load) is read anew. If it was given out it keeps its
 * address; under ST_MAP_COPY_ON_WRITE it gets another. So it does where a
 * failure or an interrupt cuts that short: a view from before may then stay
 * half old and half new, and its memory is kept beside the other's.
 * Statuses: as st_open; ST_E_INTERRUPTED. Must not race with calls that take an
 * index. */
st_status st_refresh(st_file *file);

/* Ask the calls that now run on this handle, in any thread, to give up waiting
 * for locks and to stop long reads: they answer ST_E_INTERRUPTED. Any thread,
 * and from signal handlers. NULL is fine. */
void st_interrupt(st_file *file);

/* ================================================================ tensors */

/* An element type of the format. 0 is never valid. The numbers have no order
 * that means anything. */
typedef uint32_t st_dtype;

#define ST_DTYPE_BOOL 1
#define ST_DTYPE_F4 2 /* two elements a byte */
#define ST_DTYPE_F6_E2M3 3
#define ST_DTYPE_F6_E3M2 4
#define ST_DTYPE_U8 5
#define ST_DTYPE_I8 6
#define ST_DTYPE_F8_E5M2 7
#define ST_DTYPE_F8_E4M3 8
#define ST_DTYPE_F8_E8M0 9
#define ST_DTYPE_F8_E4M3FNUZ 10
#define ST_DTYPE_F8_E5M2FNUZ 11
#define ST_DTYPE_I16 12
#define ST_DTYPE_U16 13
#define ST_DTYPE_F16 14
#define ST_DTYPE_BF16 15
#define ST_DTYPE_I32 16
#define ST_DTYPE_U32 17
#define ST_DTYPE_F32 18
#define ST_DTYPE_C64 19
#define ST_DTYPE_F64 20
#define ST_DTYPE_I64 21
#define ST_DTYPE_U64 22

/* The name as in a header ("BF16"); NULL for a number that is none. Static. */
const char *st_dtype_name(st_dtype dtype);
/* Bits an element: 4, 6, 8, 16, 32 or 64; 0 for a number that is none. */
uint32_t st_dtype_bits(st_dtype dtype);
/* The dtype of that name. ST_E_DTYPE if there is none. */
st_status st_dtype_parse(const char *name, size_t name_len, st_dtype *out);

/* A tensor: a description and, where there is one, a view of its bytes.
 * This struct is frozen. A call that takes one wants its reserved fields zero,
 * else ST_E_UNSUPPORTED. */
typedef struct st_tensor {
  const char *name;
  size_t name_len;       /* bytes; what libst gives out is never ST_NTS */
  st_dtype dtype;
  uint32_t rank;         /* 0: a scalar */
  const uint64_t *shape; /* `rank` numbers, slowest first (C order); what libst
                            gives out is not NULL even if rank is 0 */
  const void *data;      /* little-endian elements in C order, no strides; may
                            be unaligned; NULL in a description and for 0
                            bytes */
  uint64_t nbytes;       /* product(shape) * bits / 8 */
  uint64_t file_offset;  /* of the first byte, from the start of the file; of a
                            tensor that steps of a delta lead to: from the start
                            of memory that looks like a file */
  uint32_t shard;        /* number of the file it is in, as of st_shard_path; 0
                            in a single file */
  uint32_t reserved0;    /* zero */
  uint64_t reserved[2];  /* zero */
} st_tensor;

/* The number of tensors. 0 for NULL. */
size_t st_count(const st_file *file);

/* Describe the n tensors from `first` on, in the order of file offsets; of
 * several files as "Shards" and "Deltas" say. `data` is NULL in each. Without
 * deltas the shapes of all tensors of one shard lie in one array.
 * ST_E_OUT_OF_RANGE if there are fewer. Any thread. */
st_status st_at(st_file *file, size_t first, size_t n, st_tensor *out);

/* Describe the tensor of that name, as st_at does. O(1). ST_E_NOT_FOUND. */
st_status st_describe(st_file *file, const char *name, size_t name_len,
                      st_tensor *out);

/* The index, for st_at, of the tensor of that name. O(1). ST_E_NOT_FOUND. */
st_status st_find(st_file *file, const char *name, size_t name_len,
                  size_t *out);

/* All names, in the order of st_at, each followed by a NUL. A name that holds
 * NUL makes the parts ambiguous: there are then more of them than st_count, and
 * st_at tells them apart.
 *   dst   at least *size bytes; or NULL, to ask for the size alone.
 *   size  in: bytes at dst; out: bytes needed. ST_E_BUFFER_SIZE if dst is
 *         smaller. */
st_status st_names(st_file *file, char *dst, size_t *size);

/* The pairs of __metadata__, in the order of the header. Strings end with a NUL
 * and live as names do. Any of the four pointers may be NULL. st_metadata_count
 * is 0 for NULL.
 * Statuses: ST_E_OUT_OF_RANGE; ST_E_NOT_FOUND. */
size_t st_metadata_count(const st_file *file);
st_status st_metadata_at(st_file *file, size_t i, const char **key,
                         size_t *key_len, const char **value,
                         size_t *value_len);
st_status st_metadata_get(st_file *file, const char *key, size_t key_len,
                          const char **value, size_t *value_len);

/* ================================================================ reading */

/* A view of a tensor, without a copy: `data` points into the mapping (or, where
 * there is none, into memory that the handle owns and fills on first use).
 * Read-only. Valid until st_close or st_release, also across this handle's own
 * commits: under a shared mapping a patched tensor then shows its new bytes.
 * If somebody truncates the file, or its storage fails to bring a page (EIO; on
 * NFS also ESTALE, if another host replaced the file), touching the view is a
 * SIGBUS; where that can happen use st_read, or ST_MAP_NONE.
 * Memory of the handle's own shows at once what this handle patches; what
 * others patch it shows after st_refresh. Until then a view of a tensor may
 * have new rows of this handle beside rows from before the others' patches.
 *
 * Under ST_MAP_COPY_ON_WRITE a view may be written (`data` cast to void *), by
 * this process for itself: the file and other handles never see it, further
 * views of this handle do. It is no snapshot. Page by page:
 *   the first write  copies the page, once; from then on it is this process's
 *                    own memory, and nothing that befalls the file shows in it
 *                    but a truncation.
 *   a patch          by this process, through whichever handle, does not show:
 *                    in all copy-on-write views the pages that will change
 *                    first become this process's own. They cost their memory;
 *                    ST_E_NOMEM where there is none. A file that is opened
 *                    amid the patch may show a mix of old and new, and keeps
 *                    it. A patch by another process shows in pages that were
 *                    not written, also while it is half done.
 *   a publish        shows in no view: they keep the old file.
 *   a truncation     is SIGBUS in all pages behind the new end: the system
 *                    takes back those that were written, too. So is a page
 *                    that the storage fails to bring.
 * This handle's own later views of a tensor that it patched, and all after
 * st_refresh, are of the file's new bytes, at another address. A forked child
 * has the views that it inherited, and maps the file anew for others.
 *
 * Statuses: ST_E_NOT_FOUND; without a mapping also ST_E_IO,
 * ST_E_FILE_CHANGED, ST_E_CANCELLED, ST_E_INTERRUPTED. Any thread. */
st_status st_get(st_file *file, const char *name, size_t name_len,
                 st_tensor *out);

/* The same by index, as st_at. ST_E_OUT_OF_RANGE. */
st_status st_get_at(st_file *file, size_t i, st_tensor *out);

/* Copy a tensor into dst. Reads with pread: a file truncated meanwhile is
 * ST_E_FILE_CHANGED, never a signal.
 *   dst_size  at least the tensor's nbytes, else ST_E_BUFFER_SIZE.
 *   read      may be NULL; else it describes the tensor that was copied, as
 *             st_at does: other threads may put another in its place at any
 *             time. Filled on ST_E_BUFFER_SIZE too: that much room it needs.
 * Statuses: ST_E_NOT_FOUND, ST_E_BUFFER_SIZE, ST_E_IO, ST_E_FILE_CHANGED,
 * ST_E_CANCELLED, ST_E_INTERRUPTED; ST_E_CHECKSUM from a URL, and from
 * filesystems that have checksums. Any thread. */
st_status st_read(st_file *file, const char *name, size_t name_len, void *dst,
                  size_t dst_size, st_tensor *read);

/* One dimension's part of a slice, as Python's start:stop:step. A negative
 * start or stop counts from the end. Start and stop are clipped to the
 * dimension. The step may be negative, but not 0. A missing start or stop is
 * written as INT64_MIN or INT64_MAX, whichever lies that way. This struct is
 * frozen. */
typedef struct st_range {
  int64_t start;
  int64_t stop;
  int64_t step;
} st_range;
#define ST_RANGE_ALL { 0, INT64_MAX, 1 }

/* What st_read_slice would read.
 *   shape   room for `capacity` numbers, one a dimension; or NULL, 0.
 *   rank    how many dimensions the tensor has; may be NULL.
 *   nbytes  the size in bytes; may be NULL.
 * ST_E_BUFFER_SIZE if `shape` has less room than there are dimensions: nothing
 * is written to it, but rank and nbytes are told. Other statuses:
 * ST_E_NOT_FOUND; ST_E_INVALID_ARGUMENT for a step of 0; ST_E_OUT_OF_RANGE for
 * more ranges than dimensions; ST_E_SUBBYTE where 4- or 6-bit elements would be
 * cut inside a byte. Any thread. */
st_status st_slice_shape(st_file *file, const char *name, size_t name_len,
                         const st_range *ranges, size_t n, uint64_t *shape,
                         size_t capacity, size_t *rank, uint64_t *nbytes);

/* Copy part of a tensor into dst, packed in C order. `ranges` are for the n
 * leading dimensions; the others are taken whole. Only the bytes needed are
 * read, in file order, with small gaps read through. `read` as in st_read: it
 * describes the whole tensor. Statuses: as st_slice_shape and st_read.
 * Any thread. */
st_status st_read_slice(st_file *file, const char *name, size_t name_len,
                        const st_range *ranges, size_t n, void *dst,
                        size_t dst_size, st_tensor *read);

/* =============================================================== changing */

/* Replace the bytes of one tensor, in place, as a transaction of its own:
 * checked, locked, journalled, durable on return; on failure the file is as it
 * was, unless the status is ST_E_NEEDS_RECOVERY.
 *   value  dtype, rank, shape, nbytes and data of the new tensor; dtype and
 *          shape must equal those in the file. Its other fields are not read,
 *          but the reserved ones must be zero.
 *          `data` is borrowed during the call, and may be a view of this file.
 * Statuses: as st_txn_update and st_txn_commit. Any thread. */
st_status st_update(st_file *file, const char *name, size_t name_len,
                    const st_tensor *value);

/* In which order a file has its tensors (every `layout`). */
#define ST_LAYOUT_KEEP 0u      /* as given; in a transaction: as in the file,
                                  new ones at the end. Where a tensor would then
                                  begin at no multiple of its element's size
                                  (and the file had no such tensors before):
                                  wide elements before narrow ones, else in this
                                  order */
#define ST_LAYOUT_CANONICAL 1u /* as stock writers do: by dtype, wide before
                                  narrow, then by name */
#define ST_LAYOUT_STOCK 2u     /* not in a transaction: canonical, and byte for
                                  byte what safetensors 0.8 writes (which has
                                  no order of its own for several metadata
                                  keys: here, as given) */

/* st_txn_options.flags */
#define ST_TXN_COPY 1u        /* payloads are copied at once, so that the caller
                                 may free them */
#define ST_TXN_PUBLISH 2u     /* publish also what could be patched: no reader
                                 sees a mix of old and new */
#define ST_TXN_BREAK_LINKS 4u /* publish a file that has other hard links, which
                                 keep the old bytes */
#define ST_TXN_NEW_NAMES 8u   /* shards that are rewritten get new names: see
                                 "Shards" */

#define ST_TXN_JOURNAL_ONLY 16u /* a patch is durable by its journal, and the
                                   file is synced later: see st_sync */

#define ST_GRACE_DEFAULT 0u        /* one hour */
#define ST_GRACE_NONE 0xffffffffu  /* no time at all */

typedef struct st_txn_options {
  uint32_t struct_size;
  uint32_t flags;           /* ST_TXN_... */
  int32_t lock_timeout_ms;  /* at commit */
  uint32_t shard_grace_s;   /* with ST_TXN_NEW_NAMES: seconds that old shards
                               stay, or ST_GRACE_... */
  st_progress_fn progress;  /* of this transaction's calls; may be NULL */
  void *progress_user;
  uint32_t layout;          /* ST_LAYOUT_KEEP or _CANONICAL. Any but KEEP, and
                               an alignment or reserve, makes the commit
                               publish: a file, or those shards that the
                               transaction changes */
  uint32_t alignment;       /* of the first data byte of a new file: a multiple
                               of 8, at most 2^20; 0: chosen so that most bytes
                               are shared with the old file; if none can be,
                               64; if the header is near its limit, 8 */
  uint64_t header_reserve;  /* spare bytes in the header of a new file, at
                               least */
} st_txn_options;

/* Begin a transaction on a handle opened with ST_OPEN_READ_WRITE. It holds no
 * lock until st_txn_commit. Free it with st_txn_free.
 * Statuses: ST_E_READ_ONLY, ST_E_POISONED. Any thread. */
st_status st_txn_begin(st_file *file, const st_txn_options *opts, st_txn **out);

/* Stage a tensor's new bytes: same dtype, shape and size as in the file. They
 * stream to the journal during the call, so a transaction may be larger than
 * memory; where the filesystem shares blocks (xfs, btrfs), those of large
 * tensors may be read at commit instead. So `value->data` stays valid, and its
 * bytes unchanged, until the commit or st_txn_free, unless the transaction has
 * ST_TXN_COPY.
 * What is committed is what was staged: bytes that are read at commit are
 * compared with a hash taken here, and if they changed the commit answers
 * ST_E_INVALID_ARGUMENT. `value->data` may be a view of this very file, from
 * any handle: two tensors are swapped by staging each with the other's view.
 * With ST_TXN_PUBLISH, and after a call such as st_txn_put, data is read as
 * st_txn_put says.
 * A tensor staged twice takes the last value.
 * A value without bytes is checked, and stages nothing: at commit nothing is
 * asked of its tensor, also in a file that was replaced. So in
 * st_txn_update_slice.
 * Statuses that leave the transaction as it was: ST_E_NOT_FOUND,
 * ST_E_DTYPE_MISMATCH, ST_E_SHAPE_MISMATCH, ST_E_NBYTES_MISMATCH; of several
 * files ST_E_FILE_CHANGED (others have replaced shards, or the index; so has
 * this handle, in another thread, since something was staged; refresh the
 * handle, and begin another). Others end it: ST_E_NO_SPACE,
 * ST_E_PERMISSION, ST_E_IO, ST_E_CANCELLED, ST_E_INTERRUPTED, ST_E_TXN_FAILED,
 * ST_E_FORKED; ST_E_JOURNAL (another user has the file open, or was killed, and
 * this one may not write to that user's journal folder; the message says who
 * ends it, and how). */
st_status st_txn_update(st_txn *txn, const char *name, size_t name_len,
                        const st_tensor *value);

/* Stage new bytes for a part of a tensor: a slice, or rows that `indices`
 * names. Journal and locks hold these bytes alone, so workers that change
 * different rows of one tensor go on side by side.
 *   ranges   for the n leading dimensions, as in st_read_slice. With `indices`
 *            they are for the n dimensions behind the first.
 *   indices  index_count rows of the first dimension, in any order; negative
 *            ones count from its end. NULL, 0: all that `ranges` leaves.
 *   value    dtype: as the tensor's. shape: of the slice, with one number for
 *            each dimension of the tensor; with `indices` the first is
 *            index_count. nbytes and data: packed in C order. Other fields as
 *            in st_update. `data` is borrowed during the call alone, and may be
 *            a view of this file.
 * What is staged later wins: over a row that `indices` names before, over
 * slices, and over a whole tensor. A slice may also follow st_txn_put and
 * st_txn_rename of its tensor; it is then published with them.
 * Short runs may lie near each other, as the columns of a narrow matrix do:
 * less than 2 KiB each, and less than 4 KiB apart. They are locked,
 * journalled and written with the bytes between them, which are read under the
 * lock. Other runs stay apart, each with some 100 bytes of journal. A
 * transaction with more than 1024 of them also locks the bytes between those
 * that lie nearest. On storage that several hosts share, locks reach to pages;
 * not so on GlusterFS.
 * Statuses that leave the transaction as it was: ST_E_NOT_FOUND,
 * ST_E_DTYPE_MISMATCH, ST_E_SHAPE_MISMATCH, ST_E_NBYTES_MISMATCH;
 * ST_E_INVALID_ARGUMENT for a step of 0; ST_E_OUT_OF_RANGE for more ranges than
 * dimensions, and for an index outside; ST_E_SUBBYTE where 4- or 6-bit elements
 * would be cut inside a byte. Others end it, as in st_txn_update; so does
 * ST_E_INVALID_ARGUMENT where the caller changed a whole tensor that was staged
 * before and lies below. */
st_status st_txn_update_slice(st_txn *txn, const char *name, size_t name_len,
                              const st_range *ranges, size_t n,
                              const int64_t *indices, size_t index_count,
                              const st_tensor *value);

/* The following change the layout. A transaction with one of them in it, its
 * updates included, is published. Every reader, stock ones too, sees the old
 * file or the new one, whole, at every instant and after any crash; a process
 * that has the old one open keeps it. The new file has the old one's mode,
 * owner, ACL and extended attributes; a symbolic link keeps leading to it.
 * Bytes that stay never pass through the process: the filesystem shares them
 * (xfs, btrfs), or the kernel copies them. Names resolve as the calls before in
 * the same transaction left them. A refusal leaves the transaction as it was.
 * With ST_TXN_COPY these end it: ST_E_NO_SPACE, ST_E_IO, ST_E_CANCELLED,
 * ST_E_INTERRUPTED.
 * Statuses of all: ST_E_TXN_FAILED, ST_E_FORKED, ST_E_POISONED. */

/* Add a tensor, or replace one by any dtype and shape. One that is replaced
 * keeps its place in the order of the file, others come last. `value` as in
 * st_txn_update, and its data is borrowed until the commit or st_txn_free; or
 * with ST_TXN_COPY written out during the call, so that memory is bounded by
 * one payload. libst reads borrowed data once, at commit, with the file locked.
 * It writes the bytes that the data holds then. No hash is taken before. So a
 * view of this file gives the bytes that the file has at commit. The same goes
 * for updates that follow in the same transaction.
 * Statuses: ST_E_DTYPE, ST_E_SHAPE_OVERFLOW, ST_E_SUBBYTE,
 * ST_E_NBYTES_MISMATCH, ST_E_INVALID_ARGUMENT (the name "__metadata__"),
 * ST_E_HEADER_UTF8 (the name), ST_E_UNSUPPORTED (the index names no shard). */
st_status st_txn_put(st_txn *txn, const char *name, size_t name_len,
                     const st_tensor *value);

/* Remove a tensor. ST_E_NOT_FOUND. */
st_status st_txn_delete(st_txn *txn, const char *name, size_t name_len);

/* Give a tensor another name. ST_E_NOT_FOUND; ST_E_DUPLICATE_NAME if that is
 * taken; ST_E_INVALID_ARGUMENT and ST_E_HEADER_UTF8 as st_txn_put. */
st_status st_txn_rename(st_txn *txn, const char *from, size_t from_len,
                        const char *to, size_t to_len);

/* Set a key of __metadata__, or with value NULL and ST_NTS as its length remove
 * it (ST_E_NOT_FOUND). NULL with 0 is the empty value, as in st_metadata.
 * ST_E_HEADER_UTF8. */
st_status st_txn_set_metadata(st_txn *txn, const char *key, size_t key_len,
                              const char *value, size_t value_len);

#define ST_PLAN_NOTHING 0u
#define ST_PLAN_PATCH 1u   /* in place, through the journal */
#define ST_PLAN_PUBLISH 2u /* a new file */

/* What a commit does, and what it costs: journals, new files and the index of
 * shards together. Staged bytes that the kernel takes from a journal into a new
 * file count nowhere. */
typedef struct st_plan {
  uint32_t struct_size;
  uint32_t kind;          /* ST_PLAN_... */
  uint64_t file_size;     /* after it, bytes; of shards: of all that change */
  uint64_t data_offset;   /* after it: where tensors begin; of shards that
                             change: the largest */
  uint64_t bytes_written; /* from the process: to files, headers, the index, and
                             what journals still lack */
  uint64_t bytes_shared;  /* with the old files, without a copy */
  uint64_t bytes_copied;  /* of the old files, by the kernel */
  uint64_t space_needed;  /* free bytes that it takes at once, and a little for
                             the filesystem's own */
  uint64_t space_free;    /* free bytes now; UINT64_MAX if not known */
  char how[256];          /* one sentence */
} st_plan;

/* A dry run: touches nothing. The commit reckons the same again with its locks
 * held, and answers ST_E_NO_SPACE before it writes anything if space_needed is
 * more than space_free.
 * Statuses: those of spelling a new header (ST_E_HEADER_TOO_LARGE,
 * ST_E_OFFSETS); ST_E_INVALID_ARGUMENT (alignment);
 * ST_E_HARD_LINKS; ST_E_TXN_FAILED, ST_E_FORKED, ST_E_POISONED. */
st_status st_txn_plan(st_txn *txn, st_plan *out);

/* Make all staged changes durable, or none. Frees nothing. After ST_E_BUSY the
 * transaction may be committed again; after any other answer it has ended, and
 * further calls answer ST_E_TXN_FAILED. After a publish the handle shows the
 * new file.
 * Statuses, all but ST_E_NEEDS_RECOVERY with nothing changed:
 *   ST_E_BUSY              a lock was not free in time; the error info
 *                          names the tensor;
 *   ST_E_FILE_CHANGED      the file was replaced by one in which a staged
 *                          tensor is missing or has another form;
 *   40 to 61               the file is no good any more: it was truncated, or
 *                          replaced by what is against the format;
 *   ST_E_NO_FILE           nothing has the file's name any more;
 *   ST_E_NOT_REGULAR       something else has it;
 *   ST_E_INVALID_ARGUMENT  the caller changed bytes that were staged;
 *   ST_E_NEEDS_RECOVERY    it failed at, or after, the point of no return: the
 *                          change is decided by recovery; open the file anew;
 *   ST_E_HARD_LINKS        a publish would leave the file's other names behind;
 *   ST_E_UNSUPPORTED       a publish of a file that is a mount point of its
 *                          own, or of shards with one (where /proc does not
 *                          tell: ST_E_NEEDS_RECOVERY, which succeeds when
 *                          nothing is mounted there any more);
 *   ST_E_JOURNAL           another writer's journal, or what was staged, is
 *                          damaged; or as in st_txn_update;
 *   ST_E_PERMISSION        a publish where another user's journal folder lets
 *                          nobody in: a change may wait there;
 *   ST_E_LOCK_UNSUPPORTED, ST_E_NO_SPACE, ST_E_IO, ST_E_POISONED,
 *   ST_E_CANCELLED, ST_E_INTERRUPTED, ST_E_TXN_FAILED, ST_E_FORKED; those of
 *   st_txn_plan */
st_status st_txn_commit(st_txn *txn);

/* Free the transaction, and drop what it staged and did not commit. */
void st_txn_free(st_txn *txn);

/* Make durable in the file what was committed with ST_TXN_JOURNAL_ONLY.
 *
 * Such a commit is a patch that waits for one sync, of its journal. ST_OK is
 * durable by that: after a crash the next st_open finishes the change. The new
 * bytes are in the file at once, and every reader on this machine sees them.
 * The kernel writes them to the disk in its own time. The journal stays until
 * they are durable there, which happens
 *  - with this call;
 *  - before a commit on this handle that changes some of the same bytes, or
 *    publishes;
 *  - with st_close;
 *  - before another handle or process changes some of the same bytes,
 *    publishes, saves or recovers. It writes the bytes once more, from the
 *    journal.
 * So the flag pays where commits that follow one another change different
 * bytes. At most 16 commits wait: the 17th first makes them durable.
 * The flag changes nothing where the commit publishes, on shards, on btrfs, and
 * on network and FUSE storage: there ST_OK means that the file has the bytes,
 * durably.
 * While a commit waits, only libst may write to the file. If another program
 * writes over these bytes, a crash may take its bytes back. Or recovery answers
 * ST_E_JOURNAL. The journal folder must stay beside the file. After a crash,
 * open the file once before you copy both.
 * Statuses: ST_E_BUSY (a recovery, a publish, or another thread's st_sync has
 * the file for longer than the handle's lock_timeout_ms); ST_E_INTERRUPTED;
 * ST_E_NEEDS_RECOVERY (a sync failed: nothing is lost, and the next st_open
 * finishes it); ST_E_IO; ST_E_POISONED. Any thread. */
st_status st_sync(st_file *file);

/* ================================================================= saving */

/* A pair of __metadata__, UTF-8. This struct is frozen. */
typedef struct st_metadata {
  const char *key;
  size_t key_len;
  const char *value;
  size_t value_len;
} st_metadata;

typedef struct st_save_options {
  uint32_t struct_size;
  uint32_t flags;          /* zero */
  uint32_t layout;         /* ST_LAYOUT_... */
  uint32_t alignment;      /* of the first data byte: a multiple of 8, at most
                              2^20 (4096 suits O_DIRECT and devices); 0: 64, or
                              8 with ST_LAYOUT_STOCK and if the header is near
                              its limit */
  uint64_t header_reserve; /* spare bytes in the header, for later growth */
  int32_t lock_timeout_ms; /* where a file is replaced; of a copy also until
                              nobody changes its source */
  uint32_t reserved0;      /* zero */
  st_progress_fn progress; /* may be NULL */
  void *progress_user;
} st_save_options;

/* Write a file of n tensors and m pairs of metadata. Until it returns ST_OK the
 * path leads to the old file, or to none; then to the new one, durably. Readers
 * of an old file keep it. It is written under a temporary name beside the path
 * (.<name>.st-tmp-<digits>), and removed on failure. If this process dies, the
 * next writer or st_recover removes it. The next writer may leave it if it was
 * one of three or more at once. The mode is by the umask. A file that is
 * replaced hands on its mode, owner, ACL and extended attributes; its other
 * hard links keep the old bytes. A symbolic link is followed, but one that
 * leads to nothing is replaced itself.
 *   tensors  name, name_len, dtype, rank, shape, nbytes and data of each; other
 *            fields as in st_update. `data` is borrowed during the call.
 *   opts     NULL for the defaults.
 * Statuses: ST_E_INVALID_ARGUMENT (the path has the name of an index of shards,
 * *.safetensors.index.json or *.safetensors.index.VARIANT.json: an open of it
 * looks for shards; a tensor is named "__metadata__"); ST_E_DTYPE,
 * ST_E_SIZE_MISMATCH, ST_E_SHAPE_OVERFLOW, ST_E_SUBBYTE, ST_E_DUPLICATE_NAME,
 * ST_E_METADATA, ST_E_HEADER_UTF8, ST_E_HEADER_TOO_LARGE (no reader would take
 * it); ST_E_NO_SPACE, ST_E_NO_FILE (the folder), ST_E_PERMISSION,
 * ST_E_NOT_REGULAR, ST_E_UNSUPPORTED (the file is a mount point of its own),
 * ST_E_IO, ST_E_BUSY, ST_E_CANCELLED: nothing changed.
 * ST_E_NEEDS_RECOVERY: the new file is in place, but the folder could not be
 * synced; save it again. Any thread. */
st_status st_save(const char *path, const st_tensor *tensors, size_t n,
                  const st_metadata *meta, size_t m,
                  const st_save_options *opts);

/* Begin to write a file tensor by tensor, so that it may be larger than memory.
 * Tensors that are declared (name, dtype, shape and nbytes of n tensors; data
 * is not read) have their place from the start, and are written in any order
 * and in pieces. Other tensors lie behind one another as they come. In files of
 * more than 8 MiB a header of up to 64 KiB has room before them. Another
 * layout, or a longer header, costs one more copy at the end. The path is as it
 * was until st_writer_finish. Free the writer with st_writer_free.
 * Statuses: as st_save. Any thread. */
st_status st_writer_open(const char *path, const st_tensor *declared, size_t n,
                         const st_metadata *meta, size_t m,
                         const st_save_options *opts, st_writer **out);

/* Write the next nbytes of a declared tensor. `data` is borrowed during the
 * call.
 * Statuses that leave the writer as it was: ST_E_NOT_FOUND,
 * ST_E_NBYTES_MISMATCH (more than is missing). Others end it: ST_E_NO_SPACE,
 * ST_E_IO, ST_E_CANCELLED, ST_E_FORKED, ST_E_TXN_FAILED. */
st_status st_writer_write(st_writer *writer, const char *name, size_t name_len,
                          const void *data, uint64_t nbytes);

/* Write a whole tensor, declared or not: name, name_len, dtype, rank, shape,
 * nbytes and data are read. Statuses: as st_writer_write; ST_E_DUPLICATE_NAME,
 * ST_E_SHAPE_MISMATCH (not as declared), ST_E_DTYPE, ST_E_SHAPE_OVERFLOW,
 * ST_E_SUBBYTE; ST_E_INVALID_ARGUMENT for the name __metadata__, and where
 * st_writer_finish has answered ST_E_BUSY, as the file is made by then;
 * ST_E_HEADER_UTF8, ST_E_HEADER_TOO_LARGE (the tensors before can be finished;
 * where another layout sorts them, st_writer_finish may tell of a few bytes too
 * many). None of these ends it. */
st_status st_writer_put(st_writer *writer, const st_tensor *tensor);

/* Make the file durable and give it its name. Frees nothing. After ST_E_BUSY
 * and ST_E_INCOMPLETE it may be called again, and after ST_E_IO where too many
 * files were open (EMFILE, ENFILE). After any other answer the writer has
 * ended, and further calls answer ST_E_TXN_FAILED. Statuses: as st_save;
 * ST_E_FORKED. */
st_status st_writer_finish(st_writer *writer);

/* Free the writer, and drop what it wrote if it was not finished. */
void st_writer_free(st_writer *writer);

/* ########################################################################
 * Advanced: for special needs.
 * ######################################################################## */

/* ============================================ several handles and states */

#define ST_REOPEN_COPY_ON_WRITE 1u /* for reading only, with
                                      ST_MAP_COPY_ON_WRITE, however the data of
                                      `file` is reached */

/* A second handle on the same file, with the same options: its own descriptor,
 * its own mapping, its own locks. For worker threads. The callbacks of `file`
 * are its own, too, and must live as long.
 *   flags  ST_REOPEN_..., or 0.
 * Statuses: as st_open; ST_E_FILE_CHANGED if the path names no file now, or a
 * file that no commit of `file` made. Shards are only asked so with
 * ST_REOPEN_COPY_ON_WRITE: the index, and the shards that `file` has opened.
 * Any thread. */
st_status st_reopen(const st_file *file, uint32_t flags, st_file **out);

/* A handle on what `file` shows now, for reading only: the same names, indices,
 * shapes, metadata and bytes for as long as it lives, whatever is published or
 * refreshed meanwhile. (A patch shows, as under any view.) It shares
 * descriptor, mapping and index with `file`, so it costs two small allocations.
 *   out  free it with st_close, before or after `file`.
 * Every call that reads works on it. Calls that change answer ST_E_READ_ONLY.
 * st_refresh changes nothing. st_reopen gives a handle for reading of the same
 * file, if its path still leads there. It has the options of `file`: its
 * callbacks, which must live as long, and its counts in st_file_stats.
 * st_interrupt of either reaches calls on both. Shards that `file` has not
 * opened are opened when first needed. If one was changed by then, and another
 * that is open was replaced, both may be parts of one change: the answer is
 * ST_E_FILE_CHANGED. A shard may also be replaced after it was opened. Under
 * ST_MAP_NONE and ST_MAP_COPY_ON_WRITE that is ST_E_FILE_CHANGED, too, if its
 * descriptor was given up for others. Any thread. */
st_status st_snapshot(st_file *file, st_file **out);

/* Keep the mapping in which views of what `file` shows now lie: they stay until
 * st_mapping_free, also after st_close. A mapping keeps no descriptor and no
 * name, so many files may be closed whose views are in use.
 *   out   free it with st_mapping_free, before or after `file`
 *   data  NULL, or gets where the mapping begins: the file's first byte
 *   size  NULL, or gets its bytes
 * A view that does not lie there is not kept: its tensor was loaded by st_load,
 * or patched under ST_MAP_COPY_ON_WRITE. A forked child may use what its parent
 * kept; a handle that it uses has a mapping of the child's own.
 * ST_E_UNSUPPORTED: nothing is mapped (ST_MAP_NONE, st_open_memory), or `file`
 * is of several files. Any thread. */
st_status st_mapping_keep(st_file *file, st_mapping **out, const void **data,
                          size_t *size);

/* Unmap it, once all that share it are gone: views in it are dead. NULL is
 * fine. Any thread. */
void st_mapping_free(st_mapping *mapping);

/* "I hold no pointer from before": names, shapes, views, metadata and paths
 * that were taken from this handle are dead. For their sake the handle kept
 * states that a publish or refresh has superseded: mappings, descriptors,
 * indexes, blocks of deleted files. These go now, or when the last call that
 * uses them has ended. Snapshots keep what is theirs. Memory that the handle
 * owns (ST_MAP_NONE, st_load) stays if the state is still shown: a st_refresh
 * that comes next frees it. With a URL, a source or deltas, st_close alone
 * does. Must not race with calls on the same handle that give out pointers.
 * NULL is fine. */
void st_release(st_file *file);

/* ======================================================== what is no file */

/* A part of a source: `nbytes` > 0 bytes from `offset` on, which go to `dst`.
 * This struct is frozen. */
typedef struct st_source_range {
  uint64_t offset;
  uint64_t nbytes;
  void *dst;
} st_source_range;

/* Fills `n` ranges, each whole; all lie inside the source. `ranges` and the
 * memory behind it live during the call. Returns 0, or an errno:
 *   ESTALE      the bytes are no longer those of the opened version:
 *               ST_E_FILE_CHANGED
 *   ECANCELED   somebody gave up: ST_E_CANCELLED
 *   EOPNOTSUPP  ST_E_UNSUPPORTED; others as of a file: ENOENT, EACCES, EIO ...
 * Must not call libst with the handle of this source. A call that is stopped
 * ends when the reads that it has begun have returned. */
typedef int (*st_source_read_fn)(void *user, const st_source_range *ranges,
                                 size_t n);

/* Called once, when nothing reads any more: by st_close of the handle, or of
 * its last snapshot. A forked child that closes them calls it, too. */
typedef void (*st_source_close_fn)(void *user);

/* Bytes that are no file of this system: an object in a store, a member of an
 * archive, a stream that must be decrypted. The bytes and their size must stay
 * the same while the handle lives; a source that cannot promise this checks it,
 * and answers ESTALE. */
typedef struct st_source {
  uint32_t struct_size;
  uint32_t most_reads;    /* calls of `read` at once, by threads of libst too;
                             0 and 1: one after another. At most 64 are used */
  uint64_t size;          /* bytes */
  const char *name;       /* UTF-8, for messages; NULL: "source" */
  const char *identity;   /* UTF-8, the version of the bytes (an ETag, a hash),
                             for messages; NULL: none */
  st_source_read_fn read;
  st_source_close_fn close; /* may be NULL */
  void *user;
  size_t reserved0;       /* zero */
} st_source;

/* Open a safetensors file that a source holds, for reading only. One read takes
 * the header; a header of more than 16 KiB takes more. No data is read.
 *   source  copied; what it points at must live until its `close`.
 *   opts    NULL for the defaults. `map` counts only as ST_MAP_COPY_ON_WRITE
 *           or not: nothing can be mapped. Views are memory of the handle,
 *           filled when first looked at; st_load fills many at once.
 *           `io_threads` is at most most_reads. `memory_limit` makes reads
 *           shorter. `direct` and the environment do not count. `deltas` are
 *           ST_E_UNSUPPORTED.
 * st_get asks for a tensor as one range; st_read for 16 MiB after 16 MiB, or
 * for `block_size` if that is more. Bulk reads ask for blocks of `block_size`
 * (8 MiB), in file order, most_reads at once. So do slices of several runs:
 * near runs are read with the gap between them. A gap of 64 KiB is near. A
 * longer one, up to 1 MiB, is near if it is at most 16 times as long as the two
 * runs beside it. Each call takes at most 64 MiB of memory for such reads, or
 * `memory_limit` if that is less.
 * After fork() a child sees what was in memory. It reads nothing:
 * ST_E_UNSUPPORTED. st_reopen is ST_E_UNSUPPORTED too.
 * Where this call fails, `close` is not called: the source is the caller's.
 * Statuses: the format's (40 to 61); what `read` answers; ST_E_UNSUPPORTED
 * (ST_OPEN_READ_WRITE). Any thread. */
st_status st_open_source(const st_source *source, const st_open_options *opts,
                         st_file **out);

/* =========================================================== bulk reading */

#define ST_BULK_HUGE_PAGES 1u /* st_load: from the system's reserved huge pages,
                                 if there are enough (else as without) */
#define ST_BULK_DIRECT 2u     /* st_load: past the page cache, as
                                 ST_DIRECT_ON */
#define ST_BULK_FRESH_MEMORY 4u /* st_read_many: nobody has touched the memory
                                 of the destinations since mmap. libst chooses
                                 the size of its pages (madvise): huge ones for
                                 as long as they come quickly. Touched memory is
                                 safe, too, but may end on small pages */

typedef struct st_bulk_options {
  uint32_t struct_size;
  uint32_t flags;          /* ST_BULK_... */
  st_progress_fn progress; /* may be NULL: then the handle's */
  void *progress_user;
} st_bulk_options;

/* A tensor, or part of one, and where its bytes go. This struct is frozen. */
typedef struct st_read_request {
  const char *name;       /* NULL: `index` says which */
  size_t name_len;
  size_t index;           /* as st_at */
  void *dst;
  size_t dst_size;        /* at least the bytes asked for */
  const st_range *ranges; /* as st_read_slice; NULL, 0: all of it */
  size_t range_count;
  uint64_t reserved;      /* zero */
} st_read_request;

/* Read all requests in the order of the file, in whatever order they are given.
 * One read takes neighbours and the small gaps between them. The storage sets
 * the number of threads. Each thread has its own descriptor. All reads are
 * pread, so a file truncated meanwhile is ST_E_FILE_CHANGED, never a signal.
 * `progress` is called on this thread only. After a failure the destinations
 * may hold any bytes. No lock is taken: a patch may show half done (see "State"
 * above).
 * Shards behind a URL that the requests need are opened first, side by side.
 * Only then is the room looked at. So requests with no room (dst NULL, dst_size
 * 0) open the shards of many tensors. The answer is ST_E_BUFFER_SIZE then, or
 * ST_OK if the tensors have no bytes.
 *   opts  NULL for the defaults; flags: ST_BULK_FRESH_MEMORY.
 * Statuses: as st_read and st_read_slice. Any thread. */
st_status st_read_many(st_file *file, const st_read_request *reqs, size_t n,
                       const st_bulk_options *opts);

/* Bring tensors into memory, so that their views do not wait for the storage.
 * It reads large pieces in the order of the file. They go into the page cache,
 * or, where nothing is mapped, into memory that the handle owns. It does
 * nothing on memory filesystems, nor with ST_PREFETCH_NONE.
 *   indices  n of them, as st_at; NULL, 0: all tensors, or this worker's
 *            contiguous part of them if the handle has a worker_count. A
 *            pointer and 0: none.
 *   opts     NULL for the defaults; flags are 0.
 * Statuses: ST_E_OUT_OF_RANGE, ST_E_IO, ST_E_FILE_CHANGED, ST_E_CANCELLED,
 * ST_E_INTERRUPTED. Any thread. */
st_status st_prefetch(st_file *file, const size_t *indices, size_t n,
                      const st_bulk_options *opts);

/* Read tensors into one block of memory. The handle owns it until st_close, or
 * a refresh: see st_release. It begins at a multiple of 4096, and each tensor
 * is aligned in it as in the file. st_get then answers views into the block,
 * which no truncation of the file can turn into a signal. Tensors that already
 * are in the handle's memory are not read again. Tensors that another st_load
 * or st_prefetch of the handle is reading are waited for. No lock is taken: see
 * st_read_many.
 * Views in an ST_MAP_COPY_ON_WRITE mapping stay where they are, with what was
 * written into them. All their pages become this process's own instead, as if
 * each were written: they cost their memory, and `flags` do not count. What
 * that means for a patch and for a truncation, st_get tells.
 *   indices  n of them, as st_at; NULL, 0: all tensors. A pointer and 0:
 *            none.
 *   opts     NULL for the defaults.
 * Statuses: as st_prefetch. Any thread. */
st_status st_load(st_file *file, const size_t *indices, size_t n,
                  const st_bulk_options *opts);

/* ================================================================= shards */

/* A checkpoint of several files, whose index names the file of each tensor,
 * opens as one, and all calls work on it:
 *  - Tensors stand shard by shard, in the order of the shards' names, and
 *    within a shard by offset; st_tensor.shard is the number of the shard,
 *    file_offset counts in it. Metadata are those of the index, numbers as it
 *    spells them.
 *  - A shard is opened, and held against the index, when it is first needed. So
 *    any call that takes a tensor may also answer as st_open does, with
 *    ST_E_SHARD_MISSING, _TENSOR or _DUPLICATE. It answers ST_E_FILE_CHANGED if
 *    the index was replaced since it was read. So it does if the shard was
 *    changed by then, and another handle has replaced one that is open: both
 *    may be parts of one change. st_refresh mends that; a transaction refreshes
 *    the handle itself.
 *  - A handle keeps at most 128 descriptors open, however many shards there
 *    are. It keeps no more than an eighth of those that the process may have
 *    (ulimit -n). While it commits, a transaction takes three for each shard
 *    that it patches, and up to eight for one that it publishes. Where they run
 *    out it answers ST_E_IO; nothing is changed.
 *  - A transaction is all or nothing across shards. Each call on any handle,
 *    each snapshot and each refresh sees all of it or nothing, but for patches,
 *    which show one by one. So st_refresh, and a call that opens a shard, wait
 *    for a commit of another handle that renames its files: ST_E_BUSY.
 *  - A new name goes to the last shard that the transaction rewrites anyway,
 *    else to the last shard. A shard that loses all its tensors stays as a file
 *    without any, which the index names no more. weight_map follows, and
 *    total_size and total_parameters where the index has them as whole numbers,
 *    also spelled 160.0, 1.6e2 or "160". What follows is written as a number:
 *    120. Any other value of theirs stays, and st_verify warns of it. A total
 *    that was less than the tensors that go becomes 0.
 *  - st_file_io_info describes the first shard. A model without tensors may
 *    have no shard: the answer then has a reason, but no storage. st_file_stats
 *    sums the open shards.
 *
 * Shards that a transaction rewrites keep their names. With ST_TXN_NEW_NAMES
 * they get new ones. Each shard that the transaction changes is written once,
 * as a new file. Its name holds a number that is larger than any before it:
 * model-00001-of-00004.g7.safetensors. Then a new index takes the old one's
 * place, and that is the whole commit. It writes one copy of what changes;
 * keeping the names takes two where shards gain and lose tensors. A transaction
 * that only patches stays a patch.
 *
 * The old shards stay as they are for shard_grace_s: a stock reader that has
 * read the old index still finds every tensor where that index says. (A handle:
 * see below.) They are listed in <index>.st-old. The first commit with this
 * flag after that time removes them; so does st_recover at any time. It never
 * removes a shard that an index in the folder names, nor a file other than the
 * listed one. But a writer may die before the index names its new shards. They
 * are known by a number larger than any in the index, and removed; so is any
 * file with such a name, where that list lies.
 *
 * It is not the default. Until the old shards are removed, the folder holds old
 * and new ones. Tools that take files by a pattern (*.safetensors, *-of-*) then
 * take both: from_single_file, uploads to the Hub, cp. A handle that has read
 * the old index gets ST_E_FILE_CHANGED in two cases: for tensors of shards that
 * it has not opened yet, and for changes of shards that have a new name.
 * st_refresh mends that. A process that changes an old shard by the shard's own
 * path changes a file that no index names. The flag is ST_E_UNSUPPORTED: on one
 * file; where the index is a link into another folder, as in a cache of the
 * Hub; for a shard whose name does not end in .safetensors, holds a line break,
 * or is too long. */

/* How many files the handle stands for: 1, or the number of shards; and the
 * deltas on them. 0 for NULL. */
uint32_t st_shard_count(const st_file *file);

/* The absolute path of one of them, which lives as names do. ST_E_OUT_OF_RANGE;
 * ST_E_UNSUPPORTED for a file that was given as memory or as a source. A model
 * from a URL answers the URL, without its query. */
st_status st_shard_path(const st_file *file, uint32_t shard, const char **path);

/* Write a checkpoint as shards of at most max_shard_size bytes of tensors each
 * (a larger tensor gets one to itself), with their index:
 * model-00001-of-00003.safetensors, model.safetensors.index.json. Tensors keep
 * their order. Bytes do not pass through the process: the kernel copies them,
 * or shares their blocks. The index comes last: until it is there the folder
 * holds no checkpoint. Shards have temporary names until all are written
 * (.<name>.st-tmp-<digits>). On failure all goes again. If this process dies,
 * the next st_reshard into the folder removes what it left; also shards that
 * have their names, if they are as .<index>.st-new-<digits> lists them. It
 * removes no other *.safetensors: they are somebody else's.
 * The copy is of one state. Until the last byte is read, all files of `from`
 * are locked. Others that change `from` wait, and answer ST_E_BUSY after their
 * lock_timeout_ms. Readers go on. This call waits, by opts, for a change that
 * is under way. Each file takes a descriptor meanwhile. What a URL names is
 * read in one version. ST_E_NO_SPACE comes before the first byte, if there is
 * no room for all shards.
 * A new file has the bits to read and write that all files have in which the
 * tensors of `from` lie, but for those that the umask takes. As with cp, they
 * are for the group that the new file gets, and no ACL is copied. Its owner
 * may read and write it. If all of `from` lies behind URLs, the mode is by the
 * umask alone.
 *   from            anything that st_open takes; it is not changed.
 *   to_folder       made if it is not there; a checkpoint in it, or a shard, is
 *                   ST_E_INVALID_ARGUMENT; another st_reshard into it that is
 *                   under way is ST_E_BUSY.
 *   max_shard_size  not 0.
 *   opts            NULL for the defaults; a layout other than ST_LAYOUT_KEEP
 *                   holds within each shard.
 * Statuses: as st_open and st_save; ST_E_FILE_CHANGED (`from` is replaced again
 * and again). Any thread. */
st_status st_reshard(const char *from, const char *to_folder,
                     uint64_t max_shard_size, const st_save_options *opts);

/* Write a checkpoint as one file, in the same way. The file gets the metadata
 * of the index, without the totals. It also gets the keys of the first shard
 * that the index lacks. It is of one state, locks `from`, and has a mode, as by
 * st_reshard.
 * Statuses: as st_reshard; ST_E_INVALID_ARGUMENT (`to` is `from`, or a shard of
 * it: st_compact writes a file anew; or it has the name of an index). Any
 * thread. */
st_status st_join(const char *from, const char *to,
                  const st_save_options *opts);

/* ================================================================= deltas */

/* A delta is a safetensors file: the tensors that another has and its base has
 * not, or has with other bytes, dtype or shape, under their names. Where few
 * elements of a tensor changed, it holds these alone, packed by zstd, as U8.
 * Its metadata say what else changes, under keys that begin with "st.delta."
 * (core/delta/README.md has the format). Any reader of safetensors can look at
 * it.
 *
 * A delta fits a base that has the names, dtypes, shapes and metadata of the
 * one it was made from, in whatever order and layout. The tensors that the
 * delta replaces or deletes must have the bytes that they had; so it cannot be
 * applied twice. Tensors that it leaves alone may have been patched since.
 *
 * A sharded checkpoint counts as what st_join would make of it; which shard has
 * what does not matter. So a delta that was made of a file fits the same
 * tensors in shards, and the other way round. The delta itself is one file.
 *
 * st_open with st_open_options.deltas shows base and deltas as one, for
 * reading: tensors in the order, and metadata, that st_delta_merge would write.
 * Views lie in the file that has the tensor: st_tensor.shard counts the base's
 * files first, then the deltas. Names, dtypes, shapes and metadata must fit, so
 * all shards are opened, and so must the hashes that deltas have of each other.
 * The base is only sampled: the first bytes of a few tensors that are replaced.
 * st_verify checks everything. Tensors of which a delta holds elements are made
 * at the open, checked, and held in memory; they count as tensors of the last
 * delta that changes them. Their views are copies under ST_MAP_COPY_ON_WRITE,
 * made when first looked at. An open tells its progress over them, and so does
 * a refresh that reads them. A refresh keeps them as long as their files stay.
 * It is ST_E_DELTA_BASE if a patch or another write has changed what lies below
 * them. It need not notice what another program stores through a mapping of its
 * own. */

typedef struct st_delta_create_options {
  uint32_t struct_size;
  uint32_t alignment;      /* of the delta's first data byte, as in
                              st_save_options */
  int32_t lock_timeout_ms; /* for a change of the two that is under way; where
                              a delta of that name is replaced */
  uint32_t reserved0;      /* zero */
  st_progress_fn progress; /* over the bytes of `to`; may be NULL */
  void *progress_user;
} st_delta_create_options;

/* Write the delta that makes `to` of `from`, each a file or shards, by any path
 * that st_open takes. Both are read once, with pread, in a few megabytes of
 * memory. A tensor that differs is read twice if the delta holds the whole
 * tensor. The elements that changed lie in a temporary file beside `delta`
 * until all is compared.
 * The delta is of one state of both. Until the last byte is read, all of their
 * files are locked as by st_reshard; each takes a descriptor meanwhile. Where
 * the storage has no locks, the two should not be changed meanwhile.
 * The delta is durable, and its path leads to the old file, or none, or to the
 * whole new one at every instant. Where it replaces none, it has the bits to
 * read and write that all files of the two have, as by st_reshard.
 * Statuses: as st_open and st_save; ST_E_FILE_CHANGED (one of the two is
 * replaced again and again, or was changed without a lock);
 * ST_E_INVALID_ARGUMENT (`delta` is one of the two, or belongs to one, or has
 * the name of an index). Any thread. */
st_status st_delta_create(const char *from, const char *to, const char *delta,
                          const st_delta_create_options *opts);

typedef struct st_delta_apply_options {
  uint32_t struct_size;
  uint32_t flags;          /* ST_TXN_PUBLISH, ST_TXN_BREAK_LINKS */
  const char *reverse;     /* path: write the delta that undoes this one there;
                              NULL: do not; "": ST_E_NO_FILE. A file there
                              is replaced while the base is locked. Two calls of
                              which each one's `reverse` replaces the other's
                              base wait for each other until a lock_timeout_ms
                              is over: ST_E_BUSY */
  int32_t lock_timeout_ms;
  uint32_t reserved0;      /* zero */
  st_progress_fn progress; /* may be NULL */
  void *progress_user;
} st_delta_apply_options;

/* Apply a delta to its base, a file or shards, as one transaction: durable, all
 * or nothing, across shards too. It patches if the delta only gives tensors
 * other bytes. Else it publishes, as a transaction with st_txn_put does; but
 * the tensors are not aligned, and get the order of the delta's own result. A
 * patch writes what the delta holds, and of a tensor that it holds elements of
 * the pages that change.
 *   opts  NULL for the defaults.
 *   done  may be NULL; else filled with the plan by which it was done.
 * Before the base is touched, the delta's bytes are checked against the hashes
 * in the delta. So are the bytes of the base that will go, with the base
 * locked. The delta is locked, as by st_reshard, from before its check until
 * the answer. So a callback must not change it: it would wait in vain. The lock
 * of the delta comes before those of the base. The reverse delta is durable
 * before the change is decided. Readers of the base may see new bytes earlier,
 * where the storage shares blocks between files. The reverse delta has a mode
 * as st_reshard makes it of the base. Applied to the result it brings back
 * tensors, their order and the metadata. It does not bring back the order of
 * the keys, nor the padding of the header. It gets its name last, when all that
 * the change takes is made. A call that fails before that, as for want of room,
 * leaves what has the name. If the call fails after that, the reverse delta
 * stays, and fits nothing but the result. So give each apply a reverse name of
 * its own: what had the name before is gone then. Each shard is patched or made
 * anew for itself. Shards keep the order of their names, whatever the delta's;
 * a tensor that is added goes where st_txn_put puts it, so one that was deleted
 * may come back in another shard. Metadata go to the index; total_size and
 * total_parameters, which the index has of its own, to the header of the first
 * shard. What changes in the index becomes a string there, unless a number
 * takes the place of a number; also on the way back.
 * Statuses: ST_E_DELTA, ST_E_DELTA_BASE; ST_E_INVALID_ARGUMENT (`reverse` is
 * the base or the delta, or a file of the base, or is named as an index of
 * shards); ST_E_FILE_CHANGED (shards were replaced meanwhile; the delta was
 * truncated, or changed without a lock); ST_E_UNSUPPORTED (no tensor would be
 * left in shards); as st_open, st_txn_commit and st_save. Any thread. */
st_status st_delta_apply(const char *base, const char *delta,
                         const st_delta_apply_options *opts, st_plan *done);

/* The same through a handle that was opened with ST_OPEN_READ_WRITE. It shows
 * the result then, and other calls on it may go on meanwhile. With
 * ST_TXN_JOURNAL_ONLY among the flags it answers when the journal is durable,
 * and the file follows: see st_sync.
 * The delta is checked against what the handle shows. If another process has
 * published the file since, call st_refresh first. Otherwise, where the new
 * file is no base of the delta, the answer is ST_E_DELTA_BASE or
 * ST_E_FILE_CHANGED. For shards it is ST_E_FILE_CHANGED, whichever shard was
 * replaced. It is the same if this handle publishes a shard meanwhile.
 * Statuses: as st_delta_apply; ST_E_READ_ONLY; ST_E_POISONED; ST_E_FORKED;
 * ST_E_INTERRUPTED. Any thread. */
st_status st_apply_delta(st_file *file, const char *delta,
                         const st_delta_apply_options *opts, st_plan *done);

/* Fold n deltas, each made for what lies below it, into one new file, as
 * st_save writes it, also where the base is sharded (st_reshard cuts it up
 * again). Bytes are shared with base and deltas where the filesystem can and
 * offsets allow, else copied by the kernel. All is checked as by
 * st_delta_apply; but where a delta has steps, what they lead to is checked,
 * and not what they are taken of. It is of one state of base and deltas: all of
 * them are locked as by st_reshard, until the last byte is read. Where it
 * replaces no file, it has the bits to read and write that all of them have, as
 * by st_reshard.
 *   opts  NULL for the defaults. ST_LAYOUT_KEEP: the order that applying would
 *         give; alignment 0: what shares most with a base of one file, else 64.
 * Statuses: ST_E_DELTA, ST_E_DELTA_BASE; ST_E_INVALID_ARGUMENT (`to` is one of
 * the sources, or is named as an index of shards); ST_E_NOT_REGULAR (it is a
 * folder); as st_reshard. Any thread. */
st_status st_delta_merge(const char *base, const char *const *deltas, size_t n,
                         const char *to, const st_save_options *opts);

/* What a delta says of itself. */
typedef struct st_delta_info {
  uint32_t struct_size;
  uint32_t reserved0;
  uint64_t changed;          /* tensors replaced */
  uint64_t added;            /* tensors */
  uint64_t deleted;          /* tensors */
  uint64_t metadata_set;     /* keys */
  uint64_t metadata_removed; /* keys */
  uint64_t data_bytes;       /* of the tensors in it */
  char base[40];             /* identity of its base, 32 hexadecimal digits: of
                                names, dtypes, shapes and metadata, not of
                                bytes. Equal if only bytes change */
  char result[40];           /* identity of what it makes of that */
  uint64_t file_size;        /* of the delta itself, with its header */
} st_delta_info;

/* Reads the header alone. Statuses: ST_E_DELTA; as st_open. Any thread. */
st_status st_delta_describe(const char *delta, st_delta_info *out);

/* ================================================================= upkeep */

/* One finding of st_verify or st_recover. Filled by the library; struct_size
 * says how much of it this version fills. Pointers live during the call. */
typedef struct st_report {
  uint32_t struct_size;
  uint32_t level;      /* ST_LOG_... */
  st_status status;    /* what is wrong; ST_OK if nothing is */
  uint32_t reserved0;
  uint64_t offset;     /* in the file; UINT64_MAX if it is about no place */
  const char *message; /* one sentence; about a shard, with its path */
  size_t reserved1;    /* zero */
} st_report;

/* Return non-zero to stop (ST_E_CANCELLED). */
typedef int (*st_report_fn)(void *user, const st_report *report);

typedef struct st_verify_options {
  uint32_t struct_size;
  uint32_t reserved0;        /* zero */
  st_report_fn report;       /* once a finding; may be NULL */
  void *report_user;
  st_progress_fn progress;   /* over the bytes read; may be NULL; with deltas
                                what is read again counts as all of it */
  void *progress_user;
  const char *const *deltas; /* check these too, and that they fit what is at
                                `path` and each other, to the last byte */
  size_t delta_count;
} st_verify_options;

/* Check a file, or the shards of an index and whether they agree with it,
 * against every rule of the format, and read all its bytes once. Answers the
 * status of the first error, or ST_OK. Journals that wait, and old shards that
 * stay, are reported, not touched. Others may commit meanwhile. Where shards
 * disagree with the index, or are not there, this call waits for commits that
 * are under way, ten seconds at most. Then it looks again.
 * Statuses: as st_open; ST_E_CHECKSUM; with deltas ST_E_DELTA, ST_E_DELTA_BASE;
 * ST_E_BUSY, ST_E_FILE_CHANGED (commits on the shards take too long, or come
 * too often); ST_E_CANCELLED (progress or report). Any thread. */
st_status st_verify(const char *path, const st_verify_options *opts);

typedef struct st_recover_options {
  uint32_t struct_size;
  int32_t lock_timeout_ms;
  st_report_fn report;     /* once a journal, an old shard, and what else was
                              removed; may be NULL */
  void *report_user;
  st_progress_fn progress; /* while it waits for a lock; may be NULL */
  void *progress_user;
} st_recover_options;

/* Finish or drop what crashed writers left beside the file, or beside the index
 * and its shards: uncommitted journals are removed, committed ones are applied
 * and removed, changes that were under way are rolled back. st_open does the
 * same. Beside an index it also removes two kinds of shards, which st_open
 * leaves: new shards that no index came to name, and old shards, even before
 * their time (see ST_TXN_NEW_NAMES). A writer may have died before its new file
 * had the name. If no file has the name, ST_OK says that such a file was
 * removed, and ST_E_NO_FILE that there was none. `path` may also name a folder
 * without an index, or the index that is missing there. Then what an st_reshard
 * that died has left is removed; the folder stays. What cannot be removed, or
 * is another user's, is reported. Shards whose index was in its place, and is
 * gone, stay. Safe at any time, again, and from many processes. Where nothing
 * waits, ST_OK comes also if the file or an empty journal cannot be written
 * here; such a journal of another user's is reported, and left. The file itself
 * is not checked: of one that is no model, too, it is ST_OK. st_verify checks
 * it.
 * Statuses: ST_E_NEEDS_RECOVERY (a journal waits but it, or the file, cannot be
 * written here; or a shard's part of a transaction waits, and its super-journal
 * or that one's folder is another user's, and not to be trusted or read; the
 * message names that user); ST_E_PERMISSION (another user's cannot be read; the
 * message names the user); ST_E_JOURNAL (a journal does not fit the file; it
 * was moved aside, as <file>.st-journal/<id>.bad, and nothing was applied from
 * it; or one waits that is not to be trusted, and the message names its user;
 * where anybody may make files it is passed over with ST_OK, and the report
 * has ST_LOG_ERROR); ST_E_BUSY; ST_E_SHARD_MISSING; ST_E_NO_FILE;
 * ST_E_NOT_REGULAR (also of a folder without a model, in which nothing was
 * left); ST_E_IO; ST_E_CANCELLED (progress, or report; what was reported is
 * done). Any thread. */
st_status st_recover(const char *path, const st_recover_options *opts);

/* Rewrite a file in canonical order, with data at 64 or opts->alignment and no
 * spare room but opts->header_reserve; atomically, as any publish. Where the
 * filesystem can share blocks, less than a block of spare room more may let the
 * new file share them. Shards are rewritten one after the other, each by a
 * commit of its own. So there need be free space for one shard alone, unless
 * ST_TXN_NEW_NAMES keeps the old ones. What is done before a failure, or a
 * cancel, stays. The message says then which shard it is about, and that the
 * shards before it are done.
 *   opts  NULL for the defaults; `layout` is not read.
 * Statuses: as st_open and st_txn_commit. Any thread. */
st_status st_compact(const char *path, const st_txn_options *opts);

/* ============================================================ observation */

/* What kind of storage lies behind a path (st_io_info.storage). */
#define ST_STORAGE_UNKNOWN 0u
#define ST_STORAGE_LOCAL 1u
#define ST_STORAGE_MEMORY 2u
#define ST_STORAGE_NETWORK 3u
#define ST_STORAGE_PARALLEL 4u
#define ST_STORAGE_FUSE 5u
#define ST_STORAGE_OBJECT_STORE 6u /* a FUSE filesystem over an object store;
                                      also a source, as of a URL */

typedef struct st_io_info {
  uint32_t struct_size;
  uint32_t storage;          /* ST_STORAGE_... */
  uint32_t map;              /* the ST_MAP_... in use, never AUTO */
  uint32_t map_fallbacks;    /* how many steps down from the one first tried */
  uint64_t file_size;
  uint64_t header_size;      /* n: bytes of JSON with padding */
  uint64_t data_offset;      /* 8 + n: where tensors begin */
  char filesystem[64];       /* as in the mount table: "ext4", "fuse.gcsfuse";
                                "source" for what has none,
                                "memory" for st_open_memory */
  char reason[256];          /* one sentence: why this mapping */
  uint32_t prefetch;         /* ST_PREFETCH_NONE, SEQUENTIAL or PARALLEL */
  uint32_t direct;           /* ST_DIRECT_...: of bulk reads into memory */
  uint32_t io_threads;       /* readers of a bulk read */
  uint32_t block_size;       /* bytes of a request of theirs, at most */
  char prefetch_reason[256]; /* one sentence: how bulk reads go, and why */
} st_io_info;

/* How the data of a file is reached. Any thread. */
st_status st_file_io_info(const st_file *file, st_io_info *out);

/* The same, of one of the files that the handle stands for: see st_shard_count.
 * Statuses: ST_E_OUT_OF_RANGE; those of a shard that is opened for it. Any
 * thread. */
st_status st_shard_io_info(const st_file *file, uint32_t shard,
                           st_io_info *out);

typedef struct st_stats {
  uint32_t struct_size;
  uint32_t map_fallbacks;
  uint64_t bytes_read;          /* by libst's own reads, of this handle */
  uint64_t bytes_mapped;        /* address space */
  uint64_t bytes_resident;      /* of the mapping, in memory now (mincore) */
  uint64_t bytes_private_dirty; /* of the mapping: pages of ST_MAP_COPY_ON_WRITE
                                   that are this process's own */
  uint64_t bytes_owned;         /* filled in memory that the handle owns */
  uint64_t index_bytes;         /* names, shapes, offsets, hash table */
  uint64_t bytes_written;       /* into the file, of this handle */
  uint64_t journal_bytes;       /* into journals; blocks shared with them are
                                   not written */
  uint64_t commits;             /* transactions committed */
  uint64_t recoveries;          /* journals applied, rolled back or dropped */
  uint64_t lock_waits;          /* times that a lock was not free at once */
  uint64_t read_requests;       /* of bulk reads */
  uint64_t bytes_prefetched;    /* by st_prefetch, into the page cache */
  uint64_t reopens;             /* by this handle, in forked children */
} st_stats;

/* What a handle has done, and what it holds. Any thread. */
st_status st_file_stats(const st_file *file, st_stats *out);

/* =============================================================== reserved */

/* Names that are taken. These functions are not there yet; they are listed so
 * that nothing above must change when they come.
 *
 *   Calls that go on by themselves, with an eventfd to wait on:
 *     st_status st_op_submit(st_file *file, const struct st_op_request *what,
 *         st_op **out);
 *     st_status st_op_poll(st_op *op);     ST_E_BUSY while it runs
 *     st_status st_op_wait(st_op *op, int32_t timeout_ms);
 *     void st_op_cancel(st_op *op);
 *     void st_op_free(st_op *op);
 *
 *   Several processes that write one file's tensors:
 *     st_status st_writer_join(const char *path, const st_save_options *opts,
 *         st_writer **out); */

#ifdef __cplusplus
}
#endif

#endif /* ST_ST_H */
