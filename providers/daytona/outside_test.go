package daytona

import (
	"net"
	"net/http"
	"net/url"
	"testing"
)

// TestATenantsAccountChoosesNoHostsWithin: URLs that it has a say in lead to the API's own host or to public ones.
func TestATenantsAccountChoosesNoHostsWithin(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	proxy := &url.URL{Scheme: "http", Host: "proxy.example:3128"}
	for _, c := range []struct {
		host             string
		operator, tenant bool
	}{{"127.0.0.1", true, true}, {"box.localhost", true, false}, {"127.0.0.2", false, false}, {"169.254.169.254", false, false}} {
		for tenants, want := range map[bool]bool{false: c.operator, true: c.tenant} {
			o := newOutside(&url.URL{Scheme: "http", Host: l.Addr().String()}, tenants)
			conn, err := o.dial(t.Context(), "tcp", net.JoinHostPort(c.host, port))
			if (err == nil) != want {
				t.Errorf("to %s with a tenant's key %v: %v", c.host, tenants, err)
			}
			if err == nil {
				_ = conn.Close()
			}
		}
	}
	o := newOutside(&url.URL{Scheme: "https", Host: "api.example"}, true)
	o.proxies["proxy.example"] = true
	if u, err := o.named("https://proxy.example:3128/toolbox"); err == nil {
		t.Errorf("a proxy is taken for a toolbox: %v", u)
	}
	for host, want := range map[string]*url.URL{"api.example": proxy, "toolbox.example": nil} {
		req := &http.Request{URL: &url.URL{Scheme: "https", Host: host}}
		if at, err := o.alone(http.ProxyURL(proxy))(req); err != nil || at != want {
			t.Errorf("%s is asked through %v, %v; want %v", host, at, err, want)
		}
	}
}
