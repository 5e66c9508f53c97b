//go:build chaos

package chaos

import (
	"path/filepath"
	"strings"
	"time"
)

// faults are what was done to the system.
type faults []inflicted

// between counts those that were under way and could have had an effect.
func (all faults) between(from, to time.Time, could func(inflicted) bool) int {
	n := 0
	for _, f := range all {
		if f.began.Before(to) && f.ended.After(from) && could(f) {
			n++
		}
	}
	return n
}

func anyFault(inflicted) bool { return true }

// disturbs says whether a fault can make an attempt fail. APIs and schedulers have no part in it.
func disturbs(f inflicted) bool {
	switch f.kind {
	case killAPI, stopAPI, killScheduler, stopScheduler:
		return false
	default:
		return true
	}
}

// silences says which faults can keep a node from being heard of: those of its process and of the way to the database.
func (t *trial) silences(node string) func(inflicted) bool {
	return func(f inflicted) bool {
		switch f.kind {
		case killWorker, stopWorker:
			return f.hit == t.workers[node]
		case cutWire, holdWire:
			return f.hit == t.workers[node] && f.server == "postgres"
		case hangServer:
			return f.server == "postgres"
		case restartPostgres, crashPostgres:
			return true
		default:
			return false
		}
	}
}

// detains says which faults can keep a node from its engine: those of its process, of the way there and of the engine.
func (t *trial) detains(node string) func(inflicted) bool {
	return func(f inflicted) bool {
		switch f.kind {
		case killWorker, stopWorker, endWorker:
			return f.hit == t.workers[node]
		case cutWire, holdWire:
			return f.hit == t.workers[node] && f.server == "docker"
		case hangServer:
			return f.server == "docker"
		case restartEngine, crashEngine, emptyEngine:
			return true
		default:
			return false
		}
	}
}

// silent says that a job was taken from a worker that was not heard of; what had begun of it is done again.
func (e eventRow) silent() bool {
	return e.Event == "requeued" && strings.HasPrefix(e.Reason, "its worker stopped sending heartbeats")
}

// causes says which faults can have had a job go back to the queue.
func (t *trial) causes(e eventRow) func(inflicted) bool {
	switch {
	case e.silent():
		return t.silences(e.Node)
	case strings.HasPrefix(e.Reason, "its worker is stopping"):
		return func(f inflicted) bool { return f.kind == endWorker && f.hit == t.workers[e.Node] }
	case strings.Contains(e.Reason, "the docker engine"):
		return t.detains(e.Node)
	default:
		return disturbs
	}
}

// nodesOf reads in the workers' logs which process was which node.
func nodesOf(dir string) (map[string]string, error) {
	lines, err := logLines(dir, "worker started")
	nodes := map[string]string{}
	for _, l := range lines {
		nodes[l.Node] = strings.TrimSuffix(filepath.Base(l.file), ".log")
	}
	return nodes, err
}
