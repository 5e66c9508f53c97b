package models

import (
	"database/sql/driver"
	"encoding/base32"
	"encoding/binary"
	"strings"
	"time"

	"github.com/google/uuid"
)

// NewID returns prefix and 26 characters of [0-9a-v] that sort by time of creation (a UUID of version 7).
func NewID(prefix string) string {
	return written(prefix, uuid.Must(uuid.NewV7()))
}

// NewIDAt is NewID at a moment of the database's, for what must sort by time whichever machine has made it. Moments
// that are a microsecond apart sort, too.
func NewIDAt(prefix string, at time.Time) string {
	id := uuid.Must(uuid.NewV7())
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(at.UnixMilli())) //nolint:gosec // after 1970
	copy(id[:6], ms[2:])
	fraction := at.Nanosecond() % 1_000_000 << 12 / 1_000_000 // where version 7 has room for 12 bits of it
	id[6], id[7] = 0x70|byte(fraction>>8), byte(fraction)
	return written(prefix, id)
}

func written(prefix string, id uuid.UUID) string {
	return prefix + strings.ToLower(base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(id[:]))
}

// isID says whether text may be an id at all: what is not is never sent to the database.
func isID(text string) bool {
	const longest = 64
	return text != "" && len(text) <= longest && strings.IndexFunc(text, notOfAnID) < 0
}

func notOfAnID(r rune) bool {
	return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && r != '_' && r != '-'
}

// idArray passes ids as one parameter, so that a statement is prepared once and not for every number of them.
type idArray []string

// Value implements driver.Valuer with PostgreSQL's text of an array. Every element is quoted: an id may come from a
// request.
func (a idArray) Value() (driver.Value, error) {
	var b strings.Builder
	b.WriteByte('{')
	for i, id := range a {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(`"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(id) + `"`)
	}
	b.WriteByte('}')
	return b.String(), nil
}

// UUIDOf is the UUID in an id that NewID has made; "" where it is none.
func UUIDOf(prefix, id string) string {
	text, ok := strings.CutPrefix(id, prefix)
	raw, err := base32.HexEncoding.WithPadding(base32.NoPadding).DecodeString(strings.ToUpper(text))
	if !ok || err != nil || len(raw) != len(uuid.UUID{}) {
		return ""
	}
	return uuid.UUID(raw).String()
}

// IDOf is the id that holds a UUID. Text that is none is returned as it is, and found nowhere or as the id that it is.
func IDOf(prefix, text string) string {
	id, err := uuid.Parse(text)
	if err != nil {
		return text
	}
	return written(prefix, id)
}
