package protocol

import "strings"

// maxName is the length of the longest command name, in bytes.
const maxName = 128

// ValidName says whether name can name a command: 1 to 128 letters, digits and "._-", the first not a dot.
func ValidName(name string) bool {
	if name == "" || len(name) > maxName || name[0] == '.' {
		return false
	}
	for i := range len(name) {
		c := name[i]
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

// InHome reads a path that begins with ~ as a shell does: below home. It leaves those alone that name another user's.
func InHome(path, home string) string {
	if rest, ok := strings.CutPrefix(path, "~"); ok && (rest == "" || rest[0] == '/') {
		return home + rest
	}
	return path
}
