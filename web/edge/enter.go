package edge

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"sandyard/gateway"
	"sandyard/models"
)

// Where the token of a private port may come: E2B's header, a query parameter of the first request of a browser, and
// the cookie that answers it.
const (
	trafficHeader = "E2b-Traffic-Access-Token"
	tokenParam    = "sandyard_token"
	tokenCookie   = "sandyard_token"
	accessHeader  = "X-Access-Token"
)

// ours begins the names of headers between the worker and the guest. No caller may send them.
const ours = "Sandyard-"

// refusal is an answer of the edge itself, in the shape of E2B's.
type refusal struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func refuse(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(refusal{status, message}) // a caller that is gone needs no answer
}

// enter checks that the caller may go to the port, and takes from the request what is not for the sandbox to see. If it
// answers false, the request has been answered.
func (e *Edge) enter(w http.ResponseWriter, r *http.Request, route models.Route, port uint16) bool {
	for name := range r.Header {
		if strings.HasPrefix(name, ours) {
			r.Header.Del(name)
		}
	}
	r.Header.Del(idHeader)
	r.Header.Del(portHeader)
	if port == gateway.GuestPort {
		return e.enterGuest(w, r, route.SandboxID)
	}
	return e.enterPort(w, r, route)
}

// enterGuest asks for the sandbox's access token, or the signature of a file's URL that was made with it.
func (e *Edge) enterGuest(w http.ResponseWriter, r *http.Request, id string) bool {
	token := r.Header.Get(accessHeader)
	r.Header.Del(accessHeader)
	switch {
	case !outsiders(r):
		refuse(w, http.StatusNotFound, "there is nothing at this path")
	case r.URL.Path == "/health", e.signer.IsAccess(id, token):
		return true
	case token == "" && r.URL.Path == "/files" && r.URL.Query().Has("signature"):
		if why := checkSignature(r, e.signer.Access(id), time.Now()); why != "" {
			refuse(w, http.StatusUnauthorized, why)
			return false
		}
		return true
	default:
		refuse(w, http.StatusUnauthorized, "unauthorized access, send the sandbox's access token as "+accessHeader)
	}
	return false
}

// outsiders says whether a path of the guest is one for callers from outside: those of envd's protocol, but not the
// worker's own.
func outsiders(r *http.Request) bool {
	return slices.Contains([]string{"/health", "/files", "/metrics", "/envs"}, r.URL.Path) ||
		strings.HasPrefix(r.URL.Path, "/process.Process/") || strings.HasPrefix(r.URL.Path, "/filesystem.Filesystem/")
}

// enterPort asks for the sandbox's traffic token, unless its ports are public. A browser that brings it in the URL gets
// it as a cookie of that host, and the URL without it.
func (e *Edge) enterPort(w http.ResponseWriter, r *http.Request, route models.Route) bool {
	query := r.URL.Query()
	given := []string{r.Header.Get(trafficHeader), query.Get(tokenParam), takeCookie(r)}
	r.Header.Del(trafficHeader)
	if query.Has(tokenParam) {
		query.Del(tokenParam)
		r.URL.RawQuery = query.Encode()
	}
	if !route.Public && !slices.ContainsFunc(given, func(t string) bool { return e.signer.IsTraffic(route.SandboxID, t) }) {
		refuse(w, http.StatusForbidden, "the ports of this sandbox are private: send its traffic token as the header "+
			trafficHeader+" or, in a browser, as ?"+tokenParam+"=")
		return false
	}
	if given[1] == "" || !e.signer.IsTraffic(route.SandboxID, given[1]) {
		return true
	}
	http.SetCookie(w, &http.Cookie{
		Name: tokenCookie, Value: given[1], Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: r.TLS != nil,
	})
	if r.Method != http.MethodGet || !strings.Contains(r.Header.Get("Accept"), "text/html") {
		return true
	}
	http.Redirect(w, r, "/"+strings.TrimLeft(r.URL.RequestURI(), "/"), http.StatusSeeOther) // never to another host
	return false
}

// takeCookie returns the token cookie and leaves the request with the others.
func takeCookie(r *http.Request) (token string) {
	c, err := r.Cookie(tokenCookie)
	if err != nil {
		return ""
	}
	all := r.Cookies()
	r.Header.Del("Cookie")
	for _, other := range all {
		if other.Name != tokenCookie {
			r.AddCookie(other)
		}
	}
	return c.Value
}
