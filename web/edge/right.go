package edge

import (
	"slices"

	"sandyard/models"
)

// right is what lets a visit in. It is asked again for as long as the visit lasts.
type right struct {
	grant  string // of a port, whose token came along
	public bool   // no token came along, or none that holds
}

// holds says whether the right still stands. What is neither a grant nor the port's publicity lasts as long as the
// sandbox: E2B's tokens are no rows.
func (r right) holds(route models.Route, port uint16) bool {
	switch {
	case r.grant != "":
		return slices.ContainsFunc(route.Grants, func(g models.RouteGrant) bool { return g.ID == r.grant && g.Port == port })
	case r.public:
		return route.Public && !slices.Contains(route.Tools, port) ||
			slices.ContainsFunc(route.Grants, func(g models.RouteGrant) bool { return g.Public && g.Port == port })
	}
	return true
}

// rightBy returns the right of a token to a port.
func (e *Edge) rightBy(token string, route models.Route, port uint16) (right, bool) {
	if token == "" {
		return right{}, false
	}
	if e.signer.IsTraffic(route.SandboxID, token) {
		return right{}, true
	}
	grant, ok := e.signer.ReadPort(route.SandboxID, token)
	by := right{grant: grant}
	return by, ok && grant != "" && by.holds(route, port)
}

// rightByAny returns the right of the first token that has one.
func (e *Edge) rightByAny(tokens []string, route models.Route, port uint16) (right, bool) {
	for _, token := range tokens {
		if by, ok := e.rightBy(token, route, port); ok {
			return by, true
		}
	}
	return right{}, false
}
