package files

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"strings"

	"sandyard/guest/protocol"
	"sandyard/guest/saferoot"

	"golang.org/x/sys/unix"
)

// The user's metadata of a file are extended attributes, as in envd.
const (
	metadataPrefix = "user.e2b."
	maxMetadataKey = 255 - len(metadataPrefix) // the kernel's limit for a name
	// maxMetadata bounds the metadata of one file, keys with their prefix and values together, in bytes.
	maxMetadata = 4096
	// maxListed bounds the metadata in the answer to one call, in bytes; what is beyond it is left out.
	maxListed = 1 << 20
	// maxNames is the most that the kernel lists, in bytes.
	maxNames = 64 << 10
)

// CheckMetadata says what is wrong with metadata before anything is written.
func CheckMetadata(metadata map[string]string) error {
	size := 0
	for key, value := range metadata {
		size += metadataSize(key, value)
		switch {
		case key == "" || len(key) > maxMetadataKey:
			return protocol.Errorf(protocol.ReasonInvalid, "a metadata key must have 1 to %d bytes", maxMetadataKey)
		case !printable(key) || !printable(value):
			return protocol.Errorf(protocol.ReasonInvalid, "metadata '%.50q' is not printable ASCII", key)
		case size > maxMetadata:
			return protocol.Errorf(protocol.ReasonInvalid, "the metadata has more than %d bytes", maxMetadata)
		}
	}
	return nil
}

func metadataSize(key, value string) int { return len(metadataPrefix) + len(key) + len(value) }

func printable(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
}

// setMetadata writes the metadata of a new file.
func setMetadata(f *os.File, metadata map[string]string) error {
	for key, value := range metadata {
		err := unix.Fsetxattr(int(f.Fd()), metadataPrefix+key, []byte(value), 0)
		switch {
		case errors.Is(err, unix.ENOTSUP):
			return protocol.Errorf(
				protocol.ReasonUnsupported,
				"the file system of the sandbox keeps no metadata; write the file without",
			)
		case errors.Is(err, unix.E2BIG), errors.Is(err, unix.ERANGE):
			return protocol.Errorf(protocol.ReasonInvalid, "the file system of the sandbox keeps less metadata")
		case err != nil:
			return err
		}
	}
	return nil
}

// metadata reads what setMetadata has written, or code in the sandbox in the same form. A file whose metadata cannot be
// read has none. It is opened for that, so that nothing is followed on the way.
func (d *describer) metadata(root *saferoot.Root, rel string, mode fs.FileMode) map[string]string {
	if d.room <= 0 || !mode.IsRegular() && !mode.IsDir() { // of others the kernel keeps none
		return nil
	}
	f, err := root.OpenFile(rel, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	return d.metadataOf(int(f.Fd()))
}

func (d *describer) metadataOf(fd int) map[string]string {
	var found map[string]string
	size := 0
	for name := range bytes.SplitSeq(attributes(fd), []byte{0}) {
		key, ours := strings.CutPrefix(string(name), metadataPrefix)
		if !ours || key == "" {
			continue
		}
		var buf [maxMetadata]byte
		n, err := unix.Fgetxattr(fd, string(name), buf[:])
		if err != nil {
			continue
		}
		value := string(buf[:n])
		size += metadataSize(key, value)
		if size > maxMetadata || size > d.room || !printable(key) || !printable(value) {
			continue
		}
		if found == nil {
			found = map[string]string{}
		}
		found[key] = value
	}
	d.room -= size
	return found
}

// attributes are the names of the attributes of a file, each with a NUL behind it.
func attributes(fd int) []byte {
	var small [256]byte // most files have none
	n, err := unix.Flistxattr(fd, small[:])
	if err == nil {
		return bytes.Clone(small[:n])
	}
	if !errors.Is(err, unix.ERANGE) {
		return nil
	}
	large := make([]byte, maxNames)
	if n, err = unix.Flistxattr(fd, large); err != nil {
		return nil
	}
	return large[:n]
}
