package app

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"sandyard/netguard"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOwnServices(t *testing.T) {
	t.Parallel()
	c := Worker{
		Common:     Common{DatabaseURL: "host=db.test,/run/postgresql,192.0.2.7 user=u dbname=d", RedisURL: "rediss://:secret@cache.test:6380/1"},
		DockerHost: "tcp://engine.test:2376",
	}
	got, err := c.ownServices("http://[2001:db8::5]:8082")
	want := []service{{"192.0.2.7", 5432}, {"2001:db8::5", 8082}, {"cache.test", 6380}, {"db.test", 5432}, {"engine.test", 2376}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	c = Worker{Common: Common{DatabaseURL: "host=/run/postgresql dbname=d", RedisURL: "unix:///run/redis.sock"}, DockerHost: "unix:///var/run/docker.sock"}
	if got, err := c.ownServices(""); err != nil || len(got) > 0 {
		t.Errorf("of sockets: %v, %v", got, err)
	}
}

// TestOwnAddressesFollow has hosts that move, fall silent and go.
func TestOwnAddressesFollow(t *testing.T) {
	t.Parallel()
	names := map[string]string{"db.test": "8.8.1.1", "node1.test": "8.8.2.1"}
	nodes, trouble := []service{{"node1.test", 8082}}, error(nil)
	o := &own{
		services: []service{{"db.test", 5432}}, found: &netguard.Services{}, log: slog.New(slog.DiscardHandler), known: map[string][]netip.Addr{},
		gateways: func(context.Context) ([]service, error) { return nodes, trouble },
		lookup: func(_ context.Context, host string) ([]netip.Addr, error) {
			if names[host] == "" {
				return nil, errors.New("no such host")
			}
			return []netip.Addr{netip.MustParseAddr(names[host])}, nil
		},
	}
	closed := func(when string, want ...string) {
		t.Helper()
		o.look(t.Context())
		for _, ip := range []string{"8.8.1.1", "8.8.1.2", "8.8.2.1"} {
			if err := (netguard.Rules{Own: o.found}).Check(netip.AddrPortFrom(netip.MustParseAddr(ip), 80)); (err != nil) != slices.Contains(want, ip) {
				t.Errorf("%s: %s: %v", when, ip, err)
			}
		}
	}
	closed("at first", "8.8.1.1", "8.8.2.1")
	names["db.test"] = ""
	closed("while its name is not answered", "8.8.1.1", "8.8.2.1")
	names["db.test"] = "8.8.1.2"
	closed("when it has moved", "8.8.1.2", "8.8.2.1")
	nodes, trouble = nil, errors.New("no answer")
	closed("while the nodes cannot be read", "8.8.1.2", "8.8.2.1")
	trouble = nil
	closed("when the node is gone", "8.8.1.2")
}
