package egress

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"sandyard/netguard"
)

func rulesOf(t *testing.T, p Policy) *Rules {
	t.Helper()
	r, err := p.Compile()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// decide is what a connection to text meets whose name, if it is one, leads to ip.
func decide(r *Rules, text, ip string, rules netguard.Rules) error {
	t, err := parseTarget(text)
	if err != nil {
		return err
	}
	named := false
	if t.name != "" {
		if named, err = r.name(t); err != nil {
			return err
		}
	} else {
		ip = t.ip.String()
	}
	return r.address(t, named, netip.MustParseAddr(ip), rules)
}

func TestPolicies(t *testing.T) {
	t.Parallel()
	operator := netguard.Rules{Allow: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}}
	for _, c := range []struct {
		policy  Policy
		yes, no []string // host:port, or host:port=address for a name
	}{
		{policy: Policy{}, no: []string{"1.1.1.1:80", "example.com:443=1.1.1.1"}},
		{policy: Public(), yes: []string{"1.1.1.1:80", "[2606:4700::1]:443", "example.com:443=1.1.1.1"}, no: []string{
			"127.0.0.1:80", "[::1]:80", "[::ffff:127.0.0.1]:80", "169.254.169.254:80", "[fd00:ec2::254]:80", "10.0.0.1:22",
			"0.0.0.0:80", "224.0.0.1:80", "100.64.1.1:80", "[64:ff9b::a00:1]:80", "[::127.0.0.1]:80", "rebound.com:80=127.0.0.1",
			"rebound.com:80=::ffff:10.0.0.1", "10.9.1.1:80", "inside.org:80=10.9.1.1",
		}},
		{policy: Policy{Allow: []string{"example.com", "*.example.org:443"}}, yes: []string{
			"example.com:80=1.1.1.1", "EXAMPLE.com.:1=1.1.1.1", "a.b.example.org:443=1.1.1.1",
		}, no: []string{
			"www.example.com:80=1.1.1.1", "example.org:443=1.1.1.1", "a.example.org:80=1.1.1.1", "notexample.org:443=1.1.1.1",
			"example.com.evil.net:80=1.1.1.1", "1.1.1.1:80", "example.com:80=127.0.0.1", "example.com:80=10.8.0.1",
		}},
		{
			policy: Policy{Allow: []string{"inside.org", "10.9.3.0/24"}}, yes: []string{"inside.org:80=10.9.1.1", "10.9.3.4:80"},
			no: []string{"10.9.4.4:80", "inside.org:80=10.8.1.1", "other.org:80=10.9.3.4"},
		},
		{
			policy: Policy{Allow: []string{"198.51.100.7:8080", "[2606:4700::/32]:443", "8.8.0.0/16"}}, yes: []string{"[2606:4700:1::5]:443", "8.8.4.4:53"},
			no: []string{"[2606:4700:1::5]:80", "8.9.0.1:53", "198.51.100.7:8080", "name.org:443=8.8.8.8"},
		},
		{policy: Policy{Allow: []string{"0.0.0.0/0"}}, yes: []string{"1.1.1.1:80", "x.org:80=1.1.1.1"}, no: []string{"[2606:4700::1]:80", "127.0.0.1:80", "10.9.3.4:80"}},
		{
			policy: Policy{Allow: []string{"*"}, Deny: []string{"*.evil.com", "8.8.8.0/24", "*:25"}}, yes: []string{"evil.com:80=1.1.1.1", "8.8.4.4:53"},
			no: []string{"a.evil.com:80=1.1.1.1", "8.8.8.8:53", "dns.org:53=8.8.8.8", "mail.org:25=1.1.1.1"},
		},
		{policy: Policy{Allow: []string{"*", "8.8.8.8", "api.org"}, Deny: []string{"8.8.8.0/24"}, AllowFirst: true}, yes: []string{
			"8.8.8.8:53", "api.org:443=8.8.8.9", "1.1.1.1:80",
		}, no: []string{"8.8.8.9:53", "dns.org:53=8.8.8.9"}},
		{
			policy: Policy{Allow: []string{"*", "8.8.8.8", "api.org"}, Deny: []string{"*"}, AllowFirst: true},
			yes:    []string{"8.8.8.8:53", "api.org:443=1.1.1.1"}, no: []string{"1.1.1.1:80", "dns.org:53=8.8.4.4", "api.org:443=127.0.0.1"},
		},
	} {
		r := rulesOf(t, c.policy)
		check := func(texts []string, want bool) {
			for _, text := range texts {
				target, ip, _ := strings.Cut(text, "=")
				if err := decide(r, target, ip, operator); (err == nil) != want {
					t.Errorf("%+v: %s: %v", c.policy, text, err)
				}
			}
		}
		check(c.yes, true)
		check(c.no, false)
	}
}

// TestTargetsInDoubtAreRefused has what some programs read as 127.0.0.1 and others as a name.
func TestTargetsInDoubtAreRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"2130706433:80", "0x7f000001:80", "0x7f.1:80", "127.1:80", "0177.0.0.1:80", "127.0.0.1.:80", "[fe80::1%eth0]:80",
		"a b:80", "a\r\nHost: b:80", "a\x00b:80", "ex_ample.com/:80", "user@host:80", "-a.com:80", "a..b:80", ".:80", ":80", "example.com", "example.com:0",
		"example.com:65536", "example.com:http", "exämple.com:80", "１２７.0.0.1:80", strings.Repeat("a", 64) + ".com:80",
		strings.Repeat("a.", 130) + "com:80", "[::1]", "::1:80:80", "[::1:80",
	} {
		if got, err := parseTarget(text); err == nil {
			t.Errorf("%q was read as %+v", text, got)
		}
	}
}

func TestEntriesThatMeanNothingAreRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "http://example.com", "example.com/path", "*example.com", "a.*.com", "*.", "*.*", "1.2.3.4/33", "1.2.3", "host:0", "host:99999",
		"host:", ":80", "[::1", "[::1]80", "::ffff:0.0.0.0/96", "a b", strings.Repeat("a", 400),
	} {
		var bad *EntryError
		if _, err := (Policy{Deny: []string{text}}).Compile(); !errors.As(err, &bad) || bad.Field != "deny" {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := (Policy{Allow: make([]string, maxEntries+1)}).Compile(); err == nil {
		t.Error("a policy of any length was taken")
	}
}

// FuzzTarget checks that what is accepted has one meaning: read again from its own text it is the same.
func FuzzTarget(f *testing.F) {
	for _, seed := range []string{"example.com:443", "127.0.0.1:80", "[::ffff:1.2.3.4]:1", "0x7f.1:80", "a\x00:1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		first, err := parseTarget(text)
		if err != nil {
			return
		}
		again, err := parseTarget(first.String())
		if err != nil || again != first {
			t.Errorf("%q is %+v and then %+v, %v", text, first, again, err)
		}
	})
}
