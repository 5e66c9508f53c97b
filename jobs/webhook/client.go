package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"sandyard/netguard"
)

// guardedClient is an HTTP client for addresses that strangers name. What counts is the address that is dialled, after
// all resolving: a check of the name beforehand could be answered differently the second time. It follows no redirect,
// uses no proxy and keeps no connection.
func guardedClient(rules netguard.Rules) *http.Client {
	d := net.Dialer{Timeout: 5 * time.Second, Control: func(_, address string, _ syscall.RawConn) error {
		return checkAddress(address, rules)
	}}
	return &http.Client{
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				return d.DialContext(ctx, network, addr)
			},
			DisableKeepAlives:      true,
			TLSHandshakeTimeout:    5 * time.Second,
			ResponseHeaderTimeout:  timeout,
			MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func checkAddress(address string, rules netguard.Rules) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("malformed address %q: %w", address, err)
	}
	return rules.Check(at)
}

// undeliveredError is why an attempt at a callback failed. Its text is for the tenant: it names no address that the URL
// does not name, and no resolver.
type undeliveredError struct {
	told  string
	cause error // for the log; nil = the text says all
}

func (e *undeliveredError) Error() string { return e.told }

func (e *undeliveredError) Unwrap() error { return e.cause }

// noAnswer takes the URL, which may hold secrets, out of the client's error.
func noAnswer(err error) error {
	if named, ok := errors.AsType[*url.Error](err); ok {
		err = named.Err
	}
	return &undeliveredError{whyNoAnswer(err), err}
}

func whyNoAnswer(err error) string {
	var refused *netguard.RefusedError
	var name *net.DNSError
	var timeout net.Error
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &refused):
		return refused.Error() + "; the operator can allow private addresses with WEBHOOK_ALLOW_CIDRS"
	case errors.As(err, &name):
		return "the URL's host has no address"
	case errors.As(err, &certificate):
		return "the receiver's TLS certificate cannot be verified"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "the receiver did not answer in time"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the receiver refused the connection"
	}
	return "the receiver closed the connection without an HTTP answer"
}

// maxURL bounds the length of a callback's URL.
const maxURL = 2048

// CheckURL refuses what can never be called. Where a name leads is decided when it is dialled.
func CheckURL(raw string, rules netguard.Rules) error {
	if raw == "" {
		return nil
	}
	u, err := url.Parse(raw)
	switch {
	case len(raw) > maxURL:
		return fmt.Errorf("is longer than %d characters", maxURL)
	case err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https":
		return errors.New("must be an http or https URL")
	case u.User != nil:
		return errors.New("must not carry a user name or password")
	case !validPort(u):
		return errors.New("must have a port from 1 to 65535, or none")
	}
	ip, isAddress := literal(u.Hostname())
	if !isAddress {
		return nil
	}
	if err := rules.CheckNamed(ip); err != nil {
		return fmt.Errorf("cannot be called: %w; the operator can allow private addresses with WEBHOOK_ALLOW_CIDRS", err)
	}
	return nil
}

func validPort(u *url.URL) bool {
	if u.Port() == "" {
		return !strings.HasSuffix(u.Host, ":")
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	return err == nil && port > 0
}

// literal returns the address that a host stands for without a lookup. One that only looks like an address, such as
// 127.1, is not valid: nothing resolves it.
func literal(host string) (netip.Addr, bool) {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip, true
	}
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1}), true
	}
	last := host[strings.LastIndexByte(host, '.')+1:]
	_, err := strconv.ParseUint(last, 0, 64)
	return netip.Addr{}, err == nil || last == ""
}
