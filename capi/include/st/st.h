/* st.h: libst, a storage engine for safetensors files.
 *
 * Open a file, look at its tensors without a copy, change them in place with
 * all the guarantees of a database, close it:
 *
 *     st_open_options opts = ST_OPEN_OPTIONS_INIT;
 *     opts.flags = ST_OPEN_READ_WRITE;
 *     st_file *f;  st_tensor w;
 *     if (st_open("model.safetensors", &opts, &f) != ST_OK) puts(st_last_error());
 *     st_get(f, "w", &w);                      (w.data: the bytes, not a copy)
 *     w.data = my_new_bytes;
 *     st_update(f, "w", &w);                   (durable when it returns ST_OK)
 *     st_close(f);
 *
 * Conventions, which hold unless a function says otherwise:
 *
 *  - Every function that can fail returns an st_status; ST_OK is 0. On failure
 *    st_last_error() holds one sentence for the calling thread: what, where,
 *    what to do. Output parameters are untouched on failure.
 *  - Any function may return ST_E_INVALID_ARGUMENT (a NULL that may not be, a
 *    struct_size that is zero), ST_E_NOMEM, or ST_E_INTERNAL (a bug in libst).
 *  - Sizes of memory are size_t; file quantities are uint64_t bytes.
 *  - Strings are UTF-8. Tensor names and metadata may hold NUL, so every name
 *    has a length beside it, and every function that takes a name has a twin
 *    ending in _n that takes a length.
 *  - No memory that the caller must free crosses this interface.
 *  - Structs that may grow begin with struct_size: set them up with their
 *    ST_..._INIT macro, or with the function st_..._init, which is given the
 *    size that the caller knows: sizeof *out. In option structs,
 *    bytes beyond what the library knows must be zero (else ST_E_UNSUPPORTED).
 *    In results, the library fills no more than struct_size bytes and zeroes
 *    those it does not know.
 *  - A handle (st_file) may be used from many threads at once; a transaction
 *    (st_txn) belongs to one thread at a time. st_close must not race with
 *    another call on the same handle.
 *  - Pointers taken from a handle (views, names, shapes, metadata, paths) live
 *    until its st_close or st_release. A state that a publish or a refresh has
 *    superseded goes at once if none of it was given out, else with those two.
 *  - A handle shows one state of its file: what other handles add or remove
 *    shows after st_refresh, what it publishes itself at once. A call sees one
 *    state, also beside publishes in other threads; st_snapshot gives several
 *    calls a handle of one state.
 *  - New values of a tensor that somebody patches in place show through shared
 *    mappings at once, so bytes under a view may change while they are read;
 *    st_read copies instead.
 *  - A call on local files needs no more than 64 KiB of stack, whatever they hold.
 *
 * Types, statuses and functions are stable within libst.so.2: they are added,
 * never renamed, renumbered or removed. "Since 2.x" names the first version.
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

/* ------------------------------------------------------------------ types */

/* An open file, and a transaction on it. Both opaque. Since 2.0. */
typedef struct st_file st_file;
typedef struct st_txn st_txn;

/* ---------------------------------------------------------------- status */

/* What a call answers. Each value is fixed for ever. Since 2.0. */
typedef int32_t st_status;

#define ST_OK 0

/* The call. */
#define ST_E_INVALID_ARGUMENT 1 /* a parameter is not what the function takes */
#define ST_E_NOMEM 2            /* memory could not be had */
#define ST_E_INTERNAL 3         /* a bug in libst; please report it */
#define ST_E_UNSUPPORTED 4      /* an option or struct from a newer version, or a thing this platform cannot do */
#define ST_E_CANCELLED 5        /* a progress callback asked to stop; nothing changed */
#define ST_E_INTERRUPTED 6      /* st_interrupt was called; nothing changed */
#define ST_E_NOT_FOUND 7        /* no tensor, or no metadata key, of that name */
#define ST_E_OUT_OF_RANGE 8     /* an index or a slice lies outside */
#define ST_E_BUFFER_SIZE 9      /* the destination buffer is too small */
#define ST_E_READ_ONLY 10       /* the handle was opened for reading only */
#define ST_E_BUSY 11            /* another worker holds the lock; try again later */
#define ST_E_FORKED 12          /* this transaction belongs to the parent process */

/* The storage. */
#define ST_E_IO 20                /* the operating system failed a call; st_last_error_info has errno */
#define ST_E_NO_FILE 21           /* no such file */
#define ST_E_PERMISSION 22        /* the operating system forbids it */
#define ST_E_NO_SPACE 23          /* the disk, or the quota, is full; nothing changed */
#define ST_E_NOT_REGULAR 24       /* a folder, a device or a pipe, where a plain file is needed */
#define ST_E_FILE_CHANGED 25      /* the file was truncated or rewritten under an open handle, or its folder moved */
#define ST_E_LOCK_UNSUPPORTED 26  /* the filesystem cannot lock, or grants every lock; changing is refused */
#define ST_E_POISONED 27          /* a sync failed on this handle earlier; close it and open anew */

/* The format. One per rule; see capi/README.md for the list with examples. */
#define ST_E_HEADER_TOO_SMALL 40    /* the file is shorter than its 8-byte length */
#define ST_E_HEADER_TOO_LARGE 41    /* the header is longer than 100,000,000 bytes */
#define ST_E_HEADER_TRUNCATED 42    /* the file ends inside its header */
#define ST_E_HEADER_UTF8 43         /* the header is not UTF-8 */
#define ST_E_HEADER_JSON 44         /* the header is not one JSON object */
#define ST_E_METADATA 45            /* __metadata__ is not a map from string to string */
#define ST_E_TENSOR_INFO 46         /* an entry is not {dtype, shape, data_offsets}, each once and of the right type */
#define ST_E_DTYPE 47               /* a dtype that the format does not have */
#define ST_E_SHAPE_OVERFLOW 48      /* the product of the shape, in bits, exceeds 2^64 */
#define ST_E_OFFSETS 49             /* data_offsets end before they begin */
#define ST_E_OVERLAP 50             /* two tensors share bytes */
#define ST_E_HOLE 51                /* bytes between tensors, or before the first, belong to none */
#define ST_E_SIZE_MISMATCH 52       /* data_offsets span another size than shape and dtype ask for */
#define ST_E_SUBBYTE 53             /* 4- and 6-bit elements that do not fill whole bytes */
#define ST_E_TRUNCATED 54           /* the file ends before the last tensor does */
#define ST_E_TRAILING_DATA 55       /* bytes follow the last tensor */
#define ST_E_DUPLICATE_NAME 56      /* a name stands twice, which would hide a tensor */
#define ST_E_SHARD_INDEX 57         /* an index of shards is not {"metadata": {}, "weight_map": {name: shard}} */
#define ST_E_SHARD_MISSING 58       /* a shard that the index names is not there */
#define ST_E_SHARD_TENSOR 59        /* index and shards disagree about where a tensor is */
#define ST_E_SHARD_DUPLICATE 60     /* a tensor stands twice: in the index, or in two shards */
#define ST_E_SHARD_PATH 61          /* a shard's name leads out of the index's folder */

/* Deltas. */
#define ST_E_DELTA 62       /* the file is no delta, or one that contradicts itself or was damaged */
#define ST_E_DELTA_BASE 63  /* the delta was made for another base, or has been applied already; nothing changed */

/* Changing. */
#define ST_E_DTYPE_MISMATCH 70   /* an update may not change the dtype */
#define ST_E_SHAPE_MISMATCH 71   /* an update may not change the shape */
#define ST_E_NBYTES_MISMATCH 72  /* the payload has another size than the tensor */
#define ST_E_NEEDS_RECOVERY 73   /* a committed journal waits: recover from where the file can be written */
#define ST_E_JOURNAL 74          /* a journal that is damaged, foreign or planted; it was not applied */
#define ST_E_TXN_FAILED 75       /* an earlier call of this transaction failed; abort it */
#define ST_E_HARD_LINKS 80       /* the file has other names, which would keep the old bytes */
#define ST_E_INCOMPLETE 81       /* bytes of a declared tensor were not written */

