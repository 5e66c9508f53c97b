package local

import (
	"maps"
	"slices"

	"sandyard/providers"
	"sandyard/providers/confine"
	"sandyard/providers/local/keeper"
)

// complete fills what spec leaves open and refuses what this provider cannot do.
func (p *Provider) complete(spec providers.Spec) (providers.Spec, error) {
	if spec.Runtime != "" {
		return spec, providers.Errorf(providers.NotSupported, "the local provider has no runtime %.80q; create the sandbox without one, or have it made by the docker provider", spec.Runtime)
	}
	return confine.Complete(spec, p.cfg.Defaults)
}

// plan is what the keeper of b is told.
func (p *Provider) plan(b box, spec providers.Spec, img image) keeper.Plan {
	return keeper.Plan{
		Dir: b.dir, Image: img.tree, Programs: p.programs.dir, Hostname: spec.ID, WorkDir: spec.WorkDir,
		Argv: []string{
			confine.GuestDir + "/" + keeper.GuestProgram, "stdio",
			"-workdir", spec.WorkDir, "-roots", spec.WorkDir + "," + confine.TempDir, "-users", confine.UserName,
		},
		Env: environ(spec, img.env), UID: confine.UserID, GID: confine.UserID,
		WorkDirMB: spec.Resources.DiskMB, WorkDirFiles: confine.WorkDirFiles,
		TempMB: confine.TempMB(spec.Resources), TempFiles: confine.TempFiles, SharedMB: confine.SharedMB,
		Group: b.group, Filter: p.filter,
	}
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
