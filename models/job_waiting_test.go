package models

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// TestKnownQueuesAreBounded: of more tenants than are known at once the one that submits all the while is held to its
// limit without being counted again; those that were silent longest are forgotten.
func TestKnownQueuesAreBounded(t *testing.T) {
	t.Parallel()
	counts := map[string]int{}
	a := newAdmission("", func(_ context.Context, tenant string) (Waiting, error) {
		counts[tenant]++
		return Waiting{MaxQueued: maxDepths, MaxQueuedBytes: 1 << 30}, nil
	})
	known := a.of("busy")
	for n := range 2 * maxDepths {
		if _, err := a.admit(t.Context(), fmt.Sprint(n), load{1, 1}); err != nil {
			t.Fatal(err)
		}
		if n%(maxDepths/2) != 0 {
			continue
		}
		if a.of("busy") != known {
			t.Fatalf("a tenant that submits is forgotten behind %d others", n)
		}
	}
	if n := a.tenants.Len(); n != maxDepths {
		t.Errorf("%d queues are known, want %d", n, maxDepths)
	}
	if _, err := a.admit(t.Context(), "0", load{1, 1}); err != nil || counts["0"] != 2 {
		t.Errorf("a tenant that was silent for long was counted %d times: %v", counts["0"], err)
	}
	var full *LimitError
	if _, err := a.admit(t.Context(), "busy", load{maxDepths + 1, 1}); !errors.As(err, &full) {
		t.Errorf("more than may wait: %v", err)
	}
}
