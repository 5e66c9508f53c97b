package guard_test

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"go.uber.org/goleak"

	"sandyard/guard"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSpecialAddressesAreRefused(t *testing.T) {
	t.Parallel()
	for _, ip := range []string{
		"0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.255.0.9", "169.254.169.254",
		"172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.2.1", "192.168.1.1", "198.18.0.1", "198.51.100.1", "203.0.113.1",
		"224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255",
		"::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1",
		"64:ff9b:1::a00:1", "100::1", "2001::1", "2001:db8::1", "2002:7f00:1::", "3fff::1", "5f00::1", "fc00::1",
		"fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1",
		"::ffff:0:a9fe:a9fe", "4000::1", "a000::1",
	} {
		var refused *guard.RefusedError
		if err := (guard.Rules{}).Check(netip.MustParseAddr(ip)); !errors.As(err, &refused) {
			t.Errorf("%s: got %v", ip, err)
		}
	}
}

func TestPublicAddressesPass(t *testing.T) {
	t.Parallel()
	for _, ip := range []string{"1.1.1.1", "8.8.8.8", "172.32.0.1", "100.128.0.1", "::ffff:8.8.8.8", "2606:4700::1111"} {
		if err := (guard.Rules{}).Check(netip.MustParseAddr(ip)); err != nil {
			t.Errorf("%s: %v", ip, err)
		}
	}
}

func TestTheOperatorDecides(t *testing.T) {
	t.Parallel()
	rules := guard.Rules{
		Allow: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("8.8.8.8/32")},
		Deny:  []netip.Prefix{netip.MustParsePrefix("8.8.0.0/16")},
	}
	for ip, pass := range map[string]bool{
		"10.1.2.3": true, "::ffff:10.1.2.3": true, "10.2.0.1": false, "8.8.8.8": true, "8.8.8.9": false, "8.9.0.1": true,
	} {
		if err := rules.Check(netip.MustParseAddr(ip)); (err == nil) != pass {
			t.Errorf("%s: %v", ip, err)
		}
	}
	if err := rules.Check(netip.Addr{}); err == nil {
		t.Error("no address at all passed")
	}
}

// TestTheHostIsRefused goes by whatever addresses this machine has. Where none of them is public, the special ranges
// refuse them all the same.
func TestTheHostIsRefused(t *testing.T) {
	t.Parallel()
	own, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range own {
		p := netip.MustParsePrefix(a.String())
		if err := (guard.Rules{}).Check(p.Addr()); err == nil {
			t.Errorf("%v of this machine passed", p.Addr())
		}
	}
}
