package web

import (
	"net/url"
	"strconv"
)

// portURL is where a port of a sandbox is reached through the edge, with the sandbox's token where its ports are
// private. It is empty where there is no edge or no port.
func (s *Server) portURL(sandbox string, port int, public bool) string {
	if s.edge == nil || s.edge.Domain == "" || port == 0 {
		return ""
	}
	u := url.URL{Scheme: "http", Host: strconv.Itoa(port) + "-" + sandbox + "." + s.edge.Domain, Path: "/"}
	if !public {
		u.RawQuery = url.Values{"sandyard_token": {s.edge.Signer.Traffic(sandbox)}}.Encode()
	}
	return u.String()
}
