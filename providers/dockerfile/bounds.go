package dockerfile

import (
	"fmt"
	"io"
	"strings"
)

// Bounds of what a recipe grows to: without them a few lines could ask for any amount of memory.
const (
	maxInstruction = 50        // bytes of its name; none that is known has as many
	maxWords       = 400       // bytes of an error's words
	maxSteps       = 200       // of one build
	maxShell       = 32        // words of SHELL
	maxScript      = 127 << 10 // bytes of RUN: the kernel takes no longer argument
	maxNesting     = 32 << 20  // substitutions that may nest times bytes: each level copies what is inside
	maxLevels      = 100       // substitutions with a default or an alternative in one text
	maxRead        = 128 << 10 // bytes of variables that one text reads
	maxValue       = 32 << 10  // bytes that one text expands to
	maxExpanded    = 4 << 20   // bytes that all texts of a Dockerfile expand to
	maxVariables   = 1000      // of ENV and ARG together; also labels
	maxEnv         = 128 << 10 // bytes of their names and values
	maxPath        = 4096      // bytes of a path in the image
	maxMatching    = 256 << 20 // what wildcards may cost: the length of a pattern times that of each path
	freeCopies     = 16 << 20  // bytes that the steps of any build may unpack
	maxCopies      = 4         // times the bytes of its context, where that is more
	tarBlock       = 512       // what an entry costs that adds nothing
)

// room is how much more may be put into some pairs.
type room struct{ pairs, bytes int }

func newRoom() *room { return &room{maxVariables, maxEnv} }

// pairs are variables or labels. Several may share one room.
type pairs struct {
	of   map[string]string
	room *room
}

// newPairs takes the room of what is there already, even where that is more than there is.
func newPairs(of map[string]string, r *room) pairs {
	p := pairs{map[string]string{}, r}
	for name, value := range of {
		p.of[name] = value
		r.pairs--
		r.bytes -= len(name) + len(value)
	}
	return p
}

// set says whether there was room for it.
func (p pairs) set(name, value string) bool {
	old, had := p.of[name]
	added, size := 1, len(name)+len(value)
	if had {
		added, size = 0, len(value)-len(old)
	}
	if added > max(p.room.pairs, 0) || size > max(p.room.bytes, 0) {
		return false
	}
	p.of[name] = value
	p.room.pairs -= added
	p.room.bytes -= size
	return true
}

// meter counts what the steps of one build unpack.
type meter struct{ most, left int }

func newMeter(archive []byte) *meter {
	most := max(freeCopies, maxCopies*len(archive))
	return &meter{most, most}
}

func (m *meter) take(bytes int) error {
	if m.left -= bytes; m.left < 0 {
		return fmt.Errorf(
			"the files that the steps copy fill more than %d bytes; copy each file once, and duplicate it with RUN cp",
			m.most,
		)
	}
	return nil
}

// metered writes what the meter lets pass.
type metered struct {
	io.Writer
	meter *meter
}

// Write implements io.Writer.
func (w metered) Write(p []byte) (int, error) {
	if err := w.meter.take(len(p)); err != nil {
		return 0, err
	}
	return w.Writer.Write(p)
}

// brief cuts words that may quote whatever a recipe holds.
func brief(text string) string {
	if len(text) <= maxWords {
		return text
	}
	return strings.ToValidUTF8(text[:maxWords], "") + " …"
}
