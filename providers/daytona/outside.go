package daytona

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"

	"sandyard/netguard"
	"sandyard/providers/remote"
)

// outside is the way to the API, and to the toolboxes and ports whose URLs the API tells: what it names must be the
// operator's own server or a public one, for nobody else has chosen it. With a tenant's key it may have been the
// tenant: then it is the API's own host, or a public one that is reached without a proxy, which would not check that.
type outside struct {
	transport *http.Transport
	api       *url.URL
	proxies   map[string]bool // hosts that the environment names
	tenants   bool            // the key is a tenant's
}

func newOutside(api *url.URL, tenants bool) *outside {
	o := &outside{transport: remote.Transport(scriptAnswer), api: api, proxies: map[string]bool{}, tenants: tenants}
	for _, scheme := range []string{"http", "https"} {
		req := &http.Request{URL: &url.URL{Scheme: scheme, Host: "proxied.invalid"}}
		if at, err := http.ProxyFromEnvironment(req); err == nil && at != nil {
			o.proxies[at.Hostname()] = true
		}
	}
	o.transport.DialContext = o.dial
	if tenants {
		o.transport.Proxy = o.alone(o.transport.Proxy)
	}
	return o
}

// alone asks for a proxy on the way to the API alone.
func (o *outside) alone(proxy func(*http.Request) (*url.URL, error)) func(*http.Request) (*url.URL, error) {
	return func(r *http.Request) (at *url.URL, err error) {
		if r.URL.Hostname() == o.api.Hostname() {
			at, err = proxy(r)
		}
		return at, err
	}
}

// dial is the transport's.
func (o *outside) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	d := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}
	switch {
	case o.proxies[host] || host == o.api.Hostname():
	case o.tenants:
		d.ControlContext = public
	case o.near(host):
	case strings.HasSuffix(host, ".localhost") && o.local(): // which not every resolver knows
		return d.DialContext(ctx, network, net.JoinHostPort(o.api.Hostname(), port))
	default:
		d.ControlContext = public
	}
	return d.DialContext(ctx, network, address)
}

// near says whether a host is one of the API's domain, and so the operator's choice.
func (o *outside) near(host string) bool {
	own := o.api.Hostname()
	_, domain, _ := strings.Cut(own, ".")
	if net.ParseIP(own) != nil || !strings.Contains(domain, ".") {
		domain = own
	}
	return strings.HasSuffix(host, "."+domain)
}

// local says whether the API is on this machine.
func (o *outside) local() bool {
	ip, err := netip.ParseAddr(o.api.Hostname())
	return o.api.Hostname() == "localhost" || err == nil && ip.IsLoopback()
}

// public refuses to connect to what is no public address.
func public(_ context.Context, _, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	return netguard.Rules{}.CheckNamed(at.Addr())
}

// named reads a URL that the API has told. It must be encrypted if the API is.
func (o *outside) named(text string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimRight(text, "/"))
	if err != nil || u.Scheme != "https" && u.Scheme != o.api.Scheme || u.Host == "" || u.User != nil ||
		u.RawQuery != "" || u.Fragment != "" || len(text) > maxSecret {
		return nil, errNotDaytona
	}
	if host := u.Hostname(); o.tenants && o.proxies[host] && host != o.api.Hostname() {
		return nil, errNotDaytona // a proxy is there for the API
	}
	return u, nil
}
