package models

import "sync"

// groupCommit lets concurrent callers share one transaction. There is no timer: a flush starts as soon as the one
// before it is done, with whatever has come meanwhile, so a lone caller waits for nobody.
type groupCommit struct {
	flush func([]*submission)
	in    chan *submission
	done  sync.WaitGroup
}

// maxGroup bounds one transaction: past it the gain is gone and the latency is not.
const maxGroup = 128

func newGroupCommit(flush func([]*submission)) *groupCommit {
	g := &groupCommit{flush: flush, in: make(chan *submission, maxGroup)}
	g.done.Go(g.run)
	return g
}

// do hands s over and waits for the flush that carried it.
func (g *groupCommit) do(s *submission) {
	g.in <- s
	<-s.committed
}

func (g *groupCommit) close() {
	close(g.in)
	g.done.Wait()
}

func (g *groupCommit) run() {
	for first := range g.in {
		group := g.gather(first)
		g.flush(group)
		for _, s := range group {
			close(s.committed)
		}
	}
}

func (g *groupCommit) gather(first *submission) []*submission {
	group := []*submission{first}
	for len(group) < maxGroup {
		select {
		case s, ok := <-g.in:
			if !ok {
				return group
			}
			group = append(group, s)
		default:
			return group
		}
	}
	return group
}
