package local

import (
	"maps"
	"path/filepath"
	"slices"

	"sandyard/providers"
	"sandyard/providers/confine"
	"sandyard/providers/local/shim"
)

// complete fills what spec leaves open and refuses what this provider cannot do.
func (p *Provider) complete(spec providers.Spec) (providers.Spec, error) {
	if spec.Runtime != "" {
		return spec, providers.NotSupported.Errorf("the local provider has no runtime %.80q; create the sandbox without runtime, or with the docker provider", spec.Runtime)
	}
	return confine.Complete(spec, p.cfg.Defaults)
}

// order is what the shim of b is told.
func (p *Provider) order(b box, spec providers.Spec, img image) shim.Order {
	s := start{spec: spec, image: img, programs: p.programs.dir, base: filepath.Join(b.dir, shim.RootDir), group: b.group, filter: p.filter}
	s.write()
	return shim.Order{Dir: b.dir, Image: img.tree, Programs: p.programs.dir, Group: b.group, Script: &s.Script}
}

// environ is the environment of the guest, which every command inherits: the image's, then the sandbox's own.
func environ(spec providers.Spec, ofImage map[string]string) []string {
	merged := map[string]string{"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	maps.Copy(merged, ofImage)
	merged["HOME"] = spec.WorkDir
	maps.Copy(merged, spec.Env)
	env := []string{}
	for _, name := range slices.Sorted(maps.Keys(merged)) {
		env = append(env, name+"="+merged[name])
	}
	return env
}
