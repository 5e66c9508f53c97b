package egress

import (
	"net/netip"
	"slices"
	"strings"

	"sandyard/netguard"
)

// Rules are a policy that can be asked.
type Rules struct {
	allow, deny []entry
	allowFirst  bool
}

// The reasons for which a connection is refused, as they are counted and shown.
const (
	ReasonPolicy  = "policy"      // the sandbox's policy does not allow it
	ReasonAddress = "address"     // no sandbox may go there
	ReasonTarget  = "target"      // it cannot be read, or only in doubt
	ReasonLimit   = "limit"       // too many at once
	ReasonUnknown = "unresolved"  // the name has no address
	ReasonDial    = "unreachable" // nobody answered
	ReasonTrouble = "unavailable" // the worker cannot decide now
)

// refusal is why there is no connection.
type refusal struct {
	reason  string
	message string // for the program in the sandbox: what to do
}

func (r *refusal) Error() string { return r.message }

func (e entry) covers(port uint16) bool { return e.port == 0 || e.port == port }

// names says whether the entry means the name itself.
func (e entry) names(name string) bool {
	return e.domain != "" && name == e.domain || e.suffix != "" && strings.HasSuffix(name, e.suffix)
}

// wide says whether the entry means all addresses, or all of a family.
func (e entry) wide() bool { return e.all || e.prefix.IsValid() && e.prefix.Bits() == 0 }

// holds says whether the entry means the address.
func (e entry) holds(ip netip.Addr) bool { return e.all || e.prefix.IsValid() && e.prefix.Contains(ip) }

func match(entries []entry, port uint16, is func(entry) bool) bool {
	return slices.ContainsFunc(entries, func(e entry) bool { return e.covers(port) && is(e) })
}

// name decides over a name before it is looked up: names that lead nowhere must not leave, for a lookup alone carries
// a message. It answers whether the policy means the name itself.
func (r *Rules) name(t target) (named bool, err error) {
	is := func(e entry) bool { return e.names(t.name) }
	named = match(r.allow, t.port, is)
	if !named && !match(r.allow, t.port, entry.wide) {
		return false, notAllowed(t.String())
	}
	if named && r.allowFirst {
		return true, nil
	}
	if match(r.deny, t.port, is) || match(r.deny, t.port, func(e entry) bool { return e.all }) {
		return false, denied(t.String())
	}
	return named, nil
}

// address decides over an address that is about to be dialled, for a name that the policy means or for none.
func (r *Rules) address(t target, named bool, ip netip.Addr, rules netguard.Rules) error {
	is := func(e entry) bool { return e.holds(ip) }
	exact := named || match(r.allow, t.port, func(e entry) bool { return e.holds(ip) && !e.wide() })
	switch {
	case !exact && !match(r.allow, t.port, is):
		return notAllowed(t.String())
	case match(r.deny, t.port, is) && (!exact || !r.allowFirst):
		return denied(t.String())
	}
	if !exact {
		rules.Allow = nil // wide entries stand for public addresses
	}
	if err := rules.Check(netip.AddrPortFrom(ip, t.port)); err != nil {
		return &refusal{ReasonAddress, t.String() + ": no sandbox may reach it: " + err.Error()}
	}
	return nil
}

func notAllowed(what string) *refusal {
	return &refusal{ReasonPolicy, what + " is not in the sandbox's egress.allow; add it there to allow the connection"}
}

func denied(what string) *refusal {
	return &refusal{ReasonPolicy, what + " is in the sandbox's egress.deny"}
}
