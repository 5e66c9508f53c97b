package jobs

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"syscall"
	"time"
)

// guardedClient is an HTTP client for addresses that strangers name. What counts is the address that is dialled, after
// all resolving: a check of the name beforehand could be answered differently the second time. It follows no redirect,
// uses no proxy and keeps no connection.
func guardedClient(allow []netip.Prefix) *http.Client {
	d := net.Dialer{Timeout: 5 * time.Second, Control: func(_, address string, _ syscall.RawConn) error {
		return checkAddress(address, allow)
	}}
	return &http.Client{
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				return d.DialContext(ctx, network, addr)
			},
			DisableKeepAlives:      true,
			TLSHandshakeTimeout:    5 * time.Second,
			ResponseHeaderTimeout:  webhookTimeout,
			MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func checkAddress(address string, allow []netip.Prefix) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("unreadable address %q: %w", address, err)
	}
	ip := ap.Addr().Unmap().WithZone("")
	contains := func(p netip.Prefix) bool { return p.Contains(ip) }
	if !slices.ContainsFunc(allow, contains) && slices.ContainsFunc(specialAddresses(), contains) {
		return fmt.Errorf("%v is not a public address; the operator can allow it with WEBHOOK_ALLOW_CIDRS", ip)
	}
	return nil
}

// specialAddresses are those that lead anywhere but to a public host, from IANA's special-purpose registries, with
// the IPv6 ranges that wrap IPv4 ones.
func specialAddresses() []netip.Prefix {
	var out []netip.Prefix
	for _, s := range []string{
		"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
		"192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
		"224.0.0.0/4", "240.0.0.0/4",
		"::/128", "::1/128", "::/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "2002::/16",
		"3fff::/20", "5f00::/16", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8",
	} {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}
