package models_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"sandyard/models"
)

// TestNodesOfOneEngineShareItsMachine: whatever the number of an engine's workers, and also when they place sandboxes at the
// same time, the sandboxes take no more than the machine has. What a dead worker has left there still counts.
func TestNodesOfOneEngineShareItsMachine(t *testing.T) {
	t.Parallel()
	need := models.Need{CPUs: 1, MemoryMB: 100, Pids: 10}
	for name, limit := range map[string]func(*models.Node){
		"memory":    func(n *models.Node) { n.MaxMemoryMB = 399 },
		"cores":     func(n *models.Node) { n.MaxCPUs = 3 },
		"processes": func(n *models.Node) { n.MaxPids = 39 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, 100)
			var claimed []models.Job
			for i := range 18 {
				node := models.Node{ID: fmt.Sprint("node", i%6), Provider: "fake", Engine: "engine"}
				limit(&node)
				_, err := s.Register(t.Context(), node, lease)
				must(t, err)
				c, err := s.Claim(t.Context(), create(t, s, newSandbox()).Jobs[0].ID, node.ID, time.Minute)
				must(t, err)
				claimed = append(claimed, c)
			}
			begin := func(jobs []models.Job) (placed int) {
				errs := make([]error, len(jobs))
				var all sync.WaitGroup
				for i, c := range jobs {
					h := models.Holder{Node: *c.NodeID, Provider: "fake", Need: func(models.Sandbox) (models.Need, error) { return need, nil }}
					all.Go(func() { _, errs[i] = s.BeginCreate(t.Context(), c, h) })
				}
				all.Wait()
				for _, err := range errs {
					switch full := (*models.RoomError)(nil); {
					case err == nil, errors.As(err, new(*models.PlacedError)):
						placed++
					case !errors.As(err, &full):
						t.Error(err)
					}
				}
				return placed
			}
			if n := begin(claimed[:2]); n != 2 {
				t.Errorf("%d of the first 2 were placed", n)
			}
			must(t, s.Retire(t.Context(), "node0"))
			if n := begin(claimed[2:]); n != 1 {
				t.Errorf("with one worker dead, %d of 16 found a place, where 1 has room", n)
			}
			if l, err := s.Load(t.Context(), "node1"); err != nil || l.MemoryMB != 300 || l.Pids != 30 || l.CPUs != 3 {
				t.Errorf("the engine's load is %+v, %v", l, err)
			}
		})
	}
}
