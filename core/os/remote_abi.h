/* The border between libst.so and libst-remote.so.2, the only part that knows a network. C, so that both may be built
 * by different compilers: no C++ type and no exception crosses it. Versions that differ do not work together, and say
 * so. */
#ifndef ST_REMOTE_ABI_H
#define ST_REMOTE_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ST_REMOTE_VERSION 3u

typedef struct st_remote_object st_remote_object;

/* Filled where a call fails. */
typedef struct st_remote_error {
  int32_t status;     /* a number of st_status */
  char message[1020]; /* a sentence; no secrets */
} st_remote_error;

typedef struct st_remote_range {
  uint64_t offset, nbytes;
  void *to;
} st_remote_range;

/* Asked ten times a second while a call waits, on the thread of that call: not 0 ends it with an error. */
typedef int (*st_remote_stops)(void);

/* All by any thread. Calls that can fail answer 0, or another number and an error. */
typedef struct st_remote_calls {
  uint32_t version;
  /* beside: an object whose connections this one shares; may be NULL. */
  int32_t (*open)(const char *url, st_remote_object *beside, st_remote_stops stops, st_remote_object **out,
                  st_remote_error *error);
  uint64_t (*size)(const st_remote_object *object);
  const char *(*name)(const st_remote_object *object); /* the URL, as it may be shown; lives as the object does */
  uint32_t (*most_reads)(const st_remote_object *object);
  uint64_t (*best_read)(const st_remote_object *object); /* so many bytes a read make full use of a connection */
  /* How it is asked, by what was measured: a part of a sentence, NUL-terminated; at most `n` bytes with the NUL. */
  void (*tell)(const st_remote_object *object, char *out, size_t n);
  /* Fills each range, whole; all lie inside the object. */
  int32_t (*read)(st_remote_object *object, const st_remote_range *ranges, size_t n, st_remote_stops stops,
                  st_remote_error *error);
  void (*close)(st_remote_object *object);
} st_remote_calls;

/* The one name that libst-remote.so.2 exports. NULL: it is not of this version. */
#define ST_REMOTE_ENTRY "st_remote_v1"
typedef const st_remote_calls *(*st_remote_entry)(uint32_t version);

#ifdef __cplusplus
}
#endif

#endif
