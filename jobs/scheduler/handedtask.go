package scheduler

import (
	"time"

	"sandyard/jobs/queue"
	"sandyard/models"
)

// claimPatience is how long a worker that was handed a task may take to claim its job. A busy database takes seconds
// for that; to send the task again then would only add to its work.
const claimPatience = 10 * time.Second

// handedTasks remembers when tasks were first seen in the hands of a worker that has not claimed their jobs.
type handedTasks struct {
	first map[string]time.Time // of this round and the one before, by task
	seen  map[string]time.Time // of this round
}

// overdue returns the tasks whose worker has had its time: it has died, most likely.
func (h *handedTasks) overdue(active []models.Dispatch, now time.Time) (lost []models.Dispatch) {
	if h.seen == nil {
		h.seen = map[string]time.Time{}
	}
	for _, d := range active {
		id := queue.TaskID(d.JobID, d.Generation)
		since, known := h.first[id]
		if !known {
			since = now
		}
		h.seen[id] = since
		if now.Sub(since) >= claimPatience {
			lost = append(lost, d)
		}
	}
	return lost
}

// forget ends a round: tasks that it has not seen are in nobody's hands any more.
func (h *handedTasks) forget() { h.first, h.seen = h.seen, nil }
