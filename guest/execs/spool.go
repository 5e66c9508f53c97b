package execs

import "sync/atomic"

// spool keeps the beginning of one output stream. Its owner serialises the calls.
type spool struct {
	keep  int64
	room  *atomic.Int64 // shared by all spools
	head  []byte
	total int64
	full  bool
}

// add counts b and keeps what there is room for; it answers whether anything was kept.
func (s *spool) add(b []byte) bool {
	s.total += int64(len(b))
	if s.full {
		return false
	}
	n := min(int64(len(b)), s.keep-int64(len(s.head)))
	if s.room.Add(-n) < 0 {
		s.room.Add(n)
		n = 0
	}
	s.full = n < int64(len(b))
	s.head = append(s.head, b[:n]...)
	return n > 0
}

// from returns what is kept from offset on.
func (s *spool) from(offset int64) []byte {
	if offset >= int64(len(s.head)) {
		return nil
	}
	return s.head[offset:]
}

// drop gives the kept bytes back.
func (s *spool) drop() {
	s.room.Add(int64(len(s.head)))
	s.head, s.full = nil, true
}
