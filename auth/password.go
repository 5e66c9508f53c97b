// Package auth is how people prove who they are: passwords, of which only a hash is kept, and the tokens of a login.
package auth

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/crypto/argon2"
)

// Cost of one hash: the second choice of OWASP's Password Storage Cheat Sheet (19 MiB, two passes, one lane).
const (
	memoryKB = 19 << 10
	passes   = 2
	lanes    = 1
	saltSize = 16
	hashSize = 32
)

// Bounds of a password, in bytes.
const (
	MinPassword = 8
	MaxPassword = 1024
)

// ErrPassword says that a password is too short or too long.
var ErrPassword = fmt.Errorf("a password must have %d to %d bytes", MinPassword, MaxPassword)

// slots bounds how many hashes are made at once: each takes its memory.
var slots = make(chan struct{}, 2) //nolint:gochecknoglobals // of the process

// HashPassword returns the argon2id hash of a password, in the PHC string format.
func HashPassword(password string) (string, error) {
	if len(password) < MinPassword || len(password) > MaxPassword {
		return "", ErrPassword
	}
	salt := make([]byte, saltSize)
	_, _ = rand.Read(salt) // it never fails
	b64 := base64.RawStdEncoding
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, memoryKB, passes, lanes,
		b64.EncodeToString(salt), b64.EncodeToString(hash(password, salt, passes, memoryKB, lanes, hashSize))), nil
}

// CheckPassword says whether hash is of this password. An empty hash is nobody's, and takes as long.
func CheckPassword(encoded, password string) (bool, error) {
	if len(password) > MaxPassword {
		return false, nil
	}
	if encoded == "" {
		hash(password, make([]byte, saltSize), passes, memoryKB, lanes, hashSize)
		return false, nil
	}
	var version, memory, times, threads int
	parts := strings.Split(encoded, "$")
	if len(parts) != 6 || parts[1] != "argon2id" {
		return false, errors.New("the stored password has an unknown format")
	}
	_, err1 := fmt.Sscanf(parts[2], "v=%d", &version)
	_, err2 := fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &memory, &times, &threads)
	salt, err3 := base64.RawStdEncoding.DecodeString(parts[4])
	want, err4 := base64.RawStdEncoding.DecodeString(parts[5])
	if err := errors.Join(err1, err2, err3, err4); err != nil || version != argon2.Version {
		return false, fmt.Errorf(
			"read the stored password: %w",
			errors.Join(err, errors.New("its version is "+parts[2])),
		)
	}
	//nolint:gosec // what HashPassword wrote
	got := hash(password, salt, uint32(times), uint32(memory), uint8(threads), uint32(len(want)))
	return subtle.ConstantTimeCompare(got, want) == 1, nil
}

func hash(password string, salt []byte, times, memory uint32, threads uint8, size uint32) []byte {
	slots <- struct{}{}
	defer func() { <-slots }()
	return argon2.IDKey([]byte(password), salt, times, memory, threads, size)
}
