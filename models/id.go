package models

import (
	"database/sql/driver"
	"encoding/base32"
	"strings"

	"github.com/google/uuid"
)

// NewID returns prefix and 26 characters of [0-9a-v] that sort by time of creation (a UUID of version 7).
func NewID(prefix string) string {
	id := uuid.Must(uuid.NewV7())
	return prefix + strings.ToLower(base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(id[:]))
}

// idArray passes ids as one parameter, so that a statement is prepared once and not for every number of them.
type idArray []string

// Value implements driver.Valuer. Ids need no quotes.
func (a idArray) Value() (driver.Value, error) { return "{" + strings.Join(a, ",") + "}", nil }
