package st

// SeemClosed is the moment of a Close in another goroutine, before it has dropped what is known of the file.
func (f *File) SeemClosed(during func()) {
	f.h.users.Or(closedBit)
	during()
	f.h.users.And(^closedBit)
}

// Hold keeps what frees a transaction of the file waiting.
func (f *File) Hold(during func()) {
	f.h.mutex.Lock()
	defer f.h.mutex.Unlock()
	during()
}