/* The name of a status, as above ("ST_E_BUSY"); "ST_E_UNKNOWN" for a number
 * that is none. Static. Any thread. Since 2.0. */
const char *st_status_name(st_status status);

/* The sentence for the last failed call of this thread; "" if none failed yet.
 * Lives until this thread's next failing call. Since 2.0. */
const char *st_last_error(void);

/* The last failure of this thread, in parts. Since 2.0. */
typedef struct st_error_info {
  uint32_t struct_size;
  st_status status;
  int32_t os_errno;      /* errno of the failed system call; 0 if there was none */
  uint32_t shard;        /* shard number; 0 in a single file */
  uint64_t offset;       /* file offset that the failure is about; UINT64_MAX if none */
  const char *message;   /* as st_last_error() */
  const char *tensor;    /* the tensor's name; NULL if the failure is about none */
  size_t tensor_len;
  int64_t holder_pid;    /* ST_E_BUSY: the process that holds the lock; 0 if unknown */
} st_error_info;
#define ST_ERROR_INFO_INIT { (uint32_t)sizeof(st_error_info), 0, 0, 0, 0, NULL, NULL, 0, 0 }
void st_error_info_init(st_error_info *out, size_t size);

/* Fill *out. The strings live until this thread's next failing call. Since 2.0. */
st_status st_last_error_info(st_error_info *out);

/* ----------------------------------------------------------------- dtypes */

/* An element type of the format. 0 is never valid. Since 2.0. */
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

/* The name as in a header ("BF16"); NULL for a number that is none. Static. Since 2.0. */
const char *st_dtype_name(st_dtype dtype);
/* Bits an element: 4, 6, 8, 16, 32 or 64; 0 for a number that is none. Since 2.0. */
uint32_t st_dtype_bits(st_dtype dtype);
/* The dtype of that name. ST_E_DTYPE if there is none. Since 2.0. */
st_status st_dtype_parse(const char *name, st_dtype *out);

/* The version of the library that runs, as "2.0.0". Static. Since 2.0. */
const char *st_version(void);

/* -------------------------------------------------------------- callbacks */

/* Told now and then during long work; done and total are bytes of this call. Return non-zero to cancel it: the call
 * then answers ST_E_CANCELLED and nothing has changed. Called on the thread
 * that called libst. `total` is 0 if not known. */
typedef int (*st_progress_fn)(void *user, uint64_t done_bytes, uint64_t total_bytes);

/* Told what a user may want to know: a mapping fell back, a journal was
 * recovered. Called on the thread that called libst; must not call libst with
 * the same handle. `message` lives during the call. */
typedef void (*st_log_fn)(void *user, uint32_t level, const char *message);
#define ST_LOG_INFO 1
#define ST_LOG_WARNING 2

/* ---------------------------------------------------------- open and close */

#define ST_OPEN_READ_WRITE 1u  /* allow changes; the file must be writable */

/* How the data is reached (st_open_options.map). */
#define ST_MAP_AUTO 0u     /* as the storage asks: see st_get_io_info */
#define ST_MAP_SHARED 1u   /* MAP_SHARED; falls back to private, then to none */
#define ST_MAP_PRIVATE 2u  /* MAP_PRIVATE; falls back to none */
#define ST_MAP_NONE 3u     /* no mapping: tensors are read into owned memory when first viewed */
#define ST_MAP_COPY_ON_WRITE 4u /* views that may be written, and never reach the file: see st_get. MAP_PRIVATE with
                                   PROT_WRITE; where that is refused or slow (network, FUSE, object stores), as none */

/* How much is read ahead of use (st_open_options.prefetch): by st_prefetch, and
 * how the bulk reads st_read_many and st_load go about it. */
#define ST_PREFETCH_AUTO 0u        /* as the storage asks: see st_get_io_info */
#define ST_PREFETCH_NONE 1u        /* st_prefetch does nothing */
#define ST_PREFETCH_SEQUENTIAL 2u  /* one reader, in file order */
#define ST_PREFETCH_PARALLEL 3u    /* several readers; on network and FUSE storage each in a contiguous range of its own */

/* Whether bulk reads into memory go past the page cache (st_open_options.direct). */
#define ST_DIRECT_AUTO 0u /* on a local disk the first load of a file that is not in memory does, unless the caller says
                             how many readers there are; loads after it, in any process, go through the page cache */
#define ST_DIRECT_OFF 1u
#define ST_DIRECT_ON 2u   /* O_DIRECT, by several threads; where the filesystem cannot, as ST_DIRECT_OFF */

#define ST_TIMEOUT_FOREVER (-1)

typedef struct st_open_options {
  uint32_t struct_size;
  uint32_t flags;           /* ST_OPEN_...; default: read only */
  uint32_t map;             /* ST_MAP_...; default ST_MAP_AUTO, which the environment's ST_MAP
                               ("shared", "private", "none") overrides */
  int32_t lock_timeout_ms;  /* how long to wait for locks: 0 not at all, ST_TIMEOUT_FOREVER;
                               default 10,000; of this handle's updates and recovery */
  st_progress_fn progress;  /* of this handle's long calls; may be NULL */
  void *progress_user;
  st_log_fn log;            /* may be NULL */
  void *log_user;
  /* Bulk reads. Zero leaves each to the storage; the environment's ST_PREFETCH
     ("none", "sequential", "parallel"), ST_DIRECT ("0", "1"), ST_IO_THREADS and
     ST_BLOCK_SIZE stand in for zeros. */
  uint32_t prefetch;        /* ST_PREFETCH_... */
  uint32_t direct;          /* ST_DIRECT_... */
  uint32_t io_threads;      /* readers, at most 64 */
  uint32_t block_size;      /* bytes a request; taken between 64 KiB and 256 MiB */
  uint32_t worker_index;    /* this handle's number in a group that shares the warming of a file: 0 ... */
  uint32_t worker_count;    /* ... to worker_count - 1; 0 or 1: alone */
  uint64_t memory_limit;    /* bytes: bulk reads drop from the page cache what they have consumed, and
                               st_prefetch stops, so as to leave no more behind; 0: no limit */
  const char *const *deltas; /* paths of deltas that lie on what is opened, the oldest first; borrowed during st_open */
  uint64_t delta_count;
} st_open_options;
#define ST_OPEN_OPTIONS_INIT { (uint32_t)sizeof(st_open_options), 0, 0, 10000, NULL, NULL, NULL, NULL, \
                               0, 0, 0, 0, 0, 0, 0, NULL, 0 }
void st_open_options_init(st_open_options *out, size_t size);

/* Open a safetensors file: read and check its header, map its data, and first
 * of all finish what a crashed writer had committed (see st_recover).
 *   path  the file; symbolic links are followed. Or the index of a sharded checkpoint (….safetensors.index.json),
 *         or a folder that holds one, or else a model.safetensors: see "shards" below.
 *   opts  NULL for the defaults.
 *   out   the handle; free it with st_close.
 * Cost: the header is read and indexed; data is not touched.
 * With opts->deltas the handle shows, for reading only, what st_patch with each of
 * them in turn would make of the file or the shards; views lie in the file that has
 * the tensor, which st_tensor.shard numbers: 0 the file, 1 the first delta; or first
 * the shards, then the deltas. Names, forms and metadata must fit, so all shards are
 * opened, and so must the hashes that deltas have of each other; of the base, only
 * how some of the tensors that are replaced begin is looked at (st_verify_with looks
 * at all). Of shards the metadata are then those that st_join would give.
 * A file without a name (memfd_create) opens by its path in /proc/self/fd to be read; with ST_OPEN_READ_WRITE that is
 * ST_E_UNSUPPORTED.
 * Statuses: ST_E_NO_FILE, ST_E_PERMISSION, ST_E_NOT_REGULAR, ST_E_IO; every
 * format status (40 to 61); ST_E_NEEDS_RECOVERY and ST_E_BUSY (recovery);
 * with deltas ST_E_DELTA, ST_E_DELTA_BASE, ST_E_INVALID_ARGUMENT (ST_OPEN_READ_WRITE).
 * Any thread. After fork() a child may go on using the handle: at the first use
 * it opens the file and maps it for itself. Since 2.0. */
