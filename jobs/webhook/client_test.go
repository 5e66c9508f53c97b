package webhook

import (
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"sandyard/netguard"
)

func TestCallbacksThatMayNeverBeCalledAreRefused(t *testing.T) {
	t.Parallel()
	allow := netguard.Rules{Allow: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("127.0.0.0/8")}}
	for raw, rules := range map[string]netguard.Rules{
		"http://127.0.0.1:18999/x": {}, "http://169.254.169.254/x": {}, "https://[::1]/": {}, "http://[::ffff:10.0.0.1]/": {},
		"http://localhost/": {}, "http://LOCALHOST.:80/": {}, "http://a.localhost/": {}, "http://10.2.0.1/": allow,
		"http://2130706433/": {}, "http://127.1/": {}, "http://0x7f.1/": {}, "http://0177.0.0.1/": {}, "http://[fe80::1%25eth0]/": {},
		"ftp://example.com/": {}, "example.com": {}, "http:///x": {}, "http://:80/": {}, "javascript:alert(1)": {},
		"http://user@example.com/": {}, "http://user:pw@example.com/": {}, "http://example.com:0/": {}, "http://example.com:65536/": {},
		"http://example.com:/": {}, "http://example.com:x/": {}, "http://./": {},
		"http://example.com/" + strings.Repeat("a", maxURL): {},
	} {
		err := CheckURL(raw, rules)
		if err == nil {
			t.Errorf("%.60s is taken", raw)
			continue
		}
		if strings.Contains(raw, "127.0.0.1") && !strings.Contains(err.Error(), "WEBHOOK_ALLOW_CIDRS") {
			t.Errorf("%s: %v says not what to do", raw, err)
		}
	}
	for raw, rules := range map[string]netguard.Rules{
		"": {}, "https://example.com": {}, "https://example.com:8443/hook?token=1#x": {}, "http://93.184.216.34/": {},
		"http://[2606:4700::1]:80/": {}, "http://hook.internal/": {}, "http://10.1.2.3/": allow, "http://localhost:1/": allow,
	} {
		if err := CheckURL(raw, rules); err != nil {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

// TestUndeliveredNamesNothingInside: the errors are those that the client makes of names and addresses of each kind.
func TestUndeliveredNamesNothingInside(t *testing.T) {
	t.Parallel()
	client := guardedClient(netguard.Rules{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	for url, want := range map[string]string{
		"http://10.0.0.1/?token=s3cret":         "the address is not public",
		"http://nowhere.invalid./?token=s3cret": "has no address",
		"http://127.0.0.1:1/?token=s3cret":      "refused the connection",
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err == nil {
			_ = resp.Body.Close()
			t.Fatalf("%s answers", url)
		}
		told := noAnswer(err)
		for _, secret := range []string{"10.0.0.1", "127.0.0.1", ":53", "s3cret", "lookup"} {
			if strings.Contains(told.Error(), secret) {
				t.Errorf("%s: the tenant reads %q", url, told)
			}
		}
		if !strings.Contains(told.Error(), want) {
			t.Errorf("%s: the tenant reads %q, not %q", url, told, want)
		}
		if cause := errors.Unwrap(told); cause == nil || strings.Contains(cause.Error(), "s3cret") {
			t.Errorf("%s: the log reads %v", url, cause)
		}
	}
}
