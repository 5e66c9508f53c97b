//go:build chaos

package chaos

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

// proofLength is how long each of the crippled systems is afflicted, with the faults that its safety is there for.
const proofLength = 40 * time.Second

// TestProof runs the soak on programs that lack one safety each, which it must find out.
func TestProof(t *testing.T) {
	for _, safety := range []struct {
		name, check string
		kinds       []faultKind // the faults that it is there for
		long        bool        // it is there for jobs that are still under way when a stopped worker goes on
	}{
		{"fence", checkFence, []faultKind{stopWorker}, true},
		{"sweep", checkEnds, []faultKind{killWorker, killAPI}, false},
		{"reconcile", checkRows, []faultKind{killSandbox, plantOrphan, killWorker}, false},
		{"spool", checkEffect, []faultKind{killWorker, stopWorker}, false},
	} {
		t.Run(safety.name, func(t *testing.T) {
			seed := *seedFlag
			if seed == 0 {
				seed = 1
			}
			r := &run{
				t: t, seed: seed, length: proofLength, bin: build(t, safety.name), kinds: safety.kinds, patience: 40 * time.Second,
				brief: true, long: safety.long,
			}
			found, err := r.do(t.Context())
			if r.sys != nil {
				defer os.RemoveAll(r.sys.dir)
			}
			if err != nil && len(found) == 0 {
				t.Fatalf("without %s the soak could not be finished: %v", safety.name, err)
			}
			byCheck := map[string]int{}
			example := ""
			for _, f := range found {
				if byCheck[f.check]++; f.check == safety.check && example == "" {
					example = f.text
				}
			}
			t.Logf("without %s: %s", safety.name, counts(byCheck))
			if example == "" {
				t.Fatalf("without %s nothing broke of %q: %v", safety.name, safety.check, errors.Join(err))
			}
			t.Logf("such as: %s", strings.TrimSpace(example))
		})
	}
}
