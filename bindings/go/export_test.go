package st

// SeemClosed is the moment of a Close in another goroutine, before it has dropped what is known of the file.
func (f *File) SeemClosed(during func()) {
	f.h.users.Or(closedBit)
	during()
	f.h.users.And(^closedBit)
}
