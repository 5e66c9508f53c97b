package match

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"sandyard/guest/protocol"
)

const (
	maxLine    = 1 << 20 // bytes of a line that are searched
	maxShown   = 400     // bytes of a line that are shown
	shownAhead = 100     // of which so many stand before the match in a line that is clipped
	readPiece  = 64 << 10
)

// ErrBinary says that a file holds a NUL byte, so that it has no lines.
var ErrBinary = errors.New("the file is binary")

// Search finds lines.
type Search struct {
	context int
	find    func(line []byte) int // where the match begins; negative = none
}

// NewSearch reads a request's pattern: a regular expression in RE2's syntax, or with Fixed the text itself.
func NewSearch(r protocol.GrepRequest) (*Search, error) {
	s := &Search{context: max(r.Context, 0)}
	switch {
	case r.Pattern == "":
		return nil, protocol.Errorf(protocol.ReasonInvalid, "the pattern is empty")
	case len(r.Pattern) > maxPattern:
		return nil, protocol.Errorf(protocol.ReasonInvalid, "the pattern is longer than %d bytes", maxPattern)
	case r.Fixed && !r.IgnoreCase:
		wanted := []byte(r.Pattern)
		s.find = func(line []byte) int { return bytes.Index(line, wanted) }
		return s, nil
	}
	source := r.Pattern
	if r.Fixed {
		source = regexp.QuoteMeta(source)
	}
	if r.IgnoreCase {
		source = "(?i)" + source
	}
	re, err := regexp.Compile(source)
	if err != nil {
		return nil, protocol.Errorf(
			protocol.ReasonInvalid,
			"the pattern is not a regular expression (%v); use RE2 syntax, or fixed for plain text",
			err,
		)
	}
	s.find = func(line []byte) int {
		if at := re.FindIndex(line); at != nil {
			return at[0]
		}
		return -1
	}
	return s, nil
}

// Budget is how much may still be found.
type Budget struct {
	Matches int
	Bytes   int // of the lines that are shown
}

// File returns the lines of r that match, with their neighbours, and takes them off the budget; more says that it was
// spent before the end. A file that turns out to be binary has none: ErrBinary.
func (s *Search) File(r io.Reader, path string, b *Budget) (found []protocol.GrepMatch, more bool, err error) {
	in := lineReader{r: bufio.NewReaderSize(r, readPiece)}
	left := *b
	var before []string
	for number := 1; ; number++ {
		line, err := in.next()
		if errors.Is(err, io.EOF) {
			*b = left
			return found, false, nil
		}
		if err != nil {
			return nil, false, err
		}
		at := s.find(line)
		open := s.unfinished(found, number)
		if at >= 0 && (left.Matches == 0 || left.Bytes <= 0) {
			*b = left
			return found, true, nil
		}
		if at < 0 && !open && s.context == 0 {
			continue
		}
		shown, clipped := show(line, max(at, 0))
		if open {
			s.follow(found, number, shown, &left)
		}
		if at >= 0 {
			m := protocol.GrepMatch{
				Path:    path,
				Line:    number,
				Column:  at + 1,
				Text:    shown,
				Clipped: clipped,
				Before:  append([]string(nil), before...),
			}
			left.Matches--
			left.Bytes -= len(path) + len(shown) + size(before)
			found = append(found, m)
		}
		before = remember(before, shown, s.context)
	}
}

// unfinished says whether a match wants this line for its neighbour.
func (s *Search) unfinished(found []protocol.GrepMatch, number int) bool {
	return len(found) > 0 && number-found[len(found)-1].Line <= s.context
}

// follow shows a line after the matches that it is a neighbour of.
func (s *Search) follow(found []protocol.GrepMatch, number int, shown string, left *Budget) {
	for i := len(found) - 1; i >= 0 && number-found[i].Line <= s.context; i-- {
		if left.Bytes > 0 {
			found[i].After = append(found[i].After, shown)
			left.Bytes -= len(shown)
		}
	}
}

func size(lines []string) int {
	n := 0
	for _, l := range lines {
		n += len(l)
	}
	return n
}

func remember(before []string, line string, context int) []string {
	if context == 0 {
		return nil
	}
	if len(before) == context {
		before = before[1:]
	}
	return append(before, line)
}

// show makes a line fit to be shown: UTF-8, and clipped around the byte at.
func show(line []byte, at int) (shown string, clipped bool) {
	if len(line) > maxShown {
		from := max(0, at-shownAhead)
		for from > 0 && from < len(line) && at-from < shownAhead+utf8.UTFMax && !utf8.RuneStart(line[from]) {
			from--
		}
		to := min(len(line), from+maxShown)
		for to < len(line) && to > from+maxShown-utf8.UTFMax && !utf8.RuneStart(line[to]) {
			to--
		}
		line, clipped = line[from:to], true
	}
	return strings.ToValidUTF8(string(line), "\uFFFD"), clipped
}

// lineReader reads lines without their ends. Of a line that is too long it reads the beginning and passes over the
// rest.
type lineReader struct {
	r    *bufio.Reader
	long []byte
}

// next answers io.EOF at the end, and ErrBinary for a line that holds a NUL byte. The line is valid until the next
// call.
func (l *lineReader) next() ([]byte, error) {
	line, err := l.r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		line, err = l.rest(line)
	}
	if err != nil && (!errors.Is(err, io.EOF) || len(line) == 0) {
		return nil, err
	}
	if bytes.IndexByte(line, 0) >= 0 {
		return nil, ErrBinary
	}
	line = bytes.TrimSuffix(line, []byte("\n"))
	return bytes.TrimSuffix(line, []byte("\r")), nil
}

func (l *lineReader) rest(begin []byte) ([]byte, error) {
	l.long = append(l.long[:0], begin...)
	for {
		piece, err := l.r.ReadSlice('\n')
		if bytes.IndexByte(piece, 0) >= 0 {
			return nil, ErrBinary
		}
		if room := maxLine - len(l.long); room > 0 {
			l.long = append(l.long, piece[:min(room, len(piece))]...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return l.long, err
	}
}
