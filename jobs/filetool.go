package jobs

import (
	"context"
	"encoding/binary"

	"sandyard/providers"
	"sandyard/providers/emulated"
)

// tools runs f with the sandbox's file tools; what f returns becomes the job's result.
func (a *attempt) tools(ctx context.Context, f func(providers.FileTools) (any, error)) (result, error) {
	sb, err := a.open(ctx)
	if err != nil {
		return result{}, err
	}
	v, err := f(emulated.Tools(sb))
	return result{value: v}, err
}

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
