package dev

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// account is the user a server runs as. Its zero value is the current user.
type account struct {
	uid, gid uint32
	other    bool
}

// unprivileged is the current user, or for root the first of postgres and nobody: PostgreSQL refuses to run as root.
func unprivileged() (account, error) {
	if os.Geteuid() != 0 {
		return account{}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		if entry, err := user.Lookup(name); err == nil {
			return accountOf(entry)
		}
	}
	return account{}, errors.New("postgresql does not run as root, and there is no user postgres or nobody")
}

func accountOf(entry *user.User) (account, error) {
	uid, err := strconv.ParseUint(entry.Uid, 10, 32)
	if err != nil {
		return account{}, fmt.Errorf("uid of %s: %w", entry.Username, err)
	}
	gid, err := strconv.ParseUint(entry.Gid, 10, 32)
	if err != nil {
		return account{}, fmt.Errorf("gid of %s: %w", entry.Username, err)
	}
	return account{uid: uint32(uid), gid: uint32(gid), other: true}, nil
}

func (a account) credential() *syscall.Credential {
	if !a.other {
		return nil
	}
	return &syscall.Credential{Uid: a.uid, Gid: a.gid}
}

// own gives dir to the account and closes it to everybody else.
func (a account) own(dir string) error {
	if a.other {
		if err := os.Chown(dir, int(a.uid), int(a.gid)); err != nil {
			return fmt.Errorf("hand over directory: %w", err)
		}
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return fmt.Errorf("close directory: %w", err)
	}
	return nil
}

// mayEnter tells whether the account has search permission on dir and on every directory above it.
func (a account) mayEnter(dir string) bool {
	if !a.other {
		return true
	}
	for {
		info, err := os.Stat(dir)
		if err != nil || !a.maySearch(info) {
			return false
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return true
		}
		dir = parent
	}
}

func (a account) maySearch(info os.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return false
	case stat.Uid == a.uid:
		return info.Mode()&0o100 != 0
	case stat.Gid == a.gid:
		return info.Mode()&0o010 != 0
	default:
		return info.Mode()&0o001 != 0
	}
}
