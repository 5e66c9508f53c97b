package link

import (
	"hash/crc32"
	"sync"
)

// short is how much is added up byte by byte. What the processor's own instruction needs takes longer to make, once,
// than a guest takes for all that it says until it is first sent a file.
const short = 1 << 10

// checksum is the CRC-32C of both.
func checksum(header, payload []byte) uint32 {
	if len(payload) > short {
		table := crc32.MakeTable(crc32.Castagnoli)
		return crc32.Update(crc32.Update(0, table, header), table, payload)
	}
	return ^addUp(addUp(^uint32(0), header), payload)
}

func addUp(sum uint32, p []byte) uint32 {
	table := bytewise()
	for _, b := range p {
		sum = table[byte(sum)^b] ^ sum>>8
	}
	return sum
}

//nolint:gochecknoglobals // a table of constants
var bytewise = sync.OnceValue(func() *[256]uint32 {
	var table [256]uint32
	for i := range table {
		sum := uint32(i)
		for range 8 {
			low := sum & 1
			sum >>= 1
			if low != 0 {
				sum ^= crc32.Castagnoli
			}
		}
		table[i] = sum
	}
	return &table
})
