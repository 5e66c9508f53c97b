package dialect

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
