package docker_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"sandyard/dev/abbench"
	"sandyard/providers"
	"sandyard/providers/docker"
)

// BenchmarkGVisor measures what gVisor's kernel costs: sandboxes under runsc beside those under runc, of the same provider
// on the same engine.
func BenchmarkGVisor(b *testing.B) {
	if _, err := exec.LookPath("runsc"); err != nil || os.Geteuid() != 0 {
		fmt.Fprintf(os.Stderr, "gvisor is not measured: it takes root and runsc (scripts/setup.sh test): %v\n", err)
		b.Skip()
	}
	y := newGVisorYard(b)
	under := func(runtime string) *docker.Provider {
		return y.openWith(b, docker.Config{Guest: guestFiles(b), Runtime: runtime})
	}
	ours, base := under("runsc"), under("runc")
	b.Run("create/vs runc", func(b *testing.B) {
		abbench.Latency(b, abbench.Turns{Rounds: 10, Ours: 1, Base: 1}, creates(ours), creates(base))
	})
	_, slow := create(b, ours)
	_, fast := create(b, base)
	b.Run("exec true/vs runc", func(b *testing.B) {
		abbench.Latency(b, abbench.Turns{Rounds: 20, Ours: 3, Base: 3}, runs(slow, "true"), runs(fast, "true"))
	})
	b.Run("write a file of 1 KiB/vs runc", func(b *testing.B) {
		abbench.Latency(b, abbench.Turns{Rounds: 20, Ours: 3, Base: 3}, writes(slow), writes(fast))
	})
	b.Run("python counts to 5 million/vs runc", func(b *testing.B) {
		const program = "for i in range(5_000_000): pass"
		abbench.Latency(b, abbench.Turns{Rounds: 5, Ours: 1, Base: 1}, runs(slow, "python3", "-c", program), runs(fast, "python3", "-c", program))
	})
	b.Run("100,000 system calls/vs runc", func(b *testing.B) {
		dd := []string{"dd", "if=/dev/zero", "of=/dev/null", "bs=1", "count=50000", "status=none"} // a read and a write each
		abbench.Latency(b, abbench.Turns{Rounds: 5, Ours: 1, Base: 1}, runs(slow, dd...), runs(fast, dd...))
	})
	b.Run("memory of an idle sandbox/vs runc", func(b *testing.B) {
		for who, p := range map[string]*docker.Provider{"ours": ours, "base": base} {
			b.ReportMetric(y.idleMemory(b, p), who+"-p50-MiB")
		}
		b.ReportMetric(0, "ns/op")
	})
}

// creates makes a sandbox, and removes it outside the time that counts.
func creates(p *docker.Provider) abbench.Way {
	return func() (time.Duration, error) {
		id, began := newID(), time.Now()
		_, err := p.Create(context.Background(), providers.Spec{ID: id, Image: image})
		took := time.Since(began)
		if err != nil {
			return took, err
		}
		return took, p.Delete(context.Background(), id)
	}
}

func runs(box providers.Sandbox, argv ...string) abbench.Way {
	return abbench.Timed(func() error {
		name := newID()
		res, err := box.Run(context.Background(), providers.Command{Name: name, Argv: argv, Timeout: time.Minute})
		if err == nil && res.ExitCode != 0 {
			err = fmt.Errorf("%q: exit code %d: %s", argv, res.ExitCode, res.Stderr)
		}
		return err
	})
}

func writes(box providers.Sandbox) abbench.Way {
	data := make([]byte, 1024)
	return abbench.Timed(func() error {
		_, err := box.WriteFile(context.Background(), "f", data, 0)
		return err
	})
}

// idleMemory is the median of what the containers of sandboxes are charged for that have run one command.
func (y *yard) idleMemory(b *testing.B, p *docker.Provider) float64 {
	b.Helper()
	const each = 3
	var all []float64
	for range each {
		id, box := create(b, p)
		if _, err := runs(box, "true")(); err != nil {
			b.Fatal(err)
		}
		rested(b)
		all = append(all, y.charged(b, "sandyard-"+id))
	}
	slices.Sort(all)
	return all[each/2]
}