st_status st_open(const char *path, const st_open_options *opts, st_file **out);

/* Open a file that lies in memory. `bytes` is borrowed until st_close and must
 * not change meanwhile. Read-only. Statuses: the format's. Since 2.0. */
st_status st_open_memory(const void *bytes, size_t size, st_file **out);

/* A second handle on the same file, with the same options: its own descriptor,
 * its own mapping, its own locks. For worker threads. ST_E_FILE_CHANGED if the
 * path now names another file. Since 2.0. */
st_status st_reopen(const st_file *file, st_file **out);
/* The same for reading only, and with ST_MAP_COPY_ON_WRITE, however the data of `file` is reached. Since 2.0. */
st_status st_reopen_copy_on_write(const st_file *file, st_file **out);

/* A handle of what `file` shows now, for reading only: the same names, indices, shapes, metadata and bytes for as
 * long as it lives, whatever is published or refreshed meanwhile (what is patched in place shows, as under any view).
 * It shares descriptor, mapping and index with `file`, so it costs two small allocations.
 *   pin  freed by st_close, before or after `file`. Pointers taken from it live until then.
 * Every call that reads works on it. Calls that change answer ST_E_READ_ONLY, st_refresh changes nothing, st_reopen
 * answers a handle for reading of the same file, if its path still leads there. It has the options of `file`: its
 * callbacks, which must live as long, and its counts in st_get_stats. st_interrupt of either reaches calls on both.
 * Shards that `file` has not opened are opened when first needed; if one was replaced by then, the answer is
 * ST_E_FILE_CHANGED. Any thread. Since 2.0. */
st_status st_snapshot(st_file *file, st_file **pin);

/* "I hold no pointer from before": names, shapes, views, metadata and paths that were taken from this handle are dead,
 * and what it kept for their sake (mappings, descriptors and indexes of states that a publish or refresh has
 * superseded, blocks of deleted files) goes now, or when the last call that uses it has ended. Snapshots keep what
 * is theirs. Must not race with calls on the same handle that give out pointers. NULL is fine. Since 2.0. */
void st_release(st_file *file);

/* Free the handle. Every view, name and shape taken from it dies with it;
 * transactions of it that still live are aborted and freed. NULL is fine.
 * Always frees, and answers ST_OK. Since 2.0. */
st_status st_close(st_file *file);

/* Ask the calls that now run on this handle, in any thread, to give up waiting
 * for locks and to stop long reads: they answer ST_E_INTERRUPTED. May be called
 * from any thread and from a signal handler. Since 2.0. */
void st_interrupt(st_file *file);

/* ------------------------------------------------------------------ shards */

/* A checkpoint of several files, whose index names the file of each tensor, opens as one. All calls work on it:
 *  - Tensors stand shard by shard, in the order of the shards' names, and within a shard by offset; st_tensor.shard is
 *    the number of the shard, file_offset counts in it. Metadata are those of the index, numbers as it spells them.
 *  - A shard is opened, and held against the index, when it is first needed: so any call that takes a tensor may also
 *    answer as st_open does, with ST_E_SHARD_MISSING, _TENSOR or _DUPLICATE, or ST_E_FILE_CHANGED if the index was
 *    replaced since it was read (st_refresh). A handle keeps up to 128 descriptors open, however many shards there are.
 *  - A transaction is all or nothing across shards. A new name goes to the last shard that the transaction rewrites
 *    anyway, else to the last shard. weight_map follows, and total_size and total_parameters where the index has them.
 *  - Shards that a transaction rewrites keep their names; or, with ST_TXN_NEW_NAMES, get new ones.
 *  - st_get_io_info is about the first shard; st_get_stats sums the shards that are open: none is until it is needed. */

/* How many files the handle stands for: 1, or the number of shards; and the deltas on them. 0 for NULL.
 * Since 2.0. */
size_t st_shard_count(const st_file *file);
/* The absolute path of one of them, which lives as names do. ST_E_OUT_OF_RANGE; ST_E_UNSUPPORTED for a file that
 * was given as memory. Since 2.0. */
st_status st_shard_path(const st_file *file, size_t shard, const char **path);

/* -------------------------------------------------------------- catalogue */

/* A tensor: a description and, where there is one, a view of its bytes.
 * This struct is frozen. Since 2.0. */
typedef struct st_tensor {
  const char *name;       /* UTF-8, NUL-terminated, but may also hold NUL */
  size_t name_len;        /* bytes, without the terminator */
  st_dtype dtype;
  uint32_t rank;          /* 0: a scalar */
  const uint64_t *shape;  /* `rank` numbers, slowest first (C order); not NULL even if rank is 0 */
  const void *data;       /* little-endian elements in C order, no strides; may be unaligned;
                             NULL in a mere description and for zero bytes */
  uint64_t nbytes;        /* product(shape) * bits / 8 */
  uint64_t file_offset;   /* of the first byte, from the start of the file */
  uint32_t shard;         /* number of the file in a sharded checkpoint; else 0 */
  uint32_t reserved0;     /* zero */
  uint64_t reserved[2];   /* zero */
} st_tensor;

/* The number of tensors. 0 for NULL. Since 2.0. */
size_t st_count(const st_file *file);

/* Describe tensor i, 0 <= i < st_count, in the order of file offsets. `data` is
 * NULL. Name and shape live until st_close or st_release. ST_E_OUT_OF_RANGE. Since 2.0. */
st_status st_at(st_file *file, size_t i, st_tensor *out);

/* Describe the n tensors from `first` on, as st_at: one call where a binding
 * lists 10^5 of them. The shapes of all tensors of one shard lie in one array, so a binding may copy that from
 * the lowest `shape` to the end of the highest. ST_E_OUT_OF_RANGE if there are fewer. Since 2.0. */
st_status st_at_many(st_file *file, size_t first, size_t n, st_tensor *out);

/* All names, in the order of st_at, each followed by a NUL: what a binding needs
 * to list them at once. A name that holds NUL makes the parts ambiguous: there
 * will be more of them than st_count, and st_at tells them apart.
 *   dst   at least *size bytes, or NULL to ask only for the size.
 *   size  in: of dst; out: the bytes that all names take, ST_E_BUFFER_SIZE if
 *         that is more. Since 2.0. */
st_status st_names(st_file *file, char *dst, size_t *size);

/* The length of a name that ends with its NUL: for name_len of st_find, st_describe and st_slice_shape. */
#define ST_NUL_TERMINATED ((size_t)-1)

/* The index, for st_at, of the tensor of that name. O(1). ST_E_NOT_FOUND. Since 2.0. */
st_status st_find(st_file *file, const char *name, size_t name_len, size_t *out);

/* Describe the tensor of that name, as st_at does. O(1). ST_E_NOT_FOUND. Since 2.0. */
st_status st_describe(st_file *file, const char *name, size_t name_len, st_tensor *out);

/* Metadata: the pairs of __metadata__, in the order of the header. Strings are
 * NUL-terminated, may hold NUL, and live until st_close or st_release. Since 2.0. */
size_t st_metadata_count(const st_file *file);
st_status st_metadata_at(st_file *file, size_t i, const char **key, size_t *key_len,
                         const char **value, size_t *value_len); /* ST_E_OUT_OF_RANGE */
st_status st_metadata_get(st_file *file, const char *key, const char **value,
                          size_t *value_len); /* ST_E_NOT_FOUND */
