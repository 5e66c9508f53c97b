// Package netguard says which addresses this machine may be made to connect to by strangers: by whoever names a
// webhook, and by the code in sandboxes. What counts is always the address that is dialled, after all resolving.
package netguard

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
)

// Rules decide over addresses. The zero value lets only public addresses through that are not this machine's own.
type Rules struct {
	// Deny and Own refuse whatever the other fields say.
	Deny []netip.Prefix
	// Own are the installation's own services, such as its database. Nil = none are known. The other ports of their hosts
	// are refused unless Allow names the host.
	Own *Services
	// Allow exempts what the operator trusts strangers with: loopback, private or other special addresses.
	Allow []netip.Prefix
}

// Services is a set of addresses with ports that may be replaced while Rules ask about it. The zero value is empty.
type Services struct {
	all atomic.Pointer[[]netip.AddrPort]
}

// Set replaces all.
func (s *Services) Set(all []netip.AddrPort) {
	own := make([]netip.AddrPort, 0, len(all))
	for _, at := range all {
		own = append(own, netip.AddrPortFrom(Plain(at.Addr()), at.Port()))
	}
	s.all.Store(&own)
}

// any says whether one of the services is so; of a nil set none is.
func (s *Services) any(is func(netip.AddrPort) bool) bool {
	if s == nil {
		return false
	}
	all := s.all.Load()
	return all != nil && slices.ContainsFunc(*all, is)
}

// RefusedError says why an address must not be dialled. Its text does not name the address: whoever asked for a name
// must not learn where inside it leads.
type RefusedError struct {
	IP  netip.Addr // for the log
	Why string
}

func (e *RefusedError) Error() string { return "the address is " + e.Why }

// Check answers a *RefusedError for an address that strangers must not reach at that port.
func (r Rules) Check(at netip.AddrPort) error {
	ip := Plain(at.Addr())
	if err := r.CheckNamed(ip); err != nil {
		return err
	}
	here, err := machine()
	if err != nil {
		return err
	}
	switch allowed := r.Allows(ip); {
	case r.Own.any(func(s netip.AddrPort) bool { return s.Port() == at.Port() && sameHost(s.Addr(), ip, here) }):
		return &RefusedError{ip, "the installation's own"}
	case allowed:
		return nil
	case r.Own.any(func(s netip.AddrPort) bool { return s.Addr() == ip }):
		return &RefusedError{ip, "the installation's own"}
	case slices.Contains(here, ip):
		return &RefusedError{ip, "the host's own"}
	}
	return nil
}

// CheckNamed answers what is known of an address wherever it is dialled from: it is not public, or the operator has
// closed it.
func (r Rules) CheckNamed(ip netip.Addr) error {
	ip = Plain(ip)
	switch {
	case !ip.IsValid():
		return &RefusedError{ip, "not valid"}
	case within(r.Deny, ip):
		return &RefusedError{ip, "closed by the operator"}
	case !r.Allows(ip) && within(specialAddresses(), ip):
		return &RefusedError{ip, "not public"}
	}
	return nil
}

// Allows says whether the operator has exempted an address.
func (r Rules) Allows(ip netip.Addr) bool { return within(r.Allow, Plain(ip)) }

// sameHost says whether two addresses lead to one host: they are equal, or both lead to this machine.
func sameHost(a, b netip.Addr, machine []netip.Addr) bool {
	here := func(ip netip.Addr) bool { return ip.IsLoopback() || ip.IsUnspecified() || slices.Contains(machine, ip) }
	return a == b || here(a) && here(b)
}

// Plain is the address that a connection to ip reaches: without its zone, and IPv4 where IPv6 only wraps it.
func Plain(ip netip.Addr) netip.Addr { return ip.Unmap().WithZone("") }

func within(prefixes []netip.Prefix, ip netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// machine returns the addresses of this machine: behind them are the services that listen on all of its interfaces.
func machine() ([]netip.Addr, error) {
	own, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list this machine's addresses: %w", err)
	}
	var all []netip.Addr
	for _, a := range own {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			all = append(all, Plain(p.Addr()))
		}
	}
	return all, nil
}

// specialAddresses are those that lead anywhere but to a public host, from IANA's special-purpose registries, with
// the IPv6 ranges that wrap IPv4 ones. What clouds tell and give their machines is behind them, too, but for Azure's,
// which has taken a public address for it.
func specialAddresses() []netip.Prefix {
	var out []netip.Prefix
	for _, s := range []string{
		"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
		"192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
		"224.0.0.0/4", "240.0.0.0/4",
		"168.63.129.16/32",             // WireServer of Azure: certificates, configuration and names of the machine
		"::/3", "4000::/2", "8000::/1", // of IPv6 nothing but 2000::/3 is given out to public hosts
		"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
	} {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}
