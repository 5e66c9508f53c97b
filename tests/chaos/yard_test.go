//go:build chaos

package chaos

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"sandyard/providers"
	"sandyard/providers/local"
	"sandyard/providers/local/cgroup"
	"sandyard/providers/local/shim"
)

// yard is this machine as the host of a run's sandboxes, in a data directory of its own.
type yard struct {
	dir      string
	provider *local.Provider // that of the test, which plants and looks
}

// openYard needs root, and the image that make tree unpacks.
func openYard(dir string) (*yard, error) {
	images, err := filepath.Abs("../../.sandyard/local/images")
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(images, url.QueryEscape(image))); err != nil {
		return nil, fmt.Errorf("no image for local sandboxes, which make tree unpacks: %w", err)
	}
	y := &yard{dir: filepath.Join(dir, "local")}
	if err := os.Mkdir(y.dir, 0o755); err != nil {
		return nil, err
	}
	return y, os.Symlink(images, filepath.Join(y.dir, "images"))
}

func (y *yard) env(string) []string {
	return []string{"SANDBOX_PROVIDER=local", "LOCAL_DIR=" + y.dir}
}

func (y *yard) socket() string { return "" }

func (y *yard) deck() []faultKind {
	return []faultKind{killSandbox, killSandbox, killSandbox, plantOrphan, plantOrphan, stopSandbox, stopSandbox, killAllSandboxes}
}

// opened is the test's own provider. It is not there before the workers are, so that these make what is missing.
func (y *yard) opened() (*local.Provider, error) {
	if y.provider != nil {
		return y.provider, nil
	}
	programs, err := filepath.Glob(filepath.Join(y.dir, "programs", "*"))
	if err != nil || len(programs) != 1 {
		return nil, errors.Join(err, fmt.Errorf("the workers have made the programs %v", programs))
	}
	y.provider, err = local.New(context.Background(), local.Config{Dir: y.dir, Fleet: fleet, GuestPath: programs[0]})
	return y.provider, err
}

func (y *yard) list() ([]providers.Instance, error) {
	p, err := y.opened()
	if err != nil {
		return nil, err
	}
	return p.List(context.Background())
}

// sandboxes also looks that each that lives has a control group: else their absence at the end would say nothing.
func (y *yard) sandboxes() (map[string]string, error) {
	all, err := y.list()
	if err != nil {
		return nil, err
	}
	groups, err := y.groups()
	if err != nil {
		return nil, err
	}
	states := map[string]string{}
	for _, i := range all {
		states[i.ID] = string(i.State)
		if i.State != providers.StateStopped && !slices.ContainsFunc(groups, func(g string) bool { return strings.HasSuffix(g, "-"+i.ID) }) {
			states[i.ID] += " without a control group"
		}
	}
	return states, nil
}

// fleetDir holds the directories of the sandboxes.
func (y *yard) fleetDir() string {
	sum := sha256.Sum256([]byte(fleet))
	return filepath.Join(y.dir, "fleets", hex.EncodeToString(sum[:8]))
}

// groups lists the control groups of the yard's sandboxes, in all hierarchies.
func (y *yard) groups() ([]string, error) {
	sum := sha256.Sum256([]byte(y.fleetDir()))
	name := "sandyard-" + hex.EncodeToString(sum[:8]) + "-*"
	unified, err := filepath.Glob(filepath.Join(cgroup.Root, name))
	separate, err2 := filepath.Glob(filepath.Join(cgroup.Root, "*", name))
	return append(unified, separate...), errors.Join(err, err2)
}

// resources are directories, control groups and processes.
func (y *yard) resources() ([]string, error) {
	var all []string
	entries, err := os.ReadDir(y.fleetDir())
	for _, e := range entries {
		all = append(all, "directory/"+e.Name())
	}
	groups, err2 := y.groups()
	return append(append(all, groups...), running(y.dir)...), errors.Join(err, err2)
}

func (y *yard) images() ([]string, error) { return nil, nil }
func (y *yard) users() (int, error)       { return 0, nil }

