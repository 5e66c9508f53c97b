package kind

import (
	"encoding/binary"
)

// pack makes one blob of the bytes of several pieces, each behind its length.
func pack(pieces [][]byte) []byte {
	var blob []byte
	for _, p := range pieces {
		blob = binary.AppendUvarint(blob, uint64(len(p)))
		blob = append(blob, p...)
	}
	return blob
}

// unpack reads what pack has made of n pieces. What is missing is empty.
func unpack(blob []byte, n int) [][]byte {
	pieces := make([][]byte, n)
	for i := range pieces {
		size, head := binary.Uvarint(blob)
		if head <= 0 || size > uint64(len(blob)-head) {
			break
		}
		pieces[i] = blob[head : head+int(size)]
		blob = blob[head+int(size):]
	}
	return pieces
}
