//go:build chaos

package chaos

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sandyard/dev/testenv"
)

const (
	fleet = "chaos"
	image = "sandyard/python:default"
)

// engine is the Docker engine of this run alone, so that it can be restarted.
type engine struct {
	*testenv.Engine

	liveRestore bool
}

func startEngine(liveRestore bool) (*engine, error) {
	own, err := testenv.StartEngine(testenv.EngineOptions{LiveRestore: liveRestore})
	if err != nil {
		return nil, err
	}
	e := &engine{own, liveRestore}
	load := exec.Command("sh", "-c", "docker save "+image+" | docker -H "+own.Host+" load")
	if out, err := load.CombinedOutput(); err != nil {
		own.Close()
		return nil, fmt.Errorf("load %s, which make image makes: %w: %s", image, err, out)
	}
	return e, nil
}

func (e *engine) socket() string { return strings.TrimPrefix(e.Host, "unix://") }

func (e *engine) env(wires string) []string {
	return []string{"DOCKER_HOST=unix://" + filepath.Join(wires, dockerSocket)}
}

func (e *engine) deck() []faultKind {
	return []faultKind{killSandbox, killSandbox, plantOrphan, restartEngine, crashEngine, emptyEngine}
}

func (e *engine) strike(f fault) (string, error) {
	switch f.kind {
	case killSandbox:
		return e.killSandbox(f.target)
	case plantOrphan:
		return e.plant(f.target)
	default:
		return "", e.restart(f)
	}
}

func (e *engine) figures(l ledger) error {
	if pid := e.pid(); pid != "" {
		l.add("engine: file descriptors", "", float64(len(links(pid))), 30, 0.2)
	}
	found, err := e.resources()
	if err != nil {
		return err
	}
	l.add("engine: containers", "", float64(len(found)), 12, 0.5)
	built, err := e.images()
	l.add("engine: images of builds", "", float64(len(built)), 12, 0.5) // those nobody needs go once a minute
	return err
}

func (e *engine) docker(args ...string) ([]string, error) {
	out, err := exec.Command("docker", append([]string{"-H", e.Host}, args...)...).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("docker %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return strings.Fields(string(out)), nil
}

// resources lists what the engine has of the fleet, as name=state.
func (e *engine) resources() ([]string, error) {
	return e.docker("ps", "-a", "--filter", "label=sandyard.fleet="+fleet, "--format", "{{.Names}}={{.State}}")
}

// sandboxes tells in which state each sandbox's container is.
func (e *engine) sandboxes() (map[string]string, error) {
	all, err := e.resources()
	states := map[string]string{}
	for _, one := range all {
		name, state, _ := strings.Cut(one, "=")
		if id := strings.TrimPrefix(name, "sandyard-"); !strings.Contains(id, "-") {
			states[id] = state
		}
	}
	return states, err
}

// killSandbox kills the container of one of the sandboxes.
func (e *engine) killSandbox(target int) (string, error) {
	all, err := e.docker("ps", "--filter", "label=sandyard.fleet="+fleet, "--format", "{{.Names}}")
	if err != nil || len(all) == 0 {
		return "nothing", err
	}
	name := all[target%len(all)]
	if _, err := e.docker("kill", name); err != nil { // it has just ended by itself
		return "nothing", nil
	}
	return name, nil
}

// plant leaves a container that carries the fleet's name and belongs to no sandbox.
func (e *engine) plant(target int) (string, error) {
	id := fmt.Sprintf("sborphan%d", target)
	_, err := e.docker("run", "-d", "--network=none", "--label=sandyard.fleet="+fleet, "--label=sandyard.sandbox="+id,
		"--name=sandyard-"+id, "--entrypoint=sleep", image, "1000")
	return id, err
}

// images lists also those that have lost their names.
func (e *engine) images() ([]string, error) {
	return e.docker("images", "-a", "--filter", "label=sandyard.fleet="+fleet, "--format", "{{.Repository}}:{{.Tag}}@{{.ID}}")
}

// users are members of the pool, too.
func (e *engine) users() (int, error) {
	all, err := e.docker("ps", "-a", "--filter", "label=sandyard.fleet="+fleet, "--format", "{{.Image}}")
	return len(slices.DeleteFunc(all, func(image string) bool { return !strings.HasPrefix(image, "sandyard/build:") })), err
}

// restart ends the engine, or kills it, and starts it again after a while.
func (e *engine) restart(f fault) error {
	down := func() { <-time.After(f.lasts) }
	switch f.kind {
	case crashEngine:
		return e.Crash(down)
	case emptyEngine:
		if err := e.Reconfigure(testenv.EngineOptions{}); err != nil {
			return err
		}
		err := e.Restart(down)
		return errors.Join(err, e.Reconfigure(testenv.EngineOptions{LiveRestore: e.liveRestore}))
	default:
		return e.Restart(down)
	}
}

// strays are the networks and volumes that nothing should have left.
func (e *engine) strays() ([]string, error) {
	networks, err := e.docker("network", "ls", "--filter", "name=sandyard", "--format", "network/{{.Name}}")
	if err != nil {
		return nil, err
	}
	volumes, err := e.docker("volume", "ls", "--filter", "dangling=true", "--format", "volume/{{.Name}}")
	if err != nil {
		return nil, err
	}
	for _, v := range volumes {
		if !strings.HasPrefix(v, "volume/sandyard-guest-") { // the guest's program, one for all sandboxes
			networks = append(networks, v)
		}
	}
	return networks, nil
}