// strays are drafts of what is made in one step.
func (y *yard) strays() ([]string, error) {
	var all []string
	for _, pattern := range []string{"programs/.*", "id-*"} {
		found, err := filepath.Glob(filepath.Join(y.dir, pattern))
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

func (y *yard) strike(f fault) (string, error) {
	if f.kind == plantOrphan {
		return y.plant(f.target)
	}
	all, err := y.list()
	all = slices.DeleteFunc(all, func(i providers.Instance) bool { return i.State == providers.StateStopped })
	switch {
	case err != nil || len(all) == 0:
		return "nothing", err
	case f.kind == killSandbox:
		return y.kill(all[f.target%len(all)], f.target%2 == 0), nil
	case f.kind == stopSandbox:
		return y.stop(all[f.target%len(all)], f.lasts), nil
	}
	var hit []string
	for _, i := range all {
		hit = append(hit, y.kill(i, f.target%2 == 0))
	}
	return strings.Join(hit, ", "), nil
}

// kill ends a sandbox behind our back: its shim, or its guest.
func (y *yard) kill(i providers.Instance, theShim bool) string {
	pid, alive := shim.Alive(i.Ref)
	if !theShim {
		pid = childOf(pid)
	}
	if !alive || pid == 0 || syscall.Kill(pid, syscall.SIGKILL) != nil { // it has just ended by itself
		return "nothing"
	}
	return map[bool]string{true: "shim of ", false: "guest of "}[theShim] + i.ID
}

// childOf finds the process that a shim has started. The number is 0 where there is none.
func childOf(pid int) int {
	entries, _ := filepath.Glob("/proc/[0-9]*") // the pattern is well-formed: no error is possible
	for _, e := range entries {
		child, _ := strconv.Atoi(filepath.Base(e))
		if f := statOf(child); pid > 0 && len(f) > 1 && f[1] == strconv.Itoa(pid) {
			return child
		}
	}
	return 0
}

// stop has a shim stand still for a while, and nobody hears of its guest.
func (y *yard) stop(i providers.Instance, lasts time.Duration) string {
	pid, alive := shim.Alive(i.Ref)
	if !alive || pid == 0 || syscall.Kill(pid, syscall.SIGSTOP) != nil {
		return "nothing"
	}
	<-time.After(lasts)
	_ = syscall.Kill(pid, syscall.SIGCONT) // it may have been killed meanwhile
	return "shim of " + i.ID
}

// plant leaves a sandbox that no row knows, or of one that a worker died on while it made it.
func (y *yard) plant(target int) (string, error) {
	id := fmt.Sprintf("sborphan%d", target)
	if target%2 == 0 {
		dir := filepath.Join(y.fleetDir(), id)
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", err
		}
		return "half of " + id, os.WriteFile(filepath.Join(dir, "lock"), nil, 0o600)
	}
	p, err := y.opened()
	if err != nil {
		return "", err
	}
	_, err = p.Create(context.Background(), providers.Spec{ID: id, Image: image, WorkDir: "/workspace", Resources: providers.Resources{MemoryMB: 64, DiskMB: 16}})
	return id, err
}

func (y *yard) figures(l ledger) error {
	found, err := y.list()
	if err != nil {
		return err
	}
	groups, err := y.groups()
	if err != nil {
		return err
	}
	var memory float64
	descriptors, shims := 0, running(filepath.Join(y.dir, "programs"))
	for _, k := range shims {
		pid := strings.Split(k, "/")[2]
		mib, _ := residentMiB(pid) // one that has just ended has none
		memory += mib
		descriptors += len(links(pid))
	}
	l.add("machine: sandboxes", "", float64(len(found)), 12, 0.5)
	l.add("machine: control groups", "", float64(len(groups)), 48, 0.5)
	l.add("machine: shims", "", float64(len(shims)), 12, 0.5)
	l.add("machine: memory of a shim", "MiB", memory/max(1, float64(len(shims))), 2, 0.2)
	l.add("machine: file descriptors of a shim", "", float64(descriptors)/max(1, float64(len(shims))), 3, 0.2)
	return nil
}

// Close removes what is left, which the checks have seen by then.
func (y *yard) Close() {
	left, _ := y.list() // nothing can be done about what cannot be read
	for _, i := range left {
		_ = y.provider.Delete(context.Background(), i.ID)
	}
	if y.provider != nil {
		_ = y.provider.Close()
	}
	_ = os.Remove(filepath.Join(y.dir, "images")) // a link
}
