//go:build cgo

package st

import (
	"encoding/binary"
	"fmt"
	"slices"
	"unsafe"
)

// Tensor is a value: what Get answers and Update, Put and Save take. Data is little-endian, in C order.
type Tensor struct {
	Name  string // of the tensor in its file; Save and Writer.Put look at it
	DType DType
	Shape []uint64
	Data  []byte
}

// Element is a Go type that stores an element of a dtype as it is.
type Element interface {
	bool | int8 | uint8 | int16 | uint16 | int32 | uint32 | int64 | uint64 | float32 | float64 | complex64
}

func dtypeOf[T Element]() DType {
	switch any(*new(T)).(type) {
	case bool:
		return Bool
	case int8:
		return I8
	case uint8:
		return U8
	case int16:
		return I16
	case uint16:
		return U16
	case int32:
		return I32
	case uint32:
		return U32
	case int64:
		return I64
	case uint64:
		return U64
	case float32:
		return F32
	case float64:
		return F64
	default:
		return C64
	}
}

// TensorOf makes a tensor of values and a shape, both of which it copies. Without a shape it has one dimension.
func TensorOf[T Element](values []T, shape ...uint64) Tensor {
	return tensorOf(values, shape, isBigEndian)
}

func tensorOf[T Element](values []T, shape []uint64, bigEndian bool) Tensor {
	if shape == nil {
		shape = []uint64{uint64(len(values))}
	}
	data := append([]byte{}, bytesOf(values)...)
	if bigEndian {
		turn[T](data)
	}
	return Tensor{DType: dtypeOf[T](), Shape: append([]uint64{}, shape...), Data: data}
}

// isBigEndian says that this machine's numbers are not as a file has them.
var isBigEndian = binary.NativeEndian.Uint16([]byte{0, 1}) == 1

// turn makes each number of T's elements big-endian if it is little-endian, and the other way round.
func turn[T Element](data []byte) {
	size := int(unsafe.Sizeof(*new(T)))
	if dtypeOf[T]() == C64 {
		size /= 2 // two numbers
	}
	for number := range slices.Chunk(data, size) {
		slices.Reverse(number)
	}
}

func bytesOf[T Element](values []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(values))), len(values)*int(unsafe.Sizeof(*new(T))))
}

// Values copies the elements of a tensor. The dtype must be T's, or of the same width where T is an unsigned integer:
// so []uint16 takes BF16 and []uint8 any packed type, as bits. A Bool is true unless its byte is 0. ErrNBytesMismatch if Data
// ends inside an element.
func Values[T Element](t Tensor) ([]T, error) { return valuesOf[T](t, isBigEndian) }

func valuesOf[T Element](t Tensor, bigEndian bool) ([]T, error) {
	size := int(unsafe.Sizeof(*new(T)))
	want := dtypeOf[T]()
	bits := t.DType.Bits()
	if !(t.DType == want || isUnsigned(want) && bits == 8*size || want == U8 && bits > 0 && bits < 8) {
		return nil, &Error{Op: "values", Status: ErrDTypeMismatch, Tensor: t.Name, HasTensor: true, Offset: -1,
			Message: fmt.Sprintf("tensor %q is %s, which a %T does not hold", t.Name, t.DType, *new(T))}
	}
	if len(t.Data)%size != 0 {
		return nil, &Error{Op: "values", Status: ErrNBytesMismatch, Tensor: t.Name, HasTensor: true, Offset: -1,
			Message: fmt.Sprintf("tensor %q has %d bytes, which are no whole number of %s", t.Name, len(t.Data), t.DType)}
	}
	values := make([]T, len(t.Data)/size)
	if truths, ok := any(values).([]bool); ok { // a bool of Go's is 0 or 1, and no other byte
		for i, b := range t.Data {
			truths[i] = b != 0
		}
		return values, nil
	}
	copy(bytesOf(values), t.Data)
	if bigEndian {
		turn[T](bytesOf(values))
	}
	return values, nil
}

func isUnsigned(d DType) bool { return d == U8 || d == U16 || d == U32 || d == U64 }