st_status st_metadata_get_n(st_file *file, const char *key, size_t key_len, const char **value,
                            size_t *value_len);

/* ---------------------------------------------------------------- reading */

/* A view of a tensor, without a copy: `data` points into the mapping (or, where
 * there is none, into memory that the handle owns and fills on first use).
 * Read-only. Valid until st_close or st_release, also across this handle's own commits: under
 * a shared mapping a patched tensor then shows its new bytes.
 * A mapped view of a file that somebody truncates is a hazard (SIGBUS on
 * touching it); where that can happen use st_read, or map = ST_MAP_NONE.
 *
 * Under ST_MAP_COPY_ON_WRITE a view may be written (`data` cast to void *), by this process for itself: the file and
 * other handles never see it, further views of this handle do. It is no snapshot, page by page:
 *   the first write  to a page copies it, once; from then on it is this process's own memory, and nothing that befalls
 *                    the file shows in it.
 *   a patch          by this process, through whichever handle, first makes what it will change such pages in all its
 *                    copy-on-write views, which thus keep the old bytes (at the price of that memory; ST_E_NOMEM,
 *                    with nothing changed, where there is none). One by another process shows in pages that were not
 *                    written, also while it is half done.
 *   a publish        shows in no view: they keep the old file.
 *   a truncation     is SIGBUS in pages that were not written.
 * This handle's own views of a tensor that it patched, and all after st_refresh, are of the file's new bytes, at another
 * address; those that were given out keep what they show. A forked child has the views that it inherited, and maps the
 * file anew for others.
 *
 * Statuses: ST_E_NOT_FOUND; without a mapping also ST_E_IO, ST_E_FILE_CHANGED.
 * Any thread. Since 2.0. */
st_status st_get(st_file *file, const char *name, st_tensor *out);
st_status st_get_n(st_file *file, const char *name, size_t name_len, st_tensor *out);
st_status st_get_at(st_file *file, size_t i, st_tensor *out); /* by index, as st_at */

/* Copy a tensor into dst. Reads with pread: a file truncated meanwhile is
 * ST_E_FILE_CHANGED, never a signal.
 *   dst_size  at least the tensor's nbytes, else ST_E_BUFFER_SIZE.
 *   read      may be NULL; else it describes the tensor that was copied, as st_at does: other threads may put
 *             another in its place at any time. Filled on ST_E_BUFFER_SIZE too: that much room it needs.
 * Statuses: ST_E_NOT_FOUND, ST_E_BUFFER_SIZE, ST_E_IO, ST_E_FILE_CHANGED,
 * ST_E_CANCELLED, ST_E_INTERRUPTED. Any thread. Since 2.0. */
st_status st_read(st_file *file, const char *name, void *dst, size_t dst_size, st_tensor *read);
st_status st_read_n(st_file *file, const char *name, size_t name_len, void *dst, size_t dst_size, st_tensor *read);

/* One dimension's part of a slice, as Python's start:stop:step: negative start
 * and stop count from the end, both are clipped to the dimension, step is not 0
 * and may be negative. A missing start or stop is written as INT64_MIN or
 * INT64_MAX, whichever lies that way. This struct is frozen. Since 2.0. */
typedef struct st_range {
  int64_t start;
  int64_t stop;
  int64_t step;
} st_range;
#define ST_RANGE_ALL { 0, INT64_MAX, 1 }

/* What st_read_slice would read.
 *   shape     room for `capacity` numbers, one a dimension; or NULL, 0.
 *   rank      how many dimensions the tensor has; may be NULL.
 *   nbytes    the size in bytes; may be NULL.
 * ST_E_BUFFER_SIZE if `shape` has less room than there are dimensions: nothing is written to it, but rank and
 * nbytes are told. Other statuses: ST_E_NOT_FOUND; ST_E_INVALID_ARGUMENT for a step of 0; ST_E_OUT_OF_RANGE for
 * more ranges than dimensions; ST_E_SUBBYTE where 4- or 6-bit elements would be cut inside a byte. Since 2.0. */
st_status st_slice_shape(st_file *file, const char *name, size_t name_len, const st_range *ranges, size_t n,
                         uint64_t *shape, size_t capacity, size_t *rank, uint64_t *nbytes);

/* Copy part of a tensor into dst, packed in C order. `ranges` are for the n
 * leading dimensions; the others are taken whole. Only the bytes needed are
 * read, in file order, with small gaps read through. `read` as in st_read: it
 * describes the whole tensor. Statuses: as st_slice_shape and st_read. Any thread. Since 2.0. */
st_status st_read_slice(st_file *file, const char *name, const st_range *ranges, size_t n,
                        void *dst, size_t dst_size, st_tensor *read);
st_status st_read_slice_n(st_file *file, const char *name, size_t name_len, const st_range *ranges,
                          size_t n, void *dst, size_t dst_size, st_tensor *read);

/* ------------------------------------------------------------ bulk reading */

/* A tensor, or part of one, and where its bytes go. This struct is frozen. Since 2.0. */
typedef struct st_read_request {
  const char *name;        /* NULL: `index` says which */
  size_t name_len;
  uint64_t index;          /* as st_at */
  void *dst;
  size_t dst_size;         /* at least the bytes asked for */
  const st_range *ranges;  /* as st_read_slice; NULL with range_count 0: all of it */
  size_t range_count;
} st_read_request;

/* Read all of them, in the order of the file whatever order they are given in:
 * neighbours with one request, small gaps read through, by as many threads as
 * the storage likes, each on a descriptor of its own. With pread, so a file
 * truncated meanwhile is ST_E_FILE_CHANGED, never a signal.
 *   progress  may be NULL: then the handle's; called on this thread only.
 * On failure the destinations hold any bytes. Statuses: as st_read and
 * st_read_slice. Any thread. Since 2.0. */
st_status st_read_many(st_file *file, const st_read_request *reqs, size_t n, st_progress_fn progress, void *user);

/* Bring tensors into memory, in file order and large requests, so that views of
 * them do not wait for the storage: into the page cache under the mapping, or
 * where there is no mapping into memory that the handle owns. Nothing on memory
 * filesystems, or with ST_PREFETCH_NONE.
 *   names  n names; NULL, 0: all tensors, or this worker's contiguous part of
 *          them if worker_count is set.
 * Statuses: ST_E_NOT_FOUND, ST_E_IO, ST_E_FILE_CHANGED, ST_E_CANCELLED,
 * ST_E_INTERRUPTED. Any thread. Since 2.0. */
st_status st_prefetch(st_file *file, const char *const *names, size_t n);
/* By index, as st_at; ST_E_OUT_OF_RANGE. `progress` may be NULL. Since 2.0. */
st_status st_prefetch_at(st_file *file, const uint64_t *indices, size_t n, st_progress_fn progress, void *user);

#define ST_LOAD_HUGE_PAGES 1u /* from the system's reserved huge pages, if there are enough (else as without) */
#define ST_LOAD_DIRECT 2u     /* past the page cache, as ST_DIRECT_ON */

typedef struct st_load_options {
  uint32_t struct_size;
  uint32_t flags;           /* ST_LOAD_... */
  st_progress_fn progress;  /* may be NULL: then the handle's */
  void *progress_user;
} st_load_options;
#define ST_LOAD_OPTIONS_INIT { (uint32_t)sizeof(st_load_options), 0, NULL, NULL }
void st_load_options_init(st_load_options *out, size_t size);

/* Read tensors into one block of memory that the handle owns, as it does views:
 * 4096-aligned, each tensor aligned in it as it is in the file. st_get then
 * answers views into it, which no truncation of the file can turn into a signal.
 *   indices  n of them, as st_at; NULL, 0: all tensors.
 *   opts     NULL for the defaults.
 * Those that already are in the handle's memory are not read again. Statuses: as
 * st_prefetch_at. Any thread. Since 2.0. */
st_status st_load(st_file *file, const uint64_t *indices, size_t n, const st_load_options *opts);

