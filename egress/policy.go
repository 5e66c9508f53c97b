// Package egress makes the connections that sandboxes ask for. A sandbox has no network of its own: its guest offers
// programs a proxy, and every connection is a stream to the worker that holds the sandbox, which looks the name up
// itself, asks the sandbox's policy and the operator's rules, and dials exactly the address that they have passed.
//
// What a policy goes by is the destination that is asked for: a name or an address, and a port. What is said over the
// connection afterwards, such as a TLS server name or a Host header, is not looked at.
package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

const (
	maxEntries = 256
	maxEntry   = 300 // bytes
)

// All is the entry that stands for every public address.
const All = "*"

// Policy says where a sandbox may connect to. The zero value is nowhere.
type Policy struct {
	Allow []string `json:"allow,omitempty" doc:"Allowed destinations: a domain (example.com), its subdomains (*.example.com), an address or CIDR (198.51.100.0/24), or * for every public address. Each may have a :port, with IPv6 addresses in brackets. Empty = none" example:"[\"pypi.org:443\",\"*.pythonhosted.org\"]"`
	Deny  []string `json:"deny,omitempty" doc:"Exceptions from allow, in the same form. A domain is denied by name only; to block its addresses, deny them as well"`
	// AllowFirst serves clients of other systems, whose rules read so.
	AllowFirst bool `json:"allow_first,omitempty" doc:"Entries of allow, except *, take precedence over deny. By default deny takes precedence"`
}

// Public is the policy that allows every public address.
func Public() Policy { return Policy{Allow: []string{All}} }

// Off says whether the policy allows nothing.
func (p Policy) Off() bool { return len(p.Allow) == 0 }

// Equal says whether two policies are the same.
func (p Policy) Equal(q Policy) bool {
	return p.AllowFirst == q.AllowFirst && slices.Equal(p.Allow, q.Allow) && slices.Equal(p.Deny, q.Deny)
}

// EntryError is an entry of a policy that means nothing.
type EntryError struct {
	Field   string // allow or deny
	Message string
}

func (e *EntryError) Error() string { return e.Field + ": " + e.Message }

// Compile reads the policy. Its error is an *EntryError.
func (p Policy) Compile() (*Rules, error) {
	allow, err := compile("allow", p.Allow)
	if err != nil {
		return nil, err
	}
	deny, err := compile("deny", p.Deny)
	if err != nil {
		return nil, err
	}
	return &Rules{allow: allow, deny: deny, allowFirst: p.AllowFirst}, nil
}

func compile(field string, texts []string) ([]entry, error) {
	if len(texts) > maxEntries {
		return nil, &EntryError{field, fmt.Sprintf("has %d entries; the limit is %d", len(texts), maxEntries)}
	}
	entries := make([]entry, 0, len(texts))
	for _, text := range texts {
		e, err := parseEntry(text)
		if err != nil {
			return nil, &EntryError{
				field,
				fmt.Sprintf(
					"%.80q %v; write example.com, *.example.com, 198.51.100.0/24 or *, with :443 appended for one port",
					text,
					err,
				),
			}
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// entry is one destination of a policy.
type entry struct {
	all    bool         // every public address
	domain string       // the name itself
	suffix string       // ".example.com": the names below
	prefix netip.Prefix // the addresses
	port   uint16       // 0 = any
}

func parseEntry(text string) (entry, error) {
	if len(text) > maxEntry {
		return entry{}, fmt.Errorf("is longer than %d bytes", maxEntry)
	}
	host, port, err := splitPort(text)
	if err != nil {
		return entry{}, err
	}
	e := entry{port: port}
	if host == All {
		e.all = true
		return e, nil
	}
	if p, ok := parsePrefix(host); ok {
		e.prefix = p
		return e, nil
	}
	if below, ok := strings.CutPrefix(host, "*."); ok {
		name, err := parseName(below)
		e.suffix = "." + name
		return e, err
	}
	e.domain, err = parseName(host)
	return e, err
}

// splitPort cuts a port off. An IPv6 address that has none needs no brackets.
func splitPort(text string) (host string, port uint16, err error) {
	host, digits, found := text, "", false
	if inner, bracketed := strings.CutPrefix(text, "["); bracketed {
		if host, digits, found = strings.Cut(inner, "]"); found && digits == "" {
			return host, 0, nil
		}
		digits, found = strings.CutPrefix(digits, ":")
	} else if strings.Count(text, ":") == 1 {
		host, digits, found = strings.Cut(text, ":")
	} else {
		return host, 0, nil
	}
	n, err := strconv.ParseUint(digits, 10, 16)
	if !found || err != nil || n == 0 {
		return "", 0, errors.New("must end with a port from 1 to 65535")
	}
	return host, uint16(n), nil
}

func parsePrefix(host string) (netip.Prefix, bool) {
	if ip, err := netip.ParseAddr(host); err == nil && ip.Zone() == "" {
		ip = ip.Unmap()
		return netip.PrefixFrom(ip, ip.BitLen()), true
	}
	p, err := netip.ParsePrefix(host)
	if err != nil || p.Addr().Is4In6() {
		return netip.Prefix{}, false
	}
	return p.Masked(), true
}
