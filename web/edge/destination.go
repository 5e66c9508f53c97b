package edge

import (
	"net"
	"net/http"
	"strconv"
	"strings"
)

// Headers that name sandbox and port where the host does not, as E2B's clients send them.
const (
	idHeader   = "E2b-Sandbox-Id"
	portHeader = "E2b-Sandbox-Port"
)

// destination finds out where a request wants to go. A host {port}-{id}.{domain} comes before headers: a page behind it
// must not reach another sandbox by naming it. Under another domain such a host leads nowhere: what sandboxes serve
// must not pass for somebody else's.
func (e *Edge) destination(r *http.Request) (id string, port uint16, ok bool) {
	if id, port, ok = fromHost(r.Host); ok {
		_, domain, _ := strings.Cut(hostname(r.Host), ".")
		return id, port, e.domain == "" || domain == e.domain
	}
	id = r.Header.Get(idHeader)
	port, ok = parsePort(r.Header.Get(portHeader))
	return id, port, ok && validID(id)
}

// hostname is a host without its port and the dot at its end, in lower case.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

func fromHost(host string) (id string, port uint16, ok bool) {
	label, _, _ := strings.Cut(hostname(host), ".")
	text, id, _ := strings.Cut(label, "-")
	port, ok = parsePort(text)
	return id, port, ok && validID(id)
}

func parsePort(text string) (uint16, bool) {
	n, err := strconv.ParseUint(text, 10, 16)
	return uint16(n), err == nil && n > 0
}

func validID(id string) bool {
	return len(id) <= 64 && id != "" && strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}
