package e2e_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

func TestOrderOfJobsSubmittedWithoutWaiting(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const clients, boxesEach, jobsEach = 5, 4, 10
	homes := make([]string, clients*boxesEach)
	jobs := make([][]job, len(homes))
	var working sync.WaitGroup
	for c := range clients {
		working.Go(func() { // a client's sandboxes by turns, each behind its create
			own := homes[c*boxesEach : (c+1)*boxesEach]
			for i := range own {
				own[i] = r.create(object{"memory_mb": 64}).ID
			}
			for n := range jobsEach {
				for i, box := range own {
					at := c*boxesEach + i
					jobs[at] = append(jobs[at], r.start(box, fmt.Sprintf("echo %d >> log; echo %d", n, n)))
				}
			}
		})
	}
	working.Wait()
	var logs []job
	for _, box := range homes {
		logs = append(logs, r.submit("/v1/sandboxes/"+box+"/files/read", object{"path": "log"}).Job)
	}
	r.remove(homes...) // submitted behind all of that
	for i, box := range homes {
		for n, j := range jobs[i] {
			if j = r.job(j.ID); j.State != "succeeded" || j.Stdout != fmt.Sprintln(n) {
				t.Errorf("job %d of %s: %s", n, box, j)
			}
		}
		if got := strings.Fields(r.job(logs[i].ID).Content); strings.Join(got, "") != "0123456789" {
			t.Errorf("sandbox %s ran its jobs as %v", box, got)
		}
	}
	r.clean()
}
