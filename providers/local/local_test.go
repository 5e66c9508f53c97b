package local_test

import (
	"testing"

	"sandyard/providers"
	"sandyard/providers/providertest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	providertest.Run(t, func(t *testing.T) providers.Provider { t.Helper(); return y.open(t) }, providertest.Options{
		Image:  image,
		Script: providertest.Bash(),
		System: true,
		Limits: true,
	})
}

func TestHello(t *testing.T) {
	t.Parallel()
	p := newYard(t).open(t)
	_, box := create(t, p)
	t.Log(shell(t, box, "id; ls -la / /dev; cat /proc/self/mounts /proc/self/cgroup; ps ax; env; grep -E 'Cap|Sec|NoNew' /proc/self/status; ls /sys/class/net"))
}
