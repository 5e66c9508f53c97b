package v1

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"sandyard/models"
	"sandyard/web/middleware"
	"sandyard/web/problem"
	"sandyard/web/rest"
)

// Node is the document of a worker process.
type Node struct {
	ID         string     `json:"id"`
	Host       string     `json:"host" doc:"Name of its machine"`
	Name       string     `json:"name,omitempty" doc:"Its NODE_NAME, which identifies it after a restart"`
	Provider   string     `json:"provider"`
	Engine     string     `json:"engine,omitempty" doc:"The engine that runs its sandboxes; workers of one engine take over from each other"`
	State      string     `json:"state" enum:"live,draining,leaving,dead" doc:"draining: takes no new sandboxes; leaving: its process also ends; dead: its heartbeats have stopped"`
	StartedAt  time.Time  `json:"started_at"`
	SeenUntil  time.Time  `json:"lease_until" doc:"When it counts as dead unless it sends a heartbeat"`
	DrainingAt *time.Time `json:"draining_at,omitempty"`
	DiskFreeMB int64      `json:"disk_free_mb,omitempty" doc:"Free space of the disk that holds its sandboxes and images; absent if unknown"`
	DiskLow    bool       `json:"disk_low,omitempty" doc:"Too little free space: it gets no new sandboxes"`
	Slots      int        `json:"slots" doc:"Jobs that it runs at once"`
	Running    int        `json:"running" doc:"Jobs that it runs now, including jobs that only wait"`
	Used       NodeRoom   `json:"used" doc:"Used by its live sandboxes, including paused ones; CPU, memory and processes count for all workers of its engine"`
	Room       NodeRoom   `json:"room" doc:"The limits of used; 0 = no limit"`
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
	ID string `path:"id" doc:"The worker's id in the list of nodes"`
}

type drainInput struct {
	ID    string `path:"id" doc:"The worker's id in the list of nodes"`
	Leave bool   `query:"leave" doc:"Also end the worker's process: running jobs get DRAIN_GRACE, and another worker of its engine takes over its sandboxes"`
}

// nodes has the routes of the nodes of workers.
type nodes struct{ *core }

func (s *nodes) addNodes() {
	rest.Route(s.api, "list-nodes", "GET /v1/nodes", tagServer,
		"List the workers with their sandboxes and resources (scope operator)", s.listNodes)
	drain := rest.Operation("drain-node", "POST /v1/nodes/{id}/drain", tagServer,
		"Drain a worker: it gets no new sandboxes (scope operator)")
	drain.Description = "The worker keeps its sandboxes. New ones go to other workers, or wait until a worker has room. " +
		"The drain lasts until it is undone, even if the worker restarts on the same host. With leave, it ends with the " +
		"process."
	rest.Register(s.api, drain, s.drainNode)
	rest.Route(s.api, "undrain-node", "POST /v1/nodes/{id}/undrain", tagServer,
		"Undrain a worker: it gets new sandboxes again (scope operator)", s.undrainNode)
}

func (s *nodes) listNodes(ctx context.Context, _ *struct{}) (*rest.Output[NodeList], error) {
	if err := operatorOnly(ctx); err != nil {
		return nil, err
	}
	all, err := s.Store.Nodes(ctx)
	return rest.OK(NodeList{rest.Docs(all, nodeDoc)}), err
}

func nodeDoc(n models.NodeLoad) Node {
	return Node{
		ID: n.ID, Host: n.Host, Name: n.Name, Provider: n.Provider, Engine: n.Engine, State: n.State(),
		StartedAt: n.StartedAt, SeenUntil: n.LeaseUntil,
		DrainingAt: n.DrainingAt, DiskFreeMB: n.Disk.FreeMB, DiskLow: n.Disk.Low, Slots: n.Slots, Running: n.Running,
		Used: NodeRoom{
			n.Sandboxes,
			n.CPUs,
			n.MemoryMB,
			n.Pids,
		}, Room: NodeRoom{n.MaxSandboxes, n.MaxCPUs, n.MaxMemoryMB, n.MaxPids},
	}
}

func (s *nodes) drainNode(ctx context.Context, in *drainInput) (*rest.Output[Node], error) {
	return s.tellNode(ctx, in.ID, func() error { return s.Store.Drain(ctx, in.ID, in.Leave) })
}

func (s *nodes) undrainNode(ctx context.Context, in *nodeInput) (*rest.Output[Node], error) {
	return s.tellNode(ctx, in.ID, func() error { return s.Store.Undrain(ctx, in.ID) })
}

// tellNode answers with the node as it is then.
func (s *nodes) tellNode(ctx context.Context, id string, tell func() error) (*rest.Output[Node], error) {
	if err := operatorOnly(ctx); err != nil {
		return nil, err
	}
	if err := tell(); errors.Is(err, models.ErrNotFound) {
		return nil, problem.New(
			http.StatusNotFound,
			"not_found",
			"worker "+id+" is not alive or is leaving; list the workers with GET /v1/nodes",
		)
	} else if err != nil {
		return nil, err
	}
	all, err := s.Store.Nodes(ctx)
	i := slices.IndexFunc(all, func(n models.NodeLoad) bool { return n.ID == id })
	if i < 0 {
		return nil, errors.Join(err, models.ErrNotFound)
	}
	return rest.OK(nodeDoc(all[i])), err
}

// operatorOnly refuses a request whose key has not the scope for the whole installation.
func operatorOnly(ctx context.Context) error {
	if !models.Opens(middleware.RequestOf(ctx).Scopes, models.ScopeOperator) {
		return problem.Forbidden(models.ScopeOperator)
	}
	return nil
}
