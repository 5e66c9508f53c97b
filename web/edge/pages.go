package edge

import (
	"net/http"
	"strings"

	"sandyard/gateway"
)

const corsPrefix = "Access-Control-"

// fromPages lets pages of any origin speak envd's protocol, as envd itself does: what opens these routes is a token in
// a header or a signature in the URL, which a page has or has not. Credentials that a browser adds by itself are never
// allowed, and a port that a cookie may open gets no such header of ours. It answers true if it has answered: a browser
// that asks first. That question carries no header of the request's, so where the host says nothing it only names those
// that will.
func fromPages(w http.ResponseWriter, r *http.Request, port uint16, known bool) (answered bool) {
	asks := r.Method == http.MethodOptions && r.Header.Get("Origin") != "" &&
		r.Header.Get(corsPrefix+"Request-Method") != ""
	switch {
	case known && port != gateway.GuestPort, !known && (!asks || !willName(r, idHeader)):
		return false
	}
	h := w.Header()
	h.Set(corsPrefix+"Allow-Origin", "*")
	if !asks {
		h.Set(corsPrefix+"Expose-Headers", "*")
		return false
	}
	h.Set(corsPrefix+"Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE")
	h.Set(corsPrefix+"Allow-Headers", "*, Authorization") // which the star does not stand for
	h.Set(corsPrefix+"Max-Age", "7200")
	w.WriteHeader(http.StatusNoContent)
	return true
}

// willName says whether a browser asks to send a header.
func willName(r *http.Request, header string) bool {
	for _, list := range r.Header.Values(corsPrefix + "Request-Headers") {
		for name := range strings.SplitSeq(list, ",") {
			if strings.EqualFold(strings.TrimSpace(name), header) {
				return true
			}
		}
	}
	return false
}

// oursAlone drops what a guest says to browsers: the edge has said it.
func oursAlone(h http.Header) {
	for name := range h {
		if strings.HasPrefix(name, corsPrefix) {
			h.Del(name)
		}
	}
}
