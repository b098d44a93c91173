package st

// TensorOfIn and ValuesIn are TensorOf and Values on a machine of either order, but for the numbers themselves: these are
// this machine's.
func TensorOfIn[T Element](bigEndian bool, values []T) Tensor {
	return tensorOf(values, nil, bigEndian)
}

func ValuesIn[T Element](bigEndian bool, t Tensor) ([]T, error) { return valuesOf[T](t, bigEndian) }

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

// Leftover is an error that a call of a Source takes for its own. It was answered to a thread of the library's before the
// call began, while as many others ran.
func Leftover(answered error, others int) error {
	s := &sourceReader{}
	for range others {
		s.begin()
	}
	s.other = readFailure{err: answered}
	s.begin()
	return s.failed(readFailure{})
}

// Freed tells when the file has been closed, and its last call is over. It does not keep the file.
func (f *File) Freed() func() bool {
	h := f.h
	return func() bool { return h.users.Load() == closedBit }
}

func SizeHere(size uint64) int { return sizeHere(size) }
