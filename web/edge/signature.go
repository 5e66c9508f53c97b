package edge

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// checkSignature says what is wrong with a signed URL of a file; empty = nothing. The signature is E2B's: a hash of the
// path, the operation, the user, the sandbox's access token and, where there is one, the time until which it holds.
func checkSignature(r *http.Request, token string, now time.Time) string {
	q := r.URL.Query()
	text := strings.Join([]string{q.Get("path"), operation(r.Method), q.Get("username"), token}, ":")
	if until := q.Get("signature_expiration"); until != "" {
		text += ":" + until
	}
	sum := sha256.Sum256([]byte(text))
	want := "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
	if subtle.ConstantTimeCompare([]byte(want), []byte(q.Get("signature"))) != 1 {
		return "invalid signature"
	}
	return expired(q, now)
}

func expired(q url.Values, now time.Time) string {
	until := q.Get("signature_expiration")
	if until == "" {
		return ""
	}
	end, err := strconv.ParseInt(until, 10, 64)
	if err != nil || now.Unix() > end {
		return "signature is already expired"
	}
	return ""
}

func operation(method string) string {
	if method == http.MethodGet || method == http.MethodHead {
		return "read"
	}
	return "write"
}
