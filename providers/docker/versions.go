package docker

import (
	"context"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/docker/docker/api/types"

	"sandyard/providers"
	"sandyard/providers/docker/engineerr"
)

// learnVersions reads the versions of the engine and of runc and names what they are too old for.
func (p *engine) learnVersions(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, question)
	defer stop()
	engine, err := p.api.ServerVersion(ctx)
	if err != nil {
		return engineerr.Translate(err, "ask the docker engine for its version")
	}
	p.old = outdated(engine)
	if len(p.old) == 0 {
		return nil
	}
	what := "builds and sandboxes that share this host's kernel are refused; update the engine, or set ENGINE_UNSAFE=allow"
	if p.cfg.Unsafe {
		what = "it is used anyway because of ENGINE_UNSAFE=allow"
	}
	p.cfg.Logger.WarnContext(ctx, "engine has known escapes: "+what, "escapes", p.old)
	return nil
}

// outdated lists the known escapes that the engine's components have.
func outdated(engine types.Version) []string {
	versions := map[string][]string{}
	for _, c := range engine.Components {
		versions[c.Name] = []string{c.Version, c.Details["GitCommit"]} // where distributions write the whole version
	}
	var old []string
	for _, e := range escapes() {
		if v, known := versions[e.component]; known && !e.absent(v) {
			old = append(old, fmt.Sprintf("%s (%s %s)", e.cve, e.component, v[0]))
		}
	}
	return old
}

// absent says whether a component of that version, written in one or several ways, is without the escape.
func (e escape) absent(written []string) bool {
	for _, v := range written {
		for _, b := range e.backports {
			if sameLineOrLater(v, b) {
				return true
			}
		}
	}
	have, ok := numbers(written[0])
	if !ok {
		return false
	}
	newest := true
	for _, text := range e.fixed {
		fixed, _ := numbers(text)
		if have[0] == fixed[0] && have[1] == fixed[1] {
			return have[2] >= fixed[2] && !strings.Contains(written[0], "-rc")
		}
		newest = newest && (have[0] > fixed[0] || have[0] == fixed[0] && have[1] > fixed[1])
	}
	return newest
}

// numbers reads major, minor and patch level of a version such as v1.1.5+ds1.
func numbers(version string) (n [3]int, ok bool) {
	core, _, _ := strings.Cut(strings.TrimPrefix(version, "v"), "+")
	core, _, _ = strings.Cut(core, "-")
	core, _, _ = strings.Cut(core, "~")
	for i, text := range strings.SplitN(core, ".", 3) {
		v, err := strconv.Atoi(text)
		if err != nil {
			return n, false
		}
		n[i], ok = v, i == 2
	}
	return n, ok
}

// sameLineOrLater says whether v is b, or b with a greater number at its end.
func sameLineOrLater(v, b string) bool {
	line := strings.TrimRight(b, "0123456789")
	least, _ := strconv.Atoi(b[len(line):])
	rest, same := strings.CutPrefix(v, line)
	n, err := strconv.Atoi(rest)
	return same && err == nil && n >= least
}

// safe refuses a runtime under which programs could use a known escape of this engine. Others than runc have none of these.
func (p *engine) safe(runtime string) error {
	if len(p.old) == 0 || p.cfg.Unsafe || !p.isRunc(runtime) {
		return nil
	}
	return providers.NotSupported.Errorf("the engine of this worker has known container escapes (%s); ask your operator to update it "+
		"or to set ENGINE_UNSAFE=allow", strings.Join(p.old, ", "))
}

// isRunc says whether sandboxes under the runtime share the machine's kernel by means of runc. An unknown one does.
func (p *engine) isRunc(runtime string) bool {
	program, known := p.runtimes.program(runtime)
	if !known {
		program = runtime
	}
	name := path.Base(program)
	return program == "" || name == "runc" || strings.HasPrefix(name, "io.containerd.runc.") || strings.HasPrefix(name, "io.containerd.runtime.")
}
