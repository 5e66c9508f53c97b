package webhook

import (
	"net/netip"
	"testing"

	"sandyard/netguard"
)

func TestSpecialAddressesAreRefused(t *testing.T) {
	t.Parallel()
	for _, a := range []string{
		"127.0.0.1", "127.8.8.8", "10.0.0.1", "172.16.3.4", "172.31.255.255", "192.168.1.1", "169.254.169.254", "100.64.0.1",
		"0.0.0.0", "255.255.255.255", "224.0.0.1", "240.0.0.1", "198.18.0.1", "192.0.2.1", "::1", "::", "fe80::1", "fe80::1%eth0",
		"fd00::1", "fc00::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "64:ff9b::7f00:1",
		"2002:7f00:1::", "2001:db8::1", "100::1",
	} {
		if err := checkAddress(netip.AddrPortFrom(netip.MustParseAddr(a), 80).String(), netguard.Rules{}); err == nil {
			t.Errorf("%s would be dialled", a)
		}
	}
	for _, a := range []string{"1.1.1.1", "93.184.216.34", "172.15.0.1", "172.32.0.1", "100.128.0.1", "2606:4700::1"} {
		if err := checkAddress(netip.AddrPortFrom(netip.MustParseAddr(a), 443).String(), netguard.Rules{}); err != nil {
			t.Errorf("%s is refused: %v", a, err)
		}
	}
	allow := netguard.Rules{Allow: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}}
	if err := checkAddress("10.1.2.3:80", allow); err != nil {
		t.Errorf("an allowed address is refused: %v", err)
	}
	if err := checkAddress("10.2.2.3:80", allow); err == nil {
		t.Error("an address beside the allowed ones would be dialled")
	}
	if err := checkAddress("nonsense", allow); err == nil {
		t.Error("an unreadable address would be dialled")
	}
}
