package edge

import (
	"net/http"
	"net/url"
	"strings"
)

// trade turns the token of a URL into a cookie. If it answers true, the request has been answered: a page is loaded
// again without the token.
func (e *Edge) trade(w http.ResponseWriter, r *http.Request, token string) bool {
	http.SetCookie(w, &http.Cookie{
		Name: tokenCookie, Value: token, Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode,
		Secure: e.secure || r.TLS != nil,
	})
	if r.Method != http.MethodGet || !strings.Contains(r.Header.Get("Accept"), "text/html") {
		return false
	}
	http.Redirect(w, r, "/"+strings.TrimLeft(r.URL.RequestURI(), "/"), http.StatusSeeOther) // never to another host
	return true
}

// meant says whether a request with a cookie comes from where the cookie was given, as far as it does anything. All
// sandboxes under one domain are one site to a browser, so SameSite does not keep the page of one from sending the
// cookie of another along; a WebSocket could even be read, and so can an answer that is run as a script. A link that
// only reads is followed: the page that it is on does not get to see where it leads. Browsers that say nothing of where
// a request comes from (they do over TLS, and to localhost) are believed about other reading, too.
func (e *Edge) meant(r *http.Request) bool {
	reads := safe(r.Method) && r.Header.Get("Upgrade") == ""
	switch r.Header.Get("Sec-Fetch-Site") { // which no page can set
	case "same-origin", "none":
		return true
	case "same-site", "cross-site":
		return reads && navigates(r.Header)
	}
	if reads {
		return true
	}
	origins := r.Header.Values("Origin")
	for _, origin := range origins {
		from, err := url.Parse(origin)
		if err != nil || !strings.EqualFold(from.Host, r.Host) || (e.secure && from.Scheme != "https") {
			return false
		}
	}
	return true
}

// navigates says whether a browser goes to a page, in a window or in a frame of another one.
func navigates(h http.Header) bool {
	to := h.Get("Sec-Fetch-Dest")
	return h.Get("Sec-Fetch-Mode") == "navigate" && (to == "document" || to == "iframe" || to == "frame")
}

func safe(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions ||
		method == http.MethodTrace
}

// cutParam returns a parameter's first value that is not empty, and the query without the parameter. The rest stays as
// it was written: it is for a program that may have its own way to read it.
func cutParam(query, name string) (value, rest string) {
	if !strings.Contains(query, "=") {
		return "", query
	}
	kept := make([]string, 0, strings.Count(query, "&")+1)
	for pair := range strings.SplitSeq(query, "&") {
		key, text, _ := strings.Cut(pair, "=")
		if plain, err := url.QueryUnescape(key); err != nil || plain != name {
			kept = append(kept, pair)
			continue
		}
		if plain, err := url.QueryUnescape(text); err == nil && value == "" {
			value = plain
		}
	}
	return value, strings.Join(kept, "&")
}

// cutCookies returns the values of all cookies of a name and leaves the header without them, but otherwise as it came.
func cutCookies(h http.Header, name string) (values []string) {
	var lines []string
	for _, line := range h["Cookie"] {
		var kept []string
		for pair := range strings.SplitSeq(line, ";") {
			key, value, _ := strings.Cut(pair, "=")
			if strings.TrimSpace(key) == name {
				values = append(values, strings.Trim(value, " \t\""))
			} else {
				kept = append(kept, pair)
			}
		}
		if left := strings.TrimLeft(strings.Join(kept, ";"), " \t"); left != "" {
			lines = append(lines, left)
		}
	}
	if len(values) > 0 {
		h["Cookie"] = lines
	}
	if len(values) > 0 && len(lines) == 0 {
		h.Del("Cookie")
	}
	return values
}
