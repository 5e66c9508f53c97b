package models

import (
	"encoding/base32"
	"strings"

	"github.com/google/uuid"
)

// NewID returns prefix and 26 characters of [0-9a-v] that sort by time of creation (a UUID of version 7).
func NewID(prefix string) string {
	id := uuid.Must(uuid.NewV7())
	return prefix + strings.ToLower(base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(id[:]))
}
