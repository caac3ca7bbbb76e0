package api

import (
	"encoding/binary"
	"fmt"
	"unsafe"
)

// Append appends values to b, little-endian.
func Append[K uint32 | uint64](b []byte, values []K) []byte {
	for _, v := range values {
		if size[K]() == 8 {
			b = binary.LittleEndian.AppendUint64(b, uint64(v))
		} else {
			b = binary.LittleEndian.AppendUint32(b, uint32(v))
		}
	}
	return b
}

// Values reads little-endian values. Bytes that make no whole number of them
// are an error.
func Values[K uint32 | uint64](b []byte) ([]K, error) {
	if len(b)%size[K]() != 0 {
		return nil, fmt.Errorf("%d bytes are no whole number of values of %d bytes", len(b), size[K]())
	}
	values := make([]K, len(b)/size[K]())
	for i := range values {
		at := b[i*size[K]():]
		if size[K]() == 8 {
			values[i] = K(binary.LittleEndian.Uint64(at))
		} else {
			values[i] = K(binary.LittleEndian.Uint32(at))
		}
	}
	return values, nil
}

// size is the bytes of a value.
func size[K uint32 | uint64]() int {
	var k K
	return int(unsafe.Sizeof(k))
}
