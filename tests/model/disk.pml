/* What a page cache and a disk do, for all models. A sector is read and written in the page cache (`now`). `may` is
   the set of the values that the disk may hold: the kernel may write a page back at any time, or not at all. A sync
   leaves one value. A power cut chooses any value of the set, for each sector by itself. */
#define bit(x) (1 << (x))
typedef Sector { byte now; byte may }

inline put(s, v) { s.now = v; s.may = s.may | bit(v) }
inline sync(s) { s.may = bit(s.now) }
inline lose_cache(s) {
  if
  :: s.may & 1 -> s.now = 0
  :: s.may & 2 -> s.now = 1
  :: s.may & 4 -> s.now = 2
  :: s.may & 8 -> s.now = 3
  fi;
  s.may = bit(s.now)
}