/* --------------------------------------------------------------- changing */

/* In which order a file has its tensors (layout, of st_save_options and st_txn_options). */
#define ST_LAYOUT_KEEP 0u       /* as given; of a transaction: as in the file, new ones at the end. Where a tensor would
                                   then begin at no multiple of its element's size (and not in a file that had such
                                   tensors before): wide elements before narrow ones, else in this order */
#define ST_LAYOUT_CANONICAL 1u  /* descending dtype, then name, as stock writers do */
#define ST_LAYOUT_STOCK 2u      /* st_save only: canonical, and byte for byte what safetensors 0.8 writes
                                   (which has no order of its own for several metadata keys: here, as given) */

#define ST_TXN_COPY 1u /* payloads are copied at once, so that the caller may free them */
#define ST_COMMIT_PUBLISH 2u    /* also what could be patched goes into a new file: no reader sees a mix */
#define ST_TXN_BREAK_LINKS 4u   /* publish a file that has other hard links, which keep the old bytes */
#define ST_TXN_NEW_NAMES 8u     /* shards that are rewritten get new names; see below */

/* With ST_TXN_NEW_NAMES a transaction on shards that changes more than bytes in place writes each shard that it changes
 * once, as a new file with a number in its name (model-00001-of-00004.g7.safetensors, g7 being one more than any before
 * it). Then it puts a new index in the old one's place, and that is the whole commit. The old shards stay as they are for
 * shard_grace_s seconds: who has read the old index, also a stock reader, still finds every tensor where that index says.
 * They are listed in <index>.st-old. The first commit with this flag after that time, or st_recover at any time, removes
 * them; never one that an index in the folder names, nor a file that is not the one that was listed. It takes one copy of
 * what changes, where else shards that gain and lose names take two.
 *
 * It is not the default. Until the old shards are removed the folder holds old and new ones, and what takes files by a
 * pattern (*.safetensors, *-of-*) and not by the index takes both: from_single_file, uploads to the Hub, cp. Names in the
 * index change, so what knows shards by their names must read the index again. Of a handle that has read the old index,
 * tensors of shards that it has not opened yet, and changes of shards that have a new name, are ST_E_FILE_CHANGED until
 * st_refresh. Who changes an old shard by the shard's own path changes what no index names.
 * On one file it is ST_E_UNSUPPORTED; also where the index is a link into another folder, as in a cache of the Hub. */

typedef struct st_txn_options {
  uint32_t struct_size;
  uint32_t flags;           /* ST_TXN_... */
  int32_t lock_timeout_ms;  /* at commit: 0 not at all, ST_TIMEOUT_FOREVER; default 10,000 */
  uint32_t shard_grace_s;   /* of ST_TXN_NEW_NAMES: how long old shards stay; default 3,600 */
  st_progress_fn progress;  /* of this transaction's calls; may be NULL */
  void *progress_user;
  uint32_t layout;          /* ST_LAYOUT_KEEP or _CANONICAL; what is not KEEP, and an alignment or reserve
                               that is not 0, make a publish of the commit */
  uint32_t alignment;       /* of the first data byte of a new file, a multiple of 8, at most 2^20; 0: what lets
                               most bytes be shared with the old file, else 64 */
  uint64_t header_reserve;  /* bytes of spare room in the header of a new file, at least */
} st_txn_options;
#define ST_TXN_OPTIONS_INIT { (uint32_t)sizeof(st_txn_options), 0, 10000, 3600, NULL, NULL, 0, 0, 0 }
void st_txn_options_init(st_txn_options *out, size_t size);

/* Replace the bytes of one tensor, in place, as a transaction of its own:
 * checked, locked, journalled, durable on return; on failure the file is as it
 * was, unless the status is ST_E_NEEDS_RECOVERY.
 *   value  dtype, rank, shape, nbytes and data of the new tensor; dtype and
 *          shape must equal those in the file. Its other fields are not read.
 *          `data` is borrowed during the call, and may be a view of this file.
 * Statuses: as st_txn_update and st_commit. Any thread. Since 2.0. */
st_status st_update(st_file *file, const char *name, const st_tensor *value);
st_status st_update_n(st_file *file, const char *name, size_t name_len, const st_tensor *value);

/* Begin a transaction on a handle opened with ST_OPEN_READ_WRITE. Holds no lock
 * until st_commit. Free it with st_commit or st_abort. Statuses:
 * ST_E_READ_ONLY, ST_E_POISONED. Since 2.0. */
st_status st_begin(st_file *file, const st_txn_options *opts, st_txn **out);

/* Stage a tensor's new bytes: same dtype, shape and size as in the file. They
 * stream to the journal during the call, so a transaction may be larger than
 * memory; where the filesystem shares blocks (xfs, btrfs), those of large tensors
 * may be read at commit instead. `value->data` is to stay valid, and its bytes
 * unchanged, until commit or abort unless the transaction has ST_TXN_COPY.
 * What is committed is what was staged. Bytes that are read at commit are compared with
 * a hash that was taken here. If the caller changed them st_commit answers
 * ST_E_INVALID_ARGUMENT, and nothing has changed. `value->data` may be a view of this very
 * file, from this handle, another one or any other mapping: two tensors are swapped by
 * staging each with the other's view. (With ST_COMMIT_PUBLISH, and after a call such as
 * st_txn_put, data is read as st_txn_put says.)
 * A tensor staged twice takes the last value. A failure other than a
 * bad argument dooms the transaction: every later call but st_abort answers
 * ST_E_TXN_FAILED. Statuses: ST_E_NOT_FOUND, ST_E_DTYPE_MISMATCH,
 * ST_E_SHAPE_MISMATCH, ST_E_NBYTES_MISMATCH (these four leave the transaction
 * as it was); ST_E_NO_SPACE, ST_E_PERMISSION, ST_E_IO, ST_E_CANCELLED,
 * ST_E_INTERRUPTED, ST_E_TXN_FAILED, ST_E_FORKED. Since 2.0. */
st_status st_txn_update(st_txn *txn, const char *name, const st_tensor *value);
st_status st_txn_update_n(st_txn *txn, const char *name, size_t name_len, const st_tensor *value);

/* The following change the layout. With one of them in it a transaction, its
 * updates included, is published: a new file is made beside the old one and takes
 * its name. Every reader, stock ones too, sees the old file or the new one,
 * whole, at every instant and after any crash; who has the old one open keeps it. The new file has the
 * old one's mode, owner, ACL and extended attributes; through a symbolic link the target is replaced.
 * Bytes that stay never pass through the process: where the filesystem can (xfs, btrfs) blocks are shared, else the
 * kernel copies. Names resolve as the calls before in the same transaction left them. A refusal leaves the
 * transaction as it was, but for ST_E_NO_SPACE, ST_E_IO, ST_E_CANCELLED, ST_E_INTERRUPTED
 * with ST_TXN_COPY. Other statuses of all: ST_E_TXN_FAILED, ST_E_FORKED, ST_E_POISONED. */

/* Add a tensor, or replace one by any dtype and shape. One that is replaced keeps its place in the
 * order of the file, others come last. `value` as in st_txn_update: its data is borrowed until commit or
 * abort, or with ST_TXN_COPY written out during the call, so that memory is bounded by one payload.
 * Borrowed data is read once, at commit, with the file locked against all changes, and what it then holds is
 * written: it is not hashed before, as that would read a large source twice. So a view of this file gives the bytes
 * that the file has at commit. The same goes for updates that follow in the same transaction.
 * Statuses: ST_E_DTYPE, ST_E_SHAPE_OVERFLOW, ST_E_SUBBYTE, ST_E_NBYTES_MISMATCH, ST_E_INVALID_ARGUMENT
 * (the name "__metadata__"). Since 2.0. */
st_status st_txn_put(st_txn *txn, const char *name, const st_tensor *value);
st_status st_txn_put_n(st_txn *txn, const char *name, size_t name_len, const st_tensor *value);

