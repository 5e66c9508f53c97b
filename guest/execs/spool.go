package execs

import "sync/atomic"

// spool keeps the beginning of one output stream, or its end. Its owner serialises the calls. What it has handed out is
// never overwritten.
type spool struct {
	keep  int64
	room  *atomic.Int64 // shared by all spools of its kind
	last  bool          // the end is kept, not the beginning
	kept  []byte
	total int64
	full  bool
}

// add counts b and keeps what there is room for; it answers whether anything was kept.
func (s *spool) add(b []byte) bool {
	s.total += int64(len(b))
	if s.last {
		return s.slide(b)
	}
	if s.full {
		return false
	}
	n := min(int64(len(b)), s.keep-int64(len(s.kept)))
	if s.room.Add(-n) < 0 {
		s.room.Add(n)
		n = 0
	}
	s.full = n < int64(len(b))
	s.kept = append(s.kept, b[:n]...)
	return n > 0
}

// slide appends b and cuts off what is too old for the spool, or for the room that all of them share.
func (s *spool) slide(b []byte) bool {
	if s.full { // it was dropped
		return false
	}
	b = b[max(0, int64(len(b))-s.keep):]
	s.cut(int64(len(s.kept)+len(b)) - s.keep)
	if left := s.room.Add(-int64(len(b))); left < 0 {
		missing := -left - s.cut(min(-left, int64(len(s.kept))))
		missing = min(missing, int64(len(b)))
		b = b[missing:]
		s.room.Add(missing)
	}
	s.kept = append(s.kept, b...)
	return true // what was cut off is news, too
}

// cut gives up the first n bytes that are kept.
func (s *spool) cut(n int64) int64 {
	if n <= 0 {
		return 0
	}
	s.kept = s.kept[n:]
	s.room.Add(n)
	return n
}

// trim gives up what was written before offset.
func (s *spool) trim(offset int64) {
	first := s.total - int64(len(s.kept))
	s.cut(min(offset-first, int64(len(s.kept))))
}

// from returns what is kept from offset on, and where that begins: later than asked for where older bytes are gone.
func (s *spool) from(offset int64) (rest []byte, begin int64) {
	first := int64(0)
	if s.last {
		first = s.total - int64(len(s.kept))
	}
	offset = max(offset, first)
	if offset >= first+int64(len(s.kept)) {
		return nil, offset
	}
	return s.kept[offset-first:], offset
}

// drop gives the kept bytes back.
func (s *spool) drop() {
	s.room.Add(int64(len(s.kept)))
	s.kept, s.full = nil, true
}
