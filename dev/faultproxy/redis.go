package faultproxy

import (
	"bytes"
	"strconv"
	"strings"
)

// respSplitter knows Redis's protocol as a client speaks it, in arrays of strings
// (https://redis.io/docs/latest/develop/reference/protocol-spec/). Each command is a call.
type respSplitter struct{}

func (respSplitter) next(b []byte) (int, *Call) {
	count, at := header(b, 0, '*')
	var words []string
	for range count {
		size, from := header(b, at, '$')
		if from < 0 || from+size+2 > len(b) {
			return 0, nil
		}
		words, at = append(words, string(b[from:from+size])), from+size+2
	}
	if at < 0 {
		return 0, nil
	}
	return at, &Call{Text: strings.Join(words, " ")}
}

// header reads "<mark><number>\r\n" at from and returns the number and where it ends; -1 = it is not all there.
func header(b []byte, from int, mark byte) (number, end int) {
	if from < 0 || from >= len(b) || b[from] != mark {
		return 0, -1
	}
	n := bytes.Index(b[from:], []byte("\r\n"))
	if n < 0 {
		return 0, -1
	}
	number, err := strconv.Atoi(string(b[from+1 : from+n]))
	if err != nil {
		return 0, -1
	}
	return number, from + n + 2
}
