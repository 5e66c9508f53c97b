package remote

import (
	"maps"
	"path"
	"regexp"

	"sandyard/providers"
	"sandyard/providers/confine"
)

// Labels of a sandbox at a vendor that are ours.
const (
	LabelSandbox = "sandyard_sandbox"
	LabelFleet   = "sandyard_fleet"
	labelWorkDir = "sandyard_dir"
	labelHome    = "sandyard_home"
)

// Labels are those of a sandbox at a vendor, whatever the vendor calls them.
type Labels map[string]string

// Identity are the labels by which a fleet knows a sandbox as its own.
func Identity(fleet, id string) Labels { return Labels{LabelSandbox: id, LabelFleet: fleet} }

// LabelsOf are those of a new sandbox: what the spec asks for, and ours, which a tenant's cannot replace.
func LabelsOf(fleet string, spec providers.Spec) Labels {
	l := Labels{}
	maps.Copy(l, spec.Labels)
	maps.Copy(l, Identity(fleet, spec.ID))
	l[labelWorkDir] = spec.WorkDir
	delete(l, labelHome) // a tenant's is none of ours
	if home := spec.Env["HOME"]; path.IsAbs(home) {
		l[labelHome] = home
	}
	return l
}

// maxLabel is more than any of our labels has.
const maxLabel = 8 << 10

// Ours are those of the labels that are ours: lists hold no more.
func (l Labels) Ours() Labels {
	ours := Labels{}
	for _, k := range []string{LabelSandbox, LabelFleet, labelWorkDir, labelHome} {
		if v, ok := l[k]; ok && len(v) <= maxLabel {
			ours[k] = v
		}
	}
	return ours
}

// Have says whether all of want are among the labels.
func (l Labels) Have(want Labels) bool {
	for k, v := range want {
		if l[k] != v {
			return false
		}
	}
	return true
}

// Dirs are the work directory and the home directory that the sandbox was made with.
func (l Labels) Dirs() (workDir, home string) {
	workDir = confine.WorkDir
	if dir := l[labelWorkDir]; path.IsAbs(dir) {
		workDir = path.Clean(dir)
	}
	home = workDir
	if dir := l[labelHome]; path.IsAbs(dir) {
		home = path.Clean(dir)
	}
	return workDir, home
}

var backendID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$`)

// ValidID says whether text may be a vendor's id of a sandbox: it goes into paths of URLs.
func ValidID(text string) bool { return backendID.MatchString(text) }
