package tokens

import (
	"net/url"
	"strconv"
)

// TokenParam is the query parameter in which a URL carries the token of a port that is not public.
const TokenParam = "sandyard_token"

// Address is where the edge is reached from outside. Empty = nowhere.
type Address struct {
	Scheme string // http or https
	Domain string // of the hosts {port}-{sandbox}.{domain}; may end with a port
}

// IsZero says whether there is no edge.
func (a Address) IsZero() bool { return a.Domain == "" }

// URL is where a port of a sandbox is reached, with a token in it unless that is empty.
func (a Address) URL(sandboxID string, port uint16, token string) string {
	u := url.URL{Scheme: a.Scheme, Host: strconv.Itoa(int(port)) + "-" + sandboxID + "." + a.Domain, Path: "/"}
	if token != "" {
		u.RawQuery = url.Values{TokenParam: {token}}.Encode()
	}
	return u.String()
}