/* Remove a tensor. ST_E_NOT_FOUND. Since 2.0. */
st_status st_txn_delete(st_txn *txn, const char *name);
st_status st_txn_delete_n(st_txn *txn, const char *name, size_t name_len);

/* Give a tensor another name. ST_E_NOT_FOUND; ST_E_DUPLICATE_NAME if that is taken. Since 2.0. */
st_status st_txn_rename(st_txn *txn, const char *from, const char *to);
st_status st_txn_rename_n(st_txn *txn, const char *from, size_t from_len, const char *to, size_t to_len);

/* Set a key of __metadata__, or with value NULL remove it (ST_E_NOT_FOUND). Since 2.0. */
st_status st_txn_set_metadata(st_txn *txn, const char *key, const char *value);
st_status st_txn_set_metadata_n(st_txn *txn, const char *key, size_t key_len, const char *value, size_t value_len);

/* What st_commit does: of one file or of shards, with journals, new files and the index. st_commit reckons the same
 * when it holds its locks, and gives ST_E_NO_SPACE before it writes anything if space_needed is more than space_free. */
#define ST_PLAN_NOTHING 0u
#define ST_PLAN_PATCH 1u    /* in place, through the journal */
#define ST_PLAN_PUBLISH 2u  /* a new file */

typedef struct st_plan {
  uint32_t struct_size;
  uint32_t kind;           /* ST_PLAN_... */
  uint64_t file_size;      /* after it, bytes */
  uint64_t data_offset;    /* after it: where tensors begin */
  uint64_t bytes_written;  /* from the process: to files, headers, the index, and what journals still lack */
  uint64_t bytes_shared;   /* with the old files, in blocks of which nothing is copied */
  uint64_t bytes_copied;   /* of the old files, by the kernel */
  uint64_t space_needed;   /* free bytes that st_commit takes at once, and a little for the filesystem's own */
  uint64_t space_free;     /* free bytes now; UINT64_MAX if not known */
  char how[256];           /* one sentence */
} st_plan;
#define ST_PLAN_INIT { (uint32_t)sizeof(st_plan), 0, 0, 0, 0, 0, 0, 0, 0, {0} }
void st_plan_init(st_plan *out, size_t size);

/* A dry run: touches nothing. Statuses: those that spelling the new header may give
 * (ST_E_HEADER_TOO_LARGE, ST_E_HEADER_UTF8, ST_E_OFFSETS), ST_E_INVALID_ARGUMENT (alignment), ST_E_TXN_FAILED,
 * ST_E_FORKED, ST_E_POISONED. Since 2.0. */
st_status st_txn_plan(st_txn *txn, st_plan *out);

/* See the file as it is now: what others have committed, replaced files included. Names, shapes and views
 * that were given out stay valid, and show the file that they were taken from; indices are new. Bytes in memory of
 * the handle's own (ST_MAP_NONE, st_load) are those of the file as it is now, at the same address if they were given out
 * (under ST_MAP_COPY_ON_WRITE at another).
 * Statuses: as st_open. Must not race with calls on the same handle that take an index. Since 2.0. */
st_status st_refresh(st_file *file);

/* Rewrite a file in canonical order with no spare room (but header_reserve), and data at 64 or
 * opts->alignment; atomically, as any publish. Statuses: as st_open and st_commit. Since 2.0. */
st_status st_compact(const char *path, const st_txn_options *opts);

/* Make all staged changes durable, or none. Frees the transaction, whatever it
 * answers, except on ST_E_BUSY, after which it may be committed again or
 * aborted. Statuses: ST_E_BUSY (a lock was not to be had in time; the error
 * info names the tensor); ST_E_FILE_CHANGED (the file was replaced by one
 * in which a staged tensor is missing or has another form); ST_E_INVALID_ARGUMENT (the caller
 * changed bytes that were staged; nothing changed);
 * ST_E_NEEDS_RECOVERY (the change is decided by recovery, or by the next power cut: it failed
 * after, or at, the point of no return; close the handle and open anew);
 * ST_E_HARD_LINKS (a publish would leave the file's other names behind; see ST_TXN_BREAK_LINKS);
 * what spelling a new header may give, as st_txn_plan;
 * ST_E_LOCK_UNSUPPORTED, ST_E_NO_SPACE, ST_E_IO, ST_E_POISONED, ST_E_CANCELLED,
 * ST_E_INTERRUPTED, ST_E_TXN_FAILED, ST_E_FORKED, and ST_E_JOURNAL from the
 * recovery of another writer's journal, or if what was staged is damaged there (nothing changed). Since 2.0. */
st_status st_commit(st_txn *txn);

/* After a publish the handle shows the new file. The old one's blocks are freed if the handle gave nothing of it out,
 * else by st_release or st_close. */

/* Drop all staged changes and free the transaction. NULL is fine. Since 2.0. */
void st_abort(st_txn *txn);

/* ----------------------------------------------------------------- saving */

/* A pair of __metadata__, UTF-8. This struct is frozen. Since 2.0. */
typedef struct st_metadata {
  const char *key;
  size_t key_len;
  const char *value;
  size_t value_len;
} st_metadata;

typedef struct st_save_options {
  uint32_t struct_size;
  uint32_t flags;           /* zero */
  uint32_t layout;          /* ST_LAYOUT_... */
  uint32_t alignment;       /* of the first data byte: a multiple of 8, at most 2^20 (4096 suits O_DIRECT
                               and devices); 0: 64, or with ST_LAYOUT_STOCK 8 */
  uint64_t header_reserve;  /* bytes of spare room in the header, for later growth */
  int32_t lock_timeout_ms;  /* where a file is replaced; 0 not at all, ST_TIMEOUT_FOREVER; default 10,000 */
  uint32_t reserved0;       /* zero */
  st_progress_fn progress;  /* may be NULL */
  void *progress_user;
} st_save_options;
#define ST_SAVE_OPTIONS_INIT { (uint32_t)sizeof(st_save_options), 0, 0, 0, 0, 10000, 0, NULL, NULL }
void st_save_options_init(st_save_options *out, size_t size);

/* Write a file of n tensors and m pairs of metadata. Until it returns ST_OK the
 * path leads to the old file, or to none; then to the new one, durably. Readers
 * of an old file keep it. It is written under a temporary name beside the path
 * (.<name>.st-tmp-<digits>, removed on failure, and by the next writer if this
 * one dies). The mode is by the umask; a file that is replaced hands on its mode,
 * owner, ACL and extended attributes, and a symbolic link is followed; its other hard links keep the old bytes.
 *   tensors  name, name_len, dtype, rank, shape, nbytes and data of each; its other fields are
 *            not read. `data` is borrowed during the call.
 *   opts     NULL for the defaults.
 * Statuses: ST_E_DTYPE; ST_E_SIZE_MISMATCH, ST_E_SHAPE_OVERFLOW, ST_E_SUBBYTE,
 * ST_E_DUPLICATE_NAME, ST_E_METADATA, ST_E_HEADER_UTF8, ST_E_HEADER_TOO_LARGE (no
 * reader would take it); ST_E_NO_SPACE, ST_E_NO_FILE (the folder),
 * ST_E_PERMISSION, ST_E_NOT_REGULAR, ST_E_IO, ST_E_BUSY, ST_E_CANCELLED: nothing
 * changed. ST_E_NEEDS_RECOVERY: the new file is in place, but the folder
 * could not be synced, so that a power cut may bring the old one back; save it again. Since 2.0. */
st_status st_save(const char *path, const st_tensor *tensors, size_t n, const st_metadata *meta, size_t m,
                  const st_save_options *opts);

/* A file being written tensor by tensor, so that it may be larger than memory. Opaque; belongs to one thread at a
 * time. Since 2.0. */
typedef struct st_writer st_writer;

