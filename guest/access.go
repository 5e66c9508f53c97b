package guest

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"

	"sandyard/guest/protocol"
)

// access is the secret that outsiders must know, from the moment that the sandbox is told one.
type access struct {
	token atomic.Pointer[string]
}

func (a *access) set(token string) { a.token.Store(&token) }

// guard lets in who knows the token, has a signed URL of a file, or only asks for the guest's health. Our own headers
// are dropped: a named command belongs to a job.
func (a *access) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := a.admit(r); err != nil {
			writeError(w, err)
			return
		}
		for name := range r.Header {
			if strings.HasPrefix(name, protocol.HeaderPrefix) {
				delete(r.Header, name)
			}
		}
		next.ServeHTTP(w, r)
	})
}

func (a *access) admit(r *http.Request) error {
	token := a.token.Load()
	if token == nil || *token == "" || r.URL.Path == protocol.HealthPath {
		return nil
	}
	given := r.Header.Get(protocol.AccessTokenHeader)
	switch {
	case given != "" && same(given, *token):
		return nil
	case given != "":
		return protocol.Errorf(
			protocol.ReasonNoAccess,
			"the access token in header %s is for another sandbox",
			protocol.AccessTokenHeader,
		)
	case r.URL.Path == protocol.FilesPath && (r.Method == http.MethodGet || r.Method == http.MethodHead):
		return checkSignature(r.URL.Query(), "read", *token)
	case r.URL.Path == protocol.FilesPath && r.Method == http.MethodPost:
		return checkSignature(r.URL.Query(), "write", *token)
	default:
		return protocol.Errorf(
			protocol.ReasonNoAccess,
			"send the sandbox's access token in header %s",
			protocol.AccessTokenHeader,
		)
	}
}

func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// checkSignature verifies envd's signed URLs: the hash of path, operation, user, token and, if there is one, the end.
// Whether that has come the edge has asked, by the database's clock; this machine's may say something else.
func checkSignature(q url.Values, operation, token string) error {
	signature := q.Get("signature")
	if signature == "" {
		return protocol.Errorf(
			protocol.ReasonNoAccess,
			"send the sandbox's access token in header %s, or use a signed URL",
			protocol.AccessTokenHeader,
		)
	}
	signed := []string{q.Get("path"), operation, q.Get("username"), token}
	expires := q.Get("signature_expiration")
	if expires != "" {
		signed = append(signed, expires)
	}
	hash := sha256.Sum256([]byte(strings.Join(signed, ":")))
	if !same(signature, "v1_"+base64.RawStdEncoding.EncodeToString(hash[:])) {
		return protocol.Errorf(protocol.ReasonNoAccess, "the signature is not valid")
	}
	return nil
}
