package app

import (
	"testing"

	"sandyard/jobs/worker"
	"sandyard/providers"
)

func TestRoomOfAMachine(t *testing.T) {
	t.Parallel()
	large := providers.Host{CPUs: 8, MemoryMB: 32768, Pids: 32768}
	for name, c := range map[string]struct {
		host         providers.Host
		cpus, mb, ps string
		want         worker.Room
	}{
		"by the machine":    {large, "0", "0", "0", worker.Room{CPUs: 128, MemoryMB: 28672, Pids: 24576}},
		"a small one":       {providers.Host{CPUs: 1, MemoryMB: 2048, Pids: 4096}, "0", "0", "0", worker.Room{CPUs: 16, MemoryMB: 1536, Pids: 3072}},
		"a tiny one":        {providers.Host{CPUs: 1, MemoryMB: 256, Pids: 4096}, "0", "0", "0", worker.Room{CPUs: 16, MemoryMB: 1, Pids: 3072}},
		"as operators say":  {large, "2.5", "65536", "100", worker.Room{CPUs: 2.5, MemoryMB: 65536, Pids: 100}},
		"without limits":    {large, "unlimited", "unlimited", "unlimited", worker.Room{}},
		"nothing is known":  {providers.Host{}, "0", "0", "0", worker.Room{}},
		"one of them alone": {large, "0", "unlimited", "0", worker.Room{CPUs: 128, Pids: 24576}},
	} {
		var w Worker
		for text, to := range map[*string]*Amount{&c.cpus: &w.MaxCPUs, &c.mb: &w.MaxMemoryMB, &c.ps: &w.MaxPids} {
			if err := to.UnmarshalText([]byte(*text)); err != nil {
				t.Fatal(err)
			}
		}
		if got := w.room(c.host); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	for _, text := range []string{"", "-1", "none", "NaN", "Inf", "1e999"} {
		if new(Amount).UnmarshalText([]byte(text)) == nil {
			t.Errorf("%q is an amount", text)
		}
	}
}
