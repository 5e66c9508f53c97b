package jobs

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"

	"sandyard/guard"
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
	if err := (guard.Rules{Allow: allow}).Check(ap.Addr()); err != nil {
		return fmt.Errorf("%w; the operator can allow it with WEBHOOK_ALLOW_CIDRS", err)
	}
	return nil
}
