//go:build chaos

package chaos

import "fmt"

// host is what the sandboxes of a run live on: an engine of its own, or this machine.
type host interface {
	// env is what processes need to know of it, with the directory of their wires.
	env(wires string) []string
	// socket is its server's, which processes reach by a wire, or empty.
	socket() string
	// deck are the faults that it can have beside those of all runs.
	deck() []faultKind
	// strike does one of these, and returns when it is made good, with what was hit.
	strike(f fault) (string, error)
	// sandboxes tells in which state each is.
	sandboxes() (map[string]string, error)
	// resources lists what it has of the fleet; strays what nothing should have left.
	resources() ([]string, error)
	strays() ([]string, error)
	// images lists those that builds have left, and users how many resources are made from these.
	images() ([]string, error)
	users() (int, error)
	// figures reads its own into the ledger.
	figures(l ledger) error
	Close()
}

// The providers that sandboxes can be had from.
const (
	onDocker = "docker"
	onLocal  = "local"
)

func startHost(provider, dir string, liveRestore bool) (host, error) {
	switch provider {
	case onDocker:
		return startEngine(liveRestore)
	case onLocal:
		return openYard(dir)
	}
	return nil, fmt.Errorf("there are the providers %s and %s, and not %q", onDocker, onLocal, provider)
}