/* Begin. What is declared (name, dtype, shape and nbytes of n tensors; data is not read) has its place from
 * the start, and can be written in any order and in pieces. Declared or not,
 * tensors may be added: then they lie behind one another as they come, and
 * behind a header of up to 64 KiB, in files of more than 8 MiB; another layout, or a longer header,
 * costs one more copy at the end. Statuses: as st_save. Since 2.0. */
st_status st_writer_open(const char *path, const st_tensor *declared, size_t n, const st_metadata *meta, size_t m,
                         const st_save_options *opts, st_writer **out);

/* Write the next nbytes of a declared tensor. `data` is borrowed during the call.
 * Statuses: ST_E_NOT_FOUND, ST_E_NBYTES_MISMATCH (more than is missing): the
 * writer is as it was; ST_E_NO_SPACE, ST_E_IO, ST_E_CANCELLED: it can only be
 * aborted, and answers ST_E_TXN_FAILED till then; ST_E_FORKED. Since 2.0. */
st_status st_writer_add(st_writer *writer, const char *name, const void *data, uint64_t nbytes);
st_status st_writer_add_n(st_writer *writer, const char *name, size_t name_len, const void *data, uint64_t nbytes);

/* Write a whole tensor, declared or not: name, name_len, dtype, rank, shape, nbytes and data are read.
 * Statuses: as st_writer_add; ST_E_DUPLICATE_NAME, ST_E_SHAPE_MISMATCH (not as
 * declared), ST_E_DTYPE, ST_E_SHAPE_OVERFLOW, ST_E_SUBBYTE. Since 2.0. */
st_status st_writer_put(st_writer *writer, const st_tensor *tensor);

/* Make the file durable and give it its name. Frees the writer, except on
 * ST_E_BUSY and ST_E_INCOMPLETE, after which it may be called again. Statuses: as st_save. Since 2.0. */
st_status st_writer_finish(st_writer *writer);

/* Drop what was written, and free the writer. NULL is fine. Since 2.0. */
void st_writer_abort(st_writer *writer);

/* ----------------------------------------------------------------- deltas */

/* A delta is a safetensors file: the tensors that another has and its base has
 * not, or has with other bytes, dtype or shape, under their names; and in its
 * metadata, under keys that begin with "st.delta.", what else it takes to make
 * the one of the other (core/README.md has the format). Any reader of safetensors
 * can look at it.
 *
 * A delta fits a base that has the names, dtypes, shapes and metadata of the one
 * it was made from, in whatever order and layout, and in which the tensors that
 * it replaces or deletes have the bytes that they had. Tensors that it leaves
 * alone may have been patched since. So it cannot be applied twice.
 *
 * Of a sharded checkpoint counts what it holds, with the metadata that st_join
 * would give it, and not which shard has what: a delta made of a file fits the
 * same as shards, and the other way round. The delta itself is one file. */

typedef struct st_diff_options {
  uint32_t struct_size;
  uint32_t alignment;       /* of the delta's first data byte, as in st_save_options */
  int32_t lock_timeout_ms;  /* where a delta of that name is replaced; default 10,000 */
  uint32_t reserved0;       /* zero */
  st_progress_fn progress;  /* over the bytes of `to`; may be NULL */
  void *progress_user;
} st_diff_options;
#define ST_DIFF_OPTIONS_INIT { (uint32_t)sizeof(st_diff_options), 0, 10000, 0, NULL, NULL }
void st_diff_options_init(st_diff_options *out, size_t size);

/* Write the delta that makes `to` of `from`, each a file or shards, by any path that
 * st_open takes. Both are read once, and what differs once more, with pread and in
 * a few megabytes of memory; they should not be changed meanwhile. The delta is
 * durable, and its path leads to the old file, or none, or to the whole new one at
 * every instant.
 * Statuses: as st_open of both; ST_E_FILE_CHANGED (`to` was changed meanwhile);
 * ST_E_INVALID_ARGUMENT (`delta` is one of the two, or a shard or the index of
 * one); as st_save. Any thread. Since 2.0. */
st_status st_diff(const char *from, const char *to, const char *delta, const st_diff_options *opts);

typedef struct st_patch_options {
  uint32_t struct_size;
  uint32_t flags;           /* ST_COMMIT_PUBLISH, ST_TXN_BREAK_LINKS */
  const char *reverse;      /* path: write the delta that undoes this one there; NULL: do not */
  st_plan *plan;            /* filled with the plan by which it was done; may be NULL */
  int32_t lock_timeout_ms;  /* default 10,000 */
  uint32_t reserved0;       /* zero */
  st_progress_fn progress;  /* may be NULL */
  void *progress_user;
} st_patch_options;
#define ST_PATCH_OPTIONS_INIT { (uint32_t)sizeof(st_patch_options), 0, NULL, NULL, 10000, 0, NULL, NULL }
void st_patch_options_init(st_patch_options *out, size_t size);

/* Apply a delta to its base, a file or shards, as one transaction: durable, all or
 * nothing, across shards too. In place, as st_update, if it only gives tensors other
 * bytes (ST_PLAN_PATCH: costs what the delta holds), else by a new file
 * (ST_PLAN_PUBLISH, as st_txn_put).
 * Payloads are taken from the delta's mapping. The bytes of the delta, and with
 * the base locked those that are to go, are checked against the hashes in the
 * delta before the base is touched.
 * The reverse delta is durable before the base is changed. Applied to the result
 * it brings back names, dtypes, shapes, bytes, the order of tensors and the
 * metadata (but not the order of its keys, nor the padding of the header). If the
 * call fails after it was written it stays; it fits nothing but the result.
 * Of shards each is patched or made anew for itself. They keep the order of their
 * names, whatever the delta's; a tensor that is added goes where st_txn_put puts it,
 * so one that was deleted may come back in another shard. Metadata go to the index.
 * Statuses: ST_E_DELTA, ST_E_DELTA_BASE (nothing changed); ST_E_INVALID_ARGUMENT
 * (`reverse` is the base or the delta, or a file of the base; total_size or
 * total_parameters among the metadata that shards are to have); ST_E_FILE_CHANGED
 * (shards were replaced meanwhile); ST_E_UNSUPPORTED (no tensor would be left in shards); as st_open of
 * both; as st_txn_put and st_commit; as st_save of the reverse delta. Any thread.
 * Since 2.0. */
st_status st_patch(const char *base, const char *delta, const st_patch_options *opts);

/* Fold n deltas, each made for what lies below it, into one new file, as st_save
 * writes it, also where the base is sharded (st_reshard cuts it up again). Bytes are
 * shared with base and deltas where the filesystem can and offsets allow, else copied
 * by the kernel. All is checked as by st_patch.
 *   opts  NULL for the defaults. ST_LAYOUT_KEEP: the order that patching would
 *         give; alignment 0: what shares most with a base of one file, else 64.
 * Statuses: ST_E_DELTA, ST_E_DELTA_BASE; ST_E_INVALID_ARGUMENT (`to` is one of the
 * sources, or is named as an index of shards); ST_E_NOT_REGULAR (it is a folder); as
 * st_open; as st_save. Any thread. Since 2.0. */
st_status st_merge(const char *base, const char *const *deltas, size_t n, const char *to, const st_save_options *opts);

/* What a delta says of itself. Since 2.0. */
typedef struct st_delta_info {
  uint32_t struct_size;
  uint32_t reserved0;
  uint64_t changed;          /* tensors replaced */
  uint64_t added;            /* tensors */
  uint64_t deleted;          /* tensors */
  uint64_t metadata_set;     /* keys */
  uint64_t metadata_removed; /* keys */
  uint64_t data_bytes;       /* of the tensors in it */
  char base[40];             /* identity of its base, 32 hexadecimal digits */
  char result[40];           /* and of what it makes of that */
} st_delta_info;
#define ST_DELTA_INFO_INIT { (uint32_t)sizeof(st_delta_info), 0, 0, 0, 0, 0, 0, 0, {0}, {0} }
void st_delta_info_init(st_delta_info *out, size_t size);

