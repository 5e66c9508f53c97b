//go:build attack

package attack

import (
	"bytes"
	"compress/zlib"
	"io"
	"strings"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sync/errgroup"
)

// bombSize is what a bomb unpacks to.
const bombSize = 768 << 20

// bomb is a small body that is huge without its Content-Encoding.
type bomb struct {
	coding string
	body   []byte
}

// bombs sends one of each kind to every route.
func bombs(s *stage) {
	all := makeBombs(s)
	prey := s.intruder.own(s.t)
	answers := &tally{}
	s.walk(func(to route) {
		for _, b := range all {
			answers.add(s.intruder.do(s.request(to, b.body, s.ownIDs(to, prey), "Content-Encoding", b.coding)))
		}
	})
	s.reached("%d kinds of %d MB to each of %d routes: %v", len(all), bombSize>>20, len(s.routes), answers)
}

func makeBombs(s *stage) []bomb {
	codings := map[string]func(io.Writer) io.WriteCloser{
		"gzip":    func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
		"deflate": func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) },
		"br":      func(w io.Writer) io.WriteCloser { return brotli.NewWriterLevel(w, 1) },
		"zstd": func(w io.Writer) io.WriteCloser {
			z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
			must(s.t, err)
			return z
		},
	}
	var group errgroup.Group
	all := make([]bomb, 0, len(codings)+1)
	for _, coding := range []string{"gzip", "deflate", "br", "zstd"} {
		all = append(all, bomb{coding: coding})
		b := &all[len(all)-1]
		group.Go(func() error {
			var err error
			b.body, err = pack(codings[b.coding])
			return err
		})
	}
	must(s.t, group.Wait())
	var twice bytes.Buffer
	outer := gzip.NewWriter(&twice)
	_, _ = outer.Write(all[0].body) // a buffer takes all
	must(s.t, outer.Close())
	return append(all, bomb{"gzip, gzip", twice.Bytes()}, bomb{"GZIP", all[0].body})
}

// pack writes blanks, which are no JSON and so are read to their end.
func pack(coding func(io.Writer) io.WriteCloser) ([]byte, error) {
	var packed bytes.Buffer
	w := coding(&packed)
	blanks := []byte(strings.Repeat(" ", 1<<20))
	for range bombSize >> 20 {
		if _, err := w.Write(blanks); err != nil {
			return nil, err
		}
	}
	return packed.Bytes(), w.Close()
}
