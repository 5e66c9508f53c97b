package scheduler

import (
	"testing"
	"time"

	"sandyard/models"
)

// TestHandedTasksHaveTheirTime: a task in a worker's hands is lost after claimPatience in the same hands, not before.
func TestHandedTasksHaveTheirTime(t *testing.T) {
	t.Parallel()
	var h handedTasks
	start := time.Now()
	look := func(after time.Duration, generation int) int {
		lost := h.overdue([]models.Dispatch{{JobID: "job_x", Generation: generation}}, start.Add(after))
		h.forget()
		return len(lost)
	}
	for _, c := range []struct {
		after            time.Duration
		generation, lost int
	}{
		{0, 1, 0},
		{claimPatience - time.Second, 1, 0},
		{claimPatience, 1, 1},
		{claimPatience, 2, 0},
		{2*claimPatience - time.Second, 2, 0},
		{2 * claimPatience, 2, 1},
	} {
		if n := look(c.after, c.generation); n != c.lost {
			t.Errorf("generation %d after %v: %d lost, want %d", c.generation, c.after, n, c.lost)
		}
	}
	h.forget() // a round in which it was claimed, or waits in Redis again
	if n := look(4*claimPatience, 2); n != 0 {
		t.Error("a task that was back in Redis meanwhile has no time of its own")
	}
}