/* Reads the header alone. Statuses: ST_E_DELTA; as st_open. Any thread. Since 2.0. */
st_status st_get_delta_info(const char *delta, st_delta_info *out);

/* --------------------------------------------------------------- reshaping */

/* Write a checkpoint as shards of at most max_shard_size bytes of tensors each (a larger tensor gets one to itself),
 * with their index: model-00001-of-00003.safetensors, model.safetensors.index.json. Tensors keep their order.
 *   from            anything that st_open takes; it is not changed.
 *   to_folder       made if it is not there; a checkpoint in it is ST_E_INVALID_ARGUMENT.
 *   max_shard_size  not 0.
 *   opts            NULL for the defaults; a layout other than ST_LAYOUT_KEEP is of each shard.
 * Bytes do not pass through the process: the kernel copies them, or shares their blocks. The index comes last: until
 * it is there the folder holds no checkpoint. Statuses: as st_open and st_save. Since 2.0. */
st_status st_reshard(const char *from, const char *to_folder, uint64_t max_shard_size, const st_save_options *opts);

/* Write a checkpoint as one file, in the same way: metadata of the index but its totals, and of the first shard what
 * the index does not say. Statuses: as st_open and st_save. Since 2.0. */
st_status st_join(const char *from, const char *to, const st_save_options *opts);

/* ------------------------------------------------------ recover and verify */

/* One finding of st_verify or st_recover. Filled by the library; struct_size
 * says how much of it this version fills. Pointers live during the call. */
typedef struct st_report {
  uint32_t struct_size;
  uint32_t level;        /* ST_LOG_INFO, ST_LOG_WARNING, or ST_REPORT_ERROR */
  st_status status;      /* what is wrong; ST_OK if nothing is */
  uint32_t reserved0;
  uint64_t offset;       /* in the file; UINT64_MAX if it is about no place */
  const char *message;   /* one sentence */
} st_report;
#define ST_REPORT_ERROR 3u
/* Return non-zero to stop (ST_E_CANCELLED). */
typedef int (*st_report_fn)(void *user, const st_report *report);

/* Check a file, or the shards of an index and whether they agree with it,
 * against every rule of the format and read all its bytes once.
 * Tells each finding; answers the status of the first error, or ST_OK. Journals
 * that wait, and old shards that stay, are reported, not touched. `report` may be NULL. Since 2.0. */
st_status st_verify(const char *path, st_report_fn report, void *user);

/* The same, with progress over the bytes read. Since 2.0. */
typedef struct st_verify_options {
  uint32_t struct_size;
  uint32_t reserved0;       /* zero */
  st_report_fn report;      /* may be NULL */
  void *report_user;
  st_progress_fn progress;  /* may be NULL; non-zero answers ST_E_CANCELLED */
  void *progress_user;
  const char *const *deltas; /* check these too, and that they fit what is at `path` and each other, to the last byte */
  uint64_t delta_count;
} st_verify_options;
#define ST_VERIFY_OPTIONS_INIT { (uint32_t)sizeof(st_verify_options), 0, NULL, NULL, NULL, NULL, NULL, 0 }
void st_verify_options_init(st_verify_options *out, size_t size);
st_status st_verify_with(const char *path, const st_verify_options *opts);

/* Finish or drop what crashed writers left beside the file, or the index and its shards: uncommitted
 * journals are removed, committed ones are applied and removed, changes that
 * were under way are rolled back. st_open does the same. Beside an index also old shards are removed, before their time
 * too (see ST_TXN_NEW_NAMES), and new ones that their writer did not come to name; st_open leaves them. Safe to call at any time, again, and from many processes. Statuses:
 * ST_E_NEEDS_RECOVERY (a journal waits but the file cannot be written here);
 * ST_E_JOURNAL (a journal does not fit the file; it was moved aside, as
 * <file>.st-journal/<id>.bad, and nothing was applied from it); ST_E_BUSY. Since 2.0. */
st_status st_recover(const char *path);

/* The same, with options and reports. */
typedef struct st_recover_options {
  uint32_t struct_size;
  int32_t lock_timeout_ms;  /* default 10,000 */
  st_report_fn report;      /* one call per journal, and per old shard; may be NULL */
  void *user;
} st_recover_options;
#define ST_RECOVER_OPTIONS_INIT { (uint32_t)sizeof(st_recover_options), 10000, NULL, NULL }
void st_recover_options_init(st_recover_options *out, size_t size);
st_status st_recover_with(const char *path, const st_recover_options *opts); /* since 2.0 */

/* ------------------------------------------------------------- observation */

/* What kind of storage lies behind a path (st_io_info.storage). */
#define ST_STORAGE_UNKNOWN 0u
#define ST_STORAGE_LOCAL 1u
#define ST_STORAGE_MEMORY 2u
#define ST_STORAGE_NETWORK 3u
#define ST_STORAGE_PARALLEL 4u
#define ST_STORAGE_FUSE 5u
#define ST_STORAGE_OBJECT_STORE 6u /* a FUSE filesystem over an object store */

typedef struct st_io_info {
  uint32_t struct_size;
  uint32_t storage;        /* ST_STORAGE_... */
  uint32_t map;            /* the ST_MAP_... in use: SHARED, PRIVATE, NONE or COPY_ON_WRITE */
  uint32_t map_fallbacks;  /* how many steps down from the one first tried */
  uint64_t file_size;
  uint64_t header_size;    /* n: bytes of JSON with padding */
  uint64_t data_offset;    /* 8 + n: where tensors begin */
  char filesystem[64];     /* its type, as in the mount table: "ext4", "fuse.gcsfuse" */
  char reason[256];        /* one sentence: why this mapping */
  uint32_t prefetch;       /* ST_PREFETCH_NONE, SEQUENTIAL or PARALLEL */
  uint32_t direct;         /* ST_DIRECT_ON, OFF or AUTO: of bulk reads into memory */
  uint32_t io_threads;     /* readers of a bulk read */
  uint32_t block_size;     /* bytes of a request of theirs */
  char prefetch_reason[256]; /* one sentence: how bulk reads go, and why */
} st_io_info;
#define ST_IO_INFO_INIT { (uint32_t)sizeof(st_io_info), 0, 0, 0, 0, 0, 0, {0}, {0}, 0, 0, 0, 0, {0} }
void st_io_info_init(st_io_info *out, size_t size);
st_status st_get_io_info(const st_file *file, st_io_info *out); /* since 2.0 */

typedef struct st_stats {
  uint32_t struct_size;
  uint32_t map_fallbacks;
  uint64_t bytes_read;           /* by libst's own reads, of this handle */
  uint64_t bytes_mapped;         /* address space */
  uint64_t bytes_resident;       /* of the mapping, in memory now (mincore) */
  uint64_t bytes_private_dirty;  /* of the mapping, copied on write: pages of ST_MAP_COPY_ON_WRITE that are this process's own */
  uint64_t bytes_owned;          /* filled in memory that the handle owns */
  uint64_t index_bytes;          /* names, shapes, offsets, hash table */
  uint64_t bytes_written;        /* into the file, of this handle */
  uint64_t journal_bytes;        /* into journals; blocks shared with them are not written */
  uint64_t commits;              /* transactions committed */
  uint64_t recoveries;           /* journals applied, rolled back or dropped */
  uint64_t lock_waits;           /* times that a lock was not free at once */
  uint64_t read_requests;        /* of bulk reads */
  uint64_t bytes_prefetched;     /* by st_prefetch, into the page cache */
  uint64_t reopens;              /* by this handle, in forked children */
} st_stats;
#define ST_STATS_INIT { (uint32_t)sizeof(st_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
void st_stats_init(st_stats *out, size_t size);
st_status st_get_stats(const st_file *file, st_stats *out); /* since 2.0 */

#ifdef __cplusplus
}
#endif

#endif /* ST_ST_H */
