// Package guard says which addresses this machine may be made to connect to by strangers: by whoever names a webhook,
// and by the code in sandboxes. What counts is always the address that is dialled, after all resolving.
package guard

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
)

// Rules decide over addresses. The zero value lets only public addresses through that are not this machine's own.
type Rules struct {
	// Allow exempts what the operator trusts strangers with: loopback, private or other special addresses.
	Allow []netip.Prefix
	// Deny refuses public addresses, too. It comes after Allow.
	Deny []netip.Prefix
	// Own are public addresses of the installation itself, which are refused as Deny's are. Nil = none are known.
	Own *Addresses
}

// Addresses is a set that may be replaced while Rules ask about it. The zero value is empty.
type Addresses struct {
	all atomic.Pointer[[]netip.Addr]
}

// Set replaces all.
func (a *Addresses) Set(all []netip.Addr) {
	own := make([]netip.Addr, 0, len(all))
	for _, ip := range all {
		own = append(own, Plain(ip))
	}
	a.all.Store(&own)
}

// Has says whether ip is in the set; of a nil set nothing is.
func (a *Addresses) Has(ip netip.Addr) bool {
	if a == nil {
		return false
	}
	all := a.all.Load()
	return all != nil && slices.Contains(*all, Plain(ip))
}

// RefusedError says why an address must not be dialled.
type RefusedError struct {
	IP  netip.Addr
	Why string
}

func (e *RefusedError) Error() string { return fmt.Sprintf("%v is %s", e.IP, e.Why) }

// Check answers a *RefusedError for an address that strangers must not reach.
func (r Rules) Check(ip netip.Addr) error {
	ip = Plain(ip)
	switch {
	case !ip.IsValid():
		return &RefusedError{ip, "no address"}
	case r.Allows(ip):
		return nil
	case within(specialAddresses(), ip):
		return &RefusedError{ip, "not a public address"}
	case within(r.Deny, ip):
		return &RefusedError{ip, "closed by the operator"}
	case r.Own.Has(ip):
		return &RefusedError{ip, "an address of the installation's own"}
	}
	return checkOwn(ip)
}

// Allows says whether the operator has exempted an address.
func (r Rules) Allows(ip netip.Addr) bool { return within(r.Allow, Plain(ip)) }

// Plain is the address that a connection to ip reaches: without its zone, and IPv4 where IPv6 only wraps it.
func Plain(ip netip.Addr) netip.Addr { return ip.Unmap().WithZone("") }

func within(prefixes []netip.Prefix, ip netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// checkOwn refuses the public addresses of this machine itself: behind them are the services that listen on all of its
// interfaces.
func checkOwn(ip netip.Addr) error {
	own, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("list this machine's addresses: %w", err)
	}
	for _, a := range own {
		if p, err := netip.ParsePrefix(a.String()); err == nil && Plain(p.Addr()) == ip {
			return &RefusedError{ip, "an address of the host"}
		}
	}
	return nil
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
