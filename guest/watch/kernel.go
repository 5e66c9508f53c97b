package watch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"

	"sandyard/guest/protocol"

	"golang.org/x/sys/unix"
)

// watched are the kernel's events that become ours, or end a watch.
const watched = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_MODIFY | unix.IN_ATTRIB |
	unix.IN_DELETE | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR | unix.IN_EXCL_UNLINK

// maxKernelEvent is the size of the largest event that inotify writes, in bytes.
const maxKernelEvent = unix.SizeofInotifyEvent + unix.NAME_MAX + 1

// kernelEvent is struct inotify_event.
type kernelEvent struct {
	wd     int
	mask   uint32
	cookie uint32 // the same in both events of a rename
	name   string // of the entry; empty for the directory itself
}

// parse reads the first event of raw, which the kernel wrote, and returns what follows it.
func parse(raw []byte) (kernelEvent, []byte) {
	if len(raw) < unix.SizeofInotifyEvent {
		return kernelEvent{mask: unix.IN_IGNORED}, nil
	}
	size := int(binary.NativeEndian.Uint32(raw[12:]))
	rest := raw[unix.SizeofInotifyEvent:]
	name, _, _ := bytes.Cut(rest[:min(size, len(rest))], []byte{0})
	return kernelEvent{
		wd:     int(int32(binary.NativeEndian.Uint32(raw))),
		mask:   binary.NativeEndian.Uint32(raw[4:]),
		cookie: binary.NativeEndian.Uint32(raw[8:]),
		name:   string(name),
	}, rest[min(size, len(rest)):]
}

// kernelError explains a limit of the host as one that may be over later.
func kernelError(err error) error {
	switch {
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOSPC):
		return protocol.Errorf(protocol.ReasonBusy, "the sandbox's host has reached its limit of watches: %v", err)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return protocol.Errorf(protocol.ReasonFileNotFound, "the directory to watch does not exist")
	case errors.Is(err, unix.ELOOP):
		return protocol.Errorf(protocol.ReasonInvalidPath, "the directory to watch is now a symbolic link; watch its target")
	case errors.Is(err, fs.ErrPermission):
		return protocol.Errorf(protocol.ReasonDenied, "no permission to read the directory to watch")
	default:
		return protocol.Errorf(protocol.ReasonInternal, "watch: %v", err)
	}
}

// onNetwork says whether the file system is one whose files other machines, or user programs, change unseen.
func onNetwork(f *os.File) bool {
	var st unix.Statfs_t
	if unix.Fstatfs(int(f.Fd()), &st) != nil {
		return false
	}
	switch uint32(st.Type) { // the magic numbers have 32 bits
	case unix.NFS_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.FUSE_SUPER_MAGIC:
		return true
	default:
		return false
	}
}
