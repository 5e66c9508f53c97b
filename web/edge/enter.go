package edge

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"sandyard/gateway"
	"sandyard/models"
	"sandyard/tokens"
)

// Where the token of a private port may come: our header, E2B's, a query parameter of the first request of a browser,
// and the cookie that answers it.
const (
	tokenHeader   = "X-Sandyard-Token"
	trafficHeader = "E2b-Traffic-Access-Token"
	previewHeader = "X-Daytona-Preview-Token"
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
func (e *Edge) enter(w http.ResponseWriter, r *http.Request, route models.Route, port uint16) (right, bool) {
	for name := range r.Header {
		if strings.HasPrefix(name, ours) {
			r.Header.Del(name)
		}
	}
	r.Header.Del(idHeader)
	r.Header.Del(portHeader)
	if port == gateway.GuestPort {
		return right{}, e.enterGuest(w, r, route.SandboxID)
	}
	return e.enterPort(w, r, route, port)
}

// enterGuest asks for the sandbox's access token, or the signature of a file's URL that was made with it. Both go on to
// the guest, which asks again: a request that has come to another sandbox than the one it was let in for gets nowhere.
func (e *Edge) enterGuest(w http.ResponseWriter, r *http.Request, id string) bool {
	token := r.Header.Get(accessHeader)
	switch {
	case !outsiders(r):
		refuse(w, http.StatusNotFound, "there is no route at this path")
	case r.URL.Path == healthPath, e.signer.IsAccess(id, token):
		return true
	case token == "" && r.URL.Path == "/files" && r.URL.Query().Has("signature"):
		if why := checkSignature(r, e.signer.Access(id), e.store.Now(r.Context())); why != "" {
			refuse(w, http.StatusUnauthorized, why)
			return false
		}
		return true
	default:
		refuse(w, http.StatusUnauthorized, "unauthorized access, send the sandbox's access token as "+accessHeader)
	}
	return false
}

// healthPath of the guest is open to all, so asking for it neither is use of the sandbox nor resumes it.
const healthPath = "/health"

func asksHealth(r *http.Request, port uint16) bool {
	return port == gateway.GuestPort && r.URL.Path == healthPath
}

// outsiders says whether a path of the guest is one for callers from outside: those of envd's protocol, but not the
// worker's own.
func outsiders(r *http.Request) bool {
	return slices.Contains([]string{healthPath, "/files", "/files/compose", "/metrics", "/envs"}, r.URL.Path) ||
		strings.HasPrefix(r.URL.Path, "/process.Process/") || strings.HasPrefix(r.URL.Path, "/filesystem.Filesystem/")
}

// enterPort asks for a token of the port, or of all ports of the sandbox, unless the port is public. A browser that
// brings it in the URL gets it as a cookie of that host, and the URL without it.
func (e *Edge) enterPort(w http.ResponseWriter, r *http.Request, route models.Route, port uint16) (right, bool) {
	came := takeTokens(r)
	found := e.judge(r, came, route, port)
	if !found.ok && !found.foreign { // a grant may be younger than what is remembered of the sandbox
		if fresh, err := e.routes.again(r.Context(), route.SandboxID); err == nil {
			found = e.judge(r, came, fresh, port)
		}
	}
	switch {
	case found.ok && found.inURL:
		return found.by, !e.trade(w, r, came.inURL)
	case found.ok:
		return found.by, true
	}
	message := came.forbidden()
	if found.foreign {
		message = "the cookie is valid only for pages of this host; from another page or a program, send the token in the " +
			"header " + tokenHeader
	}
	gateway.Refuse(
		w,
		http.StatusForbidden,
		gateway.Forbidden,
		gateway.Refusal{Sandbox: route.SandboxID, Port: port, Message: message},
	)
	return right{}, false
}

// verdict is what the tokens of a request give a right to.
type verdict struct {
	by      right
	ok      bool
	inURL   bool // by the token in the URL
	foreign bool // only by a cookie that another host's page has sent
}

func (e *Edge) judge(r *http.Request, came credentials, route models.Route, port uint16) verdict {
	if by, ok := e.rightBy(came.inURL, route, port); ok {
		return verdict{by: by, ok: true, inURL: true}
	}
	if by, ok := e.rightByAny(came.inHeaders, route, port); ok {
		return verdict{by: by, ok: true}
	}
	by, ok := e.rightByAny(came.inCookies, route, port)
	foreign := ok && !e.meant(r)
	if ok && !foreign {
		return verdict{by: by, ok: true}
	}
	if by = (right{public: true}); by.holds(route, port) {
		return verdict{by: by, ok: true}
	}
	return verdict{foreign: foreign}
}

// credentials are the tokens that came with a request. A page of another sandbox can set a cookie of ours for its
// parent domain, so all of the name count.
type credentials struct {
	inURL                string
	inHeaders, inCookies []string
}

// takeTokens returns the tokens that came along and leaves the request without them.
func takeTokens(r *http.Request) (t credentials) {
	for _, name := range []string{tokenHeader, trafficHeader, previewHeader} {
		if token := r.Header.Get(name); token != "" {
			t.inHeaders = append(t.inHeaders, token)
		}
		r.Header.Del(name)
	}
	for _, name := range []string{"X-Daytona-Skip-Preview-Warning", "X-Daytona-Disable-CORS"} {
		r.Header.Del(name) // it is for a proxy of Daytona's, not for programs
	}
	t.inURL, r.URL.RawQuery = cutParam(r.URL.RawQuery, tokens.TokenParam)
	t.inCookies = cutCookies(r.Header, tokenCookie)
	return t
}

// forbidden says what is missing.
func (t credentials) forbidden() string {
	if t.inURL == "" && len(t.inHeaders)+len(t.inCookies) == 0 {
		return "this port is private; send its token in the header " + tokenHeader + " or, in a browser, as " +
			"?" + tokens.TokenParam +
			"=; create one with POST /v1/sandboxes/{id}/ports"
	}
	return "the token is for another port, has expired or was revoked; create another with POST /v1/sandboxes/{id}/ports"
}
