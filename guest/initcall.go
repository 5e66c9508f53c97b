package guest

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"sandyard/guest/protocol"
)

// birth remembers the newest init, because a slow one may come after its successor.
type birth struct {
	mu   sync.Mutex
	last time.Time
}

// initSandbox is POST /init. It changes everything it names or nothing.
func (g *Guest) initSandbox(w http.ResponseWriter, r *http.Request) (any, error) {
	var in protocol.Init
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxMessage))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&in); err != nil {
		return nil, protocol.Errorf(protocol.ReasonInvalid, "the body cannot be read: %v", err)
	}
	return nil, g.adopt(in)
}

func (g *Guest) adopt(in protocol.Init) error {
	g.birth.mu.Lock()
	defer g.birth.mu.Unlock()
	if in.Timestamp != nil && in.Timestamp.Before(g.birth.last) {
		return nil
	}
	if in.DefaultUser != "" && !slices.Contains(g.users, in.DefaultUser) {
		return noUser(in.DefaultUser, g.users)
	}
	if dir := in.DefaultWorkdir; dir != "" && (!filepath.IsAbs(dir) || strings.ContainsRune(dir, 0)) {
		return protocol.Errorf(protocol.ReasonInvalid, "the work directory %q is not an absolute path", dir)
	}
	if err := g.execs.AddEnv(in.EnvVars); err != nil {
		return err
	}
	if in.DefaultWorkdir != "" {
		g.execs.SetWorkDir(in.DefaultWorkdir)
		g.files.SetWorkDir(in.DefaultWorkdir)
	}
	if in.AccessToken != nil {
		g.access.set(*in.AccessToken)
	}
	if in.Timestamp != nil {
		g.birth.last = *in.Timestamp
	}
	return nil
}

// envs is GET /envs: the environment of a command that asks for nothing.
func (g *Guest) envs(http.ResponseWriter, *http.Request) (any, error) {
	env, _ := g.execs.Defaults()
	return env, nil
}
