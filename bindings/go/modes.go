//go:build cgo

package st

// MapMode is how the data of a file is reached.
type MapMode uint32

// The ways to reach data.
const (
	MapAuto        MapMode = 0 // as the storage asks; the environment's ST_MAP overrides
	MapShared      MapMode = 1 // MAP_SHARED; falls back to private, then to none
	MapPrivate     MapMode = 2 // MAP_PRIVATE; falls back to none
	MapNone        MapMode = 3 // no mapping: tensors are read into memory of the file's when first viewed
	MapCopyOnWrite MapMode = 4 // views may be written: later Views see it, the file never does; falls back to none
)

func (m MapMode) String() string {
	return nameOf(m, "auto", "shared", "private", "none", "copy-on-write")
}

// Prefetch is how much is read ahead of use.
type Prefetch uint32

// The ways to read ahead.
const (
	PrefetchAuto       Prefetch = 0 // as the storage asks; the environment's ST_PREFETCH overrides
	PrefetchNone       Prefetch = 1 // File.Prefetch does nothing
	PrefetchSequential Prefetch = 2 // one reader, in file order
	PrefetchParallel   Prefetch = 3 // several readers
)

func (p Prefetch) String() string { return nameOf(p, "auto", "none", "sequential", "parallel") }

// Direct is whether bulk reads go past the page cache.
type Direct uint32

// The ways to treat the page cache.
const (
	DirectAuto Direct = 0 // the first load of a file that is not in memory; the environment's ST_DIRECT overrides
	DirectOff  Direct = 1
	DirectOn   Direct = 2 // O_DIRECT, queued; where the filesystem cannot, as DirectOff
)

func (d Direct) String() string { return nameOf(d, "auto", "off", "on") }

// Layout is in which order a new file has its tensors.
type Layout uint32

// The orders.
const (
	LayoutKeep      Layout = 0 // as given; of a transaction: as in the file, new ones at the end
	LayoutCanonical Layout = 1 // as stock writers do: by dtype, wide before narrow, then by name
	LayoutStock     Layout = 2 // Save and Writer only: canonical, and byte for byte what safetensors 0.8 writes
)

func (l Layout) String() string { return nameOf(l, "keep", "canonical", "stock") }

func nameOf[T ~uint32](value T, names ...string) string {
	if int(value) < len(names) {
		return names[value]
	}
	return "unknown"
}
