// Package vault encrypts the secrets of tenants (AES-256-GCM), each for its owner and name: what is stored under
// another name or moved to another tenant does not open.
package vault

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

const (
	keySize = 32
	idSize  = 8 // of a key's name in front of what it sealed
	version = 1
)

// What keeps a secret closed.
var (
	// ErrNoKey says that the installation has no key for secrets.
	ErrNoKey = errors.New("there is no key for secrets")
	// ErrOtherKey says that a secret was sealed with a key that the installation has no more.
	ErrOtherKey = errors.New("the secret was encrypted with a key that is not among the keys for secrets")
	// ErrDamaged says that a sealed secret was changed, or is another one's.
	ErrDamaged = errors.New("the stored secret is damaged")
)

// Vault seals and opens. A nil Vault has no key.
type Vault struct{ keys []key }

type key struct {
	id   [idSize]byte
	aead cipher.AEAD
}

// NewKey returns a key as New reads it.
func NewKey() string {
	raw := make([]byte, keySize)
	_, _ = rand.Read(raw) // it never fails
	return base64.StdEncoding.EncodeToString(raw)
}

// New returns a vault of keys: 32 bytes in base64 each, separated by commas, blanks or line ends. The first one seals,
// all of them open. No key makes a nil Vault.
func New(text string) (*Vault, error) {
	v := &Vault{}
	for i, word := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(", \t\r\n", r) }) {
		raw, err := base64.StdEncoding.DecodeString(word)
		if err != nil || len(raw) != keySize {
			return nil, fmt.Errorf(
				"key %d must be %d bytes in base64; make one with: openssl rand -base64 %d",
				i+1,
				keySize,
				keySize,
			)
		}
		block, err := aes.NewCipher(raw)
		if err != nil {
			return nil, err
		}
		aead, err := cipher.NewGCM(block)
		if err != nil {
			return nil, err
		}
		k := key{aead: aead}
		sum := sha256.Sum256(append([]byte("sandyard key for secrets"), raw...))
		copy(k.id[:], sum[:])
		v.keys = append(v.keys, k)
	}
	if len(v.keys) == 0 {
		return nil, nil
	}
	return v, nil
}

// Seal encrypts a value for its owner and name. Error: ErrNoKey.
func (v *Vault) Seal(owner, name, value string) ([]byte, error) {
	if v == nil {
		return nil, ErrNoKey
	}
	k := v.keys[0]
	nonce := make([]byte, k.aead.NonceSize())
	_, _ = rand.Read(nonce) // it never fails
	sealed := append([]byte{version}, k.id[:]...)
	return k.aead.Seal(append(sealed, nonce...), nonce, []byte(value), bound(owner, name)), nil
}

// Open decrypts what Seal made. Errors: ErrNoKey, ErrOtherKey, ErrDamaged.
func (v *Vault) Open(owner, name string, sealed []byte) (string, error) {
	if v == nil {
		return "", ErrNoKey
	}
	if len(sealed) < 1+idSize || sealed[0] != version {
		return "", ErrDamaged
	}
	for _, k := range v.keys {
		if !bytes.Equal(k.id[:], sealed[1:1+idSize]) {
			continue
		}
		rest := sealed[1+idSize:]
		if len(rest) < k.aead.NonceSize() {
			return "", ErrDamaged
		}
		value, err := k.aead.Open(nil, rest[:k.aead.NonceSize()], rest[k.aead.NonceSize():], bound(owner, name))
		if err != nil {
			return "", ErrDamaged
		}
		return string(value), nil
	}
	return "", ErrOtherKey
}

// bound is what a sealed value belongs to, so that no two owners and names give the same bytes.
func bound(owner, name string) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(owner))) //nolint:gosec // an id
	return append(append(b, owner...), name...)
}
