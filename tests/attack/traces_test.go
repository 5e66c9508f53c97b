//go:build attack

package attack

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	dockerimage "github.com/docker/docker/api/types/image"
)

// settle has nothing to prepare: the intruder comes with a key.
func (i *intruder) settle() {}

// leftNoTraces looks for the neighbour's markers in the logs, and for what PostgreSQL noticed.
func (r *rig) leftNoTraces(t *testing.T) {
	for name, p := range r.processes {
		for line := range strings.Lines(p.Stderr.String()) {
			search := r.markers.search()
			if search.look([]byte(line)); search.found != "" {
				t.Errorf("the log of %s holds the neighbour's %s: %.300s", name, search.found, line)
			}
			if strings.Contains(line, "panic") {
				t.Errorf("%s panicked: %.500s", name, line)
			}
		}
	}
	if n := r.count(t, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"); n > 0 {
		t.Errorf("PostgreSQL found %d deadlocks", n)
	}
}

// clearEngine removes the fleet's containers and the images that were built; the processes have ended.
func (r *rig) clearEngine() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	found, err := r.engine.ContainerList(ctx, container.ListOptions{
		All: true, Filters: filters.NewArgs(filters.Arg("label", "sandyard.fleet="+r.fleet)),
	})
	if err != nil {
		r.t.Errorf("list containers: %v", err)
	}
	for _, c := range found {
		if err := r.engine.ContainerRemove(ctx, c.ID, container.RemoveOptions{Force: true, RemoveVolumes: true}); err != nil {
			r.t.Errorf("remove a container: %v", err)
		}
	}
	built, err := r.engine.ImageList(ctx, dockerimage.ListOptions{Filters: filters.NewArgs(filters.Arg("label", "sandyard.fleet="+r.fleet))})
	if err != nil {
		r.t.Errorf("list images: %v", err)
	}
	for _, i := range built {
		if _, err := r.engine.ImageRemove(ctx, i.ID, dockerimage.RemoveOptions{Force: true}); err != nil {
			r.t.Errorf("remove an image: %v", err)
		}
	}
}
