package guest

import (
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// The content codings of /files.
const (
	identityCoding = "identity"
	gzipCoding     = "gzip"
)

// codingFor chooses how to send a file; empty when the client takes neither way. Compressing costs the sandbox's own
// CPU time, so it is done only for a client that names nothing but gzip, not for the many that also name it.
func codingFor(h http.Header) string {
	accepted := map[string]bool{}
	for item := range strings.SplitSeq(h.Get("Accept-Encoding"), ",") {
		name, params, _ := strings.Cut(item, ";")
		if name = strings.ToLower(strings.TrimSpace(name)); name != "" {
			accepted[name] = weighsMore(params)
		}
	}
	identity, named := accepted[identityCoding]
	if every, given := accepted["*"]; given && !named {
		identity, named = every, !every
	}
	onlyGzip := accepted[gzipCoding] && len(accepted) == 1 && h.Get("Range") == ""
	switch {
	case onlyGzip, accepted[gzipCoding] && named && !identity:
		return gzipCoding
	case named && !identity:
		return ""
	default:
		return identityCoding
	}
}

// weighsMore says whether the parameters of a coding leave it a weight above 0.
func weighsMore(params string) bool {
	text, weighed := strings.CutPrefix(strings.ReplaceAll(params, " ", ""), "q=")
	weight, err := strconv.ParseFloat(text, 64)
	return !weighed || err != nil || weight > 0
}

func sendCompressed(w http.ResponseWriter, r io.Reader) {
	w.Header().Set("Content-Encoding", gzipCoding)
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err == nil {
		_, err = io.Copy(z, r)
		err = errors.Join(err, z.Close())
	}
	if err != nil {
		panic(http.ErrAbortHandler) // the only way left to say that bytes are missing
	}
}
