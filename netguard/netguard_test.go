package netguard_test

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"sandyard/netguard"
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
		var refused *netguard.RefusedError
		if err := (netguard.Rules{}).Check(at(ip)); !errors.As(err, &refused) {
			t.Errorf("%s: got %v", ip, err)
		}
	}
}

// TestMetadataIsRefused has the addresses at which clouds tell machines who they are, and give them keys.
func TestMetadataIsRefused(t *testing.T) {
	t.Parallel()
	for ip, whose := range map[string]string{
		"169.254.169.254":    "most clouds: instance metadata",
		"169.254.170.2":      "AWS: credentials of ECS tasks",
		"169.254.170.23":     "AWS: credentials of EKS pods",
		"169.254.169.253":    "AWS: name server",
		"169.254.169.123":    "AWS: time",
		"fd00:ec2::254":      "AWS: instance metadata",
		"fd00:ec2::23":       "AWS: credentials of EKS pods",
		"fd00:ec2::253":      "AWS: name server",
		"fd20:ce::254":       "Google: instance metadata",
		"168.63.129.16":      "Azure: WireServer",
		"100.100.100.200":    "Alibaba: instance metadata",
		"100.100.2.136":      "Alibaba: name server",
		"192.0.0.192":        "Oracle Classic: instance metadata",
		"fd00:c1::a9fe:a9fe": "Oracle: instance metadata",
		"169.254.0.23":       "Tencent: instance metadata",
		"169.254.42.42":      "Scaleway: instance metadata",
		"fd00:42::42":        "Scaleway: instance metadata",
		"fd00:a9fe:a9fe::1":  "Linode: instance metadata",
		"fe80::a9fe:a9fe":    "OpenStack: instance metadata",
		"100.64.0.1":         "carriers and overlay networks",
	} {
		for _, form := range []string{ip, "::ffff:" + ip} {
			at, err := netip.ParseAddr(form)
			if err != nil {
				continue // only IPv4 is wrapped
			}
			var refused *netguard.RefusedError
			if err := (netguard.Rules{}).Check(netip.AddrPortFrom(at, 80)); !errors.As(err, &refused) {
				t.Errorf("%s (%s) passes: %v", form, whose, err)
			}
		}
	}
}

// at is an address with the port that most tests ask for.
func at(ip string) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr(ip), 80) }

func TestTheInstallationIsRefused(t *testing.T) {
	t.Parallel()
	own := &netguard.Services{}
	rules := netguard.Rules{Own: own}
	if err := rules.Check(at("8.8.4.4")); err != nil {
		t.Errorf("before it is known: %v", err)
	}
	services := []netip.AddrPort{
		netip.MustParseAddrPort("[::ffff:8.8.4.4]:5432"), netip.MustParseAddrPort("[2606:4700::5]:6379"),
		netip.MustParseAddrPort("10.0.0.5:5432"), netip.MustParseAddrPort("127.0.0.1:2376"),
	}
	own.Set(services)
	check := func(when string, pass map[string]bool) {
		t.Helper()
		for address, passes := range pass {
			if err := rules.Check(netip.MustParseAddrPort(address)); (err == nil) != passes {
				t.Errorf("%s: %s: %v", when, address, err)
			}
		}
	}
	check("without exemptions", map[string]bool{
		"8.8.4.4:5432": false, "8.8.4.4:80": false, "[::ffff:8.8.4.4]:80": false, "[2606:4700::5]:6379": false, "8.8.8.8:5432": true,
	})
	rules.Allow = []netip.Prefix{
		netip.MustParsePrefix("8.8.4.4/32"), netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8"),
		netip.MustParsePrefix("0.0.0.0/32"), netip.MustParsePrefix("::1/128"),
	}
	check("with all around it allowed", map[string]bool{
		"8.8.4.4:5432": false, "8.8.4.4:80": true, "10.0.0.5:5432": false, "[::ffff:10.0.0.5]:5432": false, "10.0.0.5:80": true,
		"10.0.0.6:5432": true, "127.0.0.1:2376": false, "127.9.9.9:2376": false, "0.0.0.0:2376": false, "[::1]:2376": false,
		"127.0.0.1:80": true,
	})
	rules.Allow = nil
	own.Set(nil)
	check("when it is none any more", map[string]bool{"8.8.4.4:5432": true})
}

func TestPublicAddressesPass(t *testing.T) {
	t.Parallel()
	for _, ip := range []string{"1.1.1.1", "8.8.8.8", "172.32.0.1", "100.128.0.1", "::ffff:8.8.8.8", "2606:4700::1111"} {
		if err := (netguard.Rules{}).Check(at(ip)); err != nil {
			t.Errorf("%s: %v", ip, err)
		}
	}
}

func TestTheOperatorDecides(t *testing.T) {
	t.Parallel()
	rules := netguard.Rules{
		Allow: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("8.8.8.8/32")},
		Deny:  []netip.Prefix{netip.MustParsePrefix("8.8.0.0/16"), netip.MustParsePrefix("10.1.9.0/24")},
	}
	for ip, pass := range map[string]bool{
		"10.1.2.3": true, "::ffff:10.1.2.3": true, "10.2.0.1": false, "8.9.0.1": true,
		"10.1.9.1": false, "::ffff:10.1.9.1": false, "8.8.8.8": false, "8.8.8.9": false, // deny comes first
	} {
		if err := rules.Check(at(ip)); (err == nil) != pass {
			t.Errorf("%s: %v", ip, err)
		}
		if err := rules.CheckNamed(netip.MustParseAddr(ip)); (err == nil) != pass {
			t.Errorf("%s, named: %v", ip, err)
		}
	}
	if err := rules.Check(netip.AddrPort{}); err == nil {
		t.Error("no address at all passed")
	}
}

// TestRefusalsNameNoAddress: they are shown to whoever named the host.
func TestRefusalsNameNoAddress(t *testing.T) {
	t.Parallel()
	own := &netguard.Services{}
	own.Set([]netip.AddrPort{at("9.9.9.9")})
	rules := netguard.Rules{Own: own, Deny: []netip.Prefix{netip.MustParsePrefix("8.8.0.0/16")}}
	for _, ip := range []string{"10.77.3.14", "8.8.8.8", "9.9.9.9"} {
		if err := rules.Check(at(ip)); err == nil || strings.Contains(err.Error(), ip) {
			t.Errorf("%s: %v", ip, err)
		}
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
		if err := (netguard.Rules{}).Check(netip.AddrPortFrom(p.Addr(), 80)); err == nil {
			t.Errorf("%v of this machine passed", p.Addr())
		}
	}
}
