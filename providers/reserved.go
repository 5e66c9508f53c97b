package providers

import (
	"path"
	"strings"
)

// GuestDir is where a sandbox sees its own programs.
const GuestDir = "/.sandyard"

// Reserved says whether an absolute path, "..", "//" and all, is the kernel's or the guest's: no program starts there, and no
// file is copied there.
func Reserved(dir string) bool {
	dir = path.Clean("/" + dir)
	for _, own := range []string{"/proc", "/sys", "/dev"} {
		if dir == own || strings.HasPrefix(dir, own+"/") {
			return true
		}
	}
	return strings.HasPrefix(dir, GuestDir)
}
