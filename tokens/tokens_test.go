package tokens_test

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sandyard/tokens"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTokensOpenOneThing(t *testing.T) {
	t.Parallel()
	s, other := tokens.New("one secret"), tokens.New("another secret")
	for name, token := range map[string]string{
		"another sandbox's": s.Access("sb2"), "another use's": s.Traffic("sb1"), "another installation's": other.Access("sb1"),
		"none": "", "its prefix": "ea_", "cut": s.Access("sb1")[:40], "longer": s.Access("sb1") + "0",
	} {
		if s.IsAccess("sb1", token) {
			t.Errorf("the access token may be %s", name)
		}
	}
	if !s.IsAccess("sb1", s.Access("sb1")) || !s.IsTraffic("sb1", s.Traffic("sb1")) {
		t.Error("a token is not taken by who made it")
	}
	if s.IsTraffic("sb1", s.Access("sb1")) || s.IsTraffic("sb1", "") {
		t.Error("an access token opens ports")
	}
}

func TestGatewayPass(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	s := tokens.New("one secret")
	pass := s.Gateway("sb1", 8000, now.Add(time.Minute))
	if box, port, ok := s.ReadGateway(pass, now); !ok || box != "sb1" || port != 8000 {
		t.Fatalf("read %q %d %v", box, port, ok)
	}
	for name, bad := range map[string]string{
		"another sandbox": strings.Replace(pass, "sb1", "sb2", 1), "another port": strings.Replace(pass, "8000", "8001", 1),
		"a later end": strings.Replace(pass, ".1000060.", ".1000061.", 1), "another secret": tokens.New("x").Gateway("sb1", 8000, now.Add(time.Minute)),
		"nothing": "", "dots": "...", "a traffic token": s.Traffic("sb1"),
	} {
		if _, _, ok := s.ReadGateway(bad, now); ok {
			t.Errorf("a pass with %s is valid", name)
		}
	}
	if _, _, ok := s.ReadGateway(pass, now.Add(time.Minute+time.Second)); ok {
		t.Error("a pass is valid after its end")
	}
}

func TestSecretsDiffer(t *testing.T) {
	t.Parallel()
	if a, b := tokens.NewSecret(), tokens.NewSecret(); a == b || len(a) < 32 {
		t.Errorf("secrets %q and %q", a, b)
	}
}
