package docker_test

import (
	"testing"

	"sandyard/providers"
	"sandyard/providers/docker"
)

func benchProvider(b *testing.B) *docker.Provider {
	b.Helper()
	return newYard(b).open(b)
}

func BenchmarkLifecycle(b *testing.B) {
	p := benchProvider(b)
	for b.Loop() {
		id, _ := create(b, p)
		if err := p.Delete(b.Context(), id); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRun(b *testing.B) {
	_, box := create(b, benchProvider(b))
	for b.Loop() {
		name := newID()
		if _, err := box.Run(b.Context(), providers.Command{Name: name, Argv: []string{"true"}}); err != nil {
			b.Fatal(err)
		}
		if err := box.Forget(b.Context(), name); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWriteAndReadFile(b *testing.B) {
	_, box := create(b, benchProvider(b))
	data := make([]byte, 1024)
	for b.Loop() {
		if _, err := box.WriteFile(b.Context(), "f", data, 0); err != nil {
			b.Fatal(err)
		}
		if _, err := box.ReadFile(b.Context(), "f", 1024); err != nil {
			b.Fatal(err)
		}
	}
}
