package meter_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"sandyard/providers"
	"sandyard/providers/meter"
)

// TestRead reads groups as the kernel shows them: of version 2, of version 1 with hierarchies of their own, and with
// cpuacct in that of cpu.
func TestRead(t *testing.T) {
	t.Parallel()
	const memory = "cache 3000\nrss 9000\ntotal_cache 4000\ntotal_shmem 1000\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  providers.Used
	}{
		"unified": {map[string]string{
			"docker/x/cpu.stat": "usage_usec 2500000\nuser_usec 1\n", "docker/x/memory.current": "10000\n",
			"docker/x/memory.stat": "anon 1\nfile 4000\nshmem 1000\n", "docker/x/memory.peak": "12000\n",
		}, providers.Used{CPU: 2500 * time.Millisecond, Memory: 7000, MemoryPeak: 12000, Cache: 3000, Files: 1000}},
		"unified, without a peak": {map[string]string{
			"docker/x/cpu.stat": "usage_usec 7\n", "docker/x/memory.current": "10000\n",
		}, providers.Used{CPU: 7 * time.Microsecond, Memory: 10000, MemoryPeak: 10000}},
		"unified, without memory": {map[string]string{"docker/x/cpu.stat": "usage_usec 7\n"}, providers.Used{CPU: 7 * time.Microsecond}},
		"separate": {map[string]string{
			"cpuacct/docker/x/cpuacct.usage": "2500000000\n", "memory/docker/x/memory.usage_in_bytes": "10000\n",
			"memory/docker/x/memory.stat": memory, "memory/docker/x/memory.max_usage_in_bytes": "12000\n",
		}, providers.Used{CPU: 2500 * time.Millisecond, Memory: 7000, MemoryPeak: 12000, Cache: 3000, Files: 1000}},
		"together": {map[string]string{"cpu/docker/x/cpuacct.usage": "5\n"}, providers.Used{CPU: 5}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			for file, text := range c.files {
				path := filepath.Join(root, file)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if got, ok := meter.Root(root).Read("docker/x"); !ok || got != c.want {
				t.Errorf("read %+v, %v, want %+v", got, ok, c.want)
			}
			if got, ok := meter.Root(root).Read("docker/y"); ok {
				t.Errorf("a group that is not there is %+v", got)
			}
		})
	}
}
