//go:build cgo

package st

// Layout is in which order a new file has its tensors.
type Layout uint32

// The orders.
const (
	LayoutKeep      Layout = 0 // as given; of a transaction: as in the file, new ones at the end
	LayoutCanonical Layout = 1 // descending dtype, then name, as stock writers do
	LayoutStock     Layout = 2 // Save and Writer only: canonical, and byte for byte what safetensors 0.8 writes
)

func (l Layout) String() string {
	switch l {
	case LayoutKeep:
		return "keep"
	case LayoutCanonical:
		return "canonical"
	case LayoutStock:
		return "stock"
	}
	return "unknown"
}
