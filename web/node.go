package web

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"sandyard/models"
)

// Node is the document of a worker process.
type Node struct {
	ID         string     `json:"id"`
	Host       string     `json:"host" doc:"Name of its machine"`
	Name       string     `json:"name,omitempty" doc:"Its NODE_NAME, by which it is known when it is started again"`
	Provider   string     `json:"provider"`
	Engine     string     `json:"engine,omitempty" doc:"Where its sandboxes live; workers of one engine take over from each other"`
	State      string     `json:"state" enum:"live,draining,leaving,dead" doc:"draining: it takes no new sandboxes; leaving: its process ends, too; dead: it has gone silent"`
	StartedAt  time.Time  `json:"started_at"`
	SeenUntil  time.Time  `json:"lease_until" doc:"When it counts as dead if it says nothing"`
	DrainingAt *time.Time `json:"draining_at,omitempty"`
	DiskFreeMB int64      `json:"disk_free_mb,omitempty" doc:"Of what its sandboxes and images lie on; absent where that is not known"`
	DiskLow    bool       `json:"disk_low,omitempty" doc:"It is given no new sandboxes until there is more"`
	Slots      int        `json:"slots" doc:"Jobs that it runs at once"`
	Running    int        `json:"running" doc:"Jobs that it runs now, waits included"`
	Used       NodeRoom   `json:"used" doc:"By its live sandboxes, paused ones included; processors, memory and processes: by those of all workers of its engine"`
	Room       NodeRoom   `json:"room" doc:"What these may be and have together; 0 = no limit"`
}

// NodeRoom is what sandboxes take of a node.
type NodeRoom struct {
	Sandboxes int     `json:"sandboxes"`
	CPUs      float64 `json:"cpus"`
	MemoryMB  int64   `json:"memory_mb"`
	Pids      int64   `json:"pids" doc:"Processes and threads"`
}

// NodeList lists the workers.
type NodeList struct {
	Nodes []Node `json:"nodes"`
}

type nodeInput struct {
	ID string `path:"id" doc:"Of the list of nodes"`
}

type drainInput struct {
	ID    string `path:"id" doc:"Of the list of nodes"`
	Leave bool   `query:"leave" doc:"The worker's process ends, too: it gives running jobs their grace and leaves its sandboxes to another worker of its engine"`
}

func (s *Server) addNodes() {
	register(s, operation("list-nodes", http.MethodGet, "/v1/nodes", tagServer, "List the workers with what they hold (scope operator)"), s.listNodes)
	drain := operation("drain-node", http.MethodPost, "/v1/nodes/{id}/drain", tagServer, "Give a worker no new sandboxes (scope operator)")
	drain.Description = "It goes on with those that it holds. New ones go to other workers; while there is none with room, they wait. " +
		"The drain lasts until it is undone, also when the worker is started again on the same host; with leave it ends with the process."
	register(s, drain, s.drainNode)
	register(s, operation("undrain-node", http.MethodPost, "/v1/nodes/{id}/undrain", tagServer, "Give a worker new sandboxes again (scope operator)"), s.undrainNode)
}

func (s *Server) listNodes(ctx context.Context, _ *struct{}) (*output[NodeList], error) {
	if err := operatorOnly(ctx); err != nil {
		return nil, err
	}
	all, err := s.store.Nodes(ctx)
	list := NodeList{Nodes: []Node{}}
	for _, n := range all {
		list.Nodes = append(list.Nodes, nodeDoc(n))
	}
	return &output[NodeList]{list}, err
}

func nodeDoc(n models.NodeLoad) Node {
	return Node{
		ID: n.ID, Host: n.Host, Name: n.Name, Provider: n.Provider, Engine: n.Engine, State: n.State(), StartedAt: n.StartedAt, SeenUntil: n.LeaseUntil,
		DrainingAt: n.DrainingAt, DiskFreeMB: n.Disk.FreeMB, DiskLow: n.Disk.Low, Slots: n.Slots, Running: n.Running,
		Used: NodeRoom{n.Sandboxes, n.CPUs, n.MemoryMB, n.Pids}, Room: NodeRoom{n.MaxSandboxes, n.MaxCPUs, n.MaxMemoryMB, n.MaxPids},
	}
}

func (s *Server) drainNode(ctx context.Context, in *drainInput) (*output[Node], error) {
	return s.tellNode(ctx, in.ID, func() error { return s.store.Drain(ctx, in.ID, in.Leave) })
}

func (s *Server) undrainNode(ctx context.Context, in *nodeInput) (*output[Node], error) {
	return s.tellNode(ctx, in.ID, func() error { return s.store.Undrain(ctx, in.ID) })
}

// tellNode answers with the node as it is then.
func (s *Server) tellNode(ctx context.Context, id string, tell func() error) (*output[Node], error) {
	if err := operatorOnly(ctx); err != nil {
		return nil, err
	}
	if err := tell(); errors.Is(err, models.ErrNotFound) {
		return nil, newProblem(http.StatusNotFound, "not_found", "no worker "+id+" is alive, or it is leaving; GET /v1/nodes lists them")
	} else if err != nil {
		return nil, err
	}
	all, err := s.store.Nodes(ctx)
	i := slices.IndexFunc(all, func(n models.NodeLoad) bool { return n.ID == id })
	if i < 0 {
		return nil, errors.Join(err, models.ErrNotFound)
	}
	return &output[Node]{nodeDoc(all[i])}, err
}

// operatorOnly refuses a request whose key has not the scope for the whole installation.
func operatorOnly(ctx context.Context) error {
	if !slices.Contains(requestOf(ctx).scopes, models.ScopeOperator) {
		return forbidden(models.ScopeOperator)
	}
	return nil
}
