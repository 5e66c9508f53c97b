package fake

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"sandyard/providers"
)

// firstPid is the process id of a sandbox's first command. Each command is one process.
const firstPid = 2

// Processes implements providers.Processes.
func (s *sandbox) Processes(ctx context.Context) (list providers.ProcessList, err error) {
	err = s.inside(ctx, OpBackground, func(b *box) error {
		list.Processes = []providers.Process{}
		for _, e := range b.running() {
			list.Processes = append(list.Processes, providers.Process{
				Pid: e.pid, Parent: 1, Start: int64(e.pid), ExecID: e.cmd.Name, State: "S", Threads: 1,
				AgeMS: time.Since(e.begun).Milliseconds(), Command: cmp.Or(e.cmd.Shell, strings.Join(e.cmd.Argv, " ")),
			})
		}
		list.Total = len(list.Processes)
		return nil
	})
	return list, err
}

// running are the commands that have not ended, in the order of their starts.
func (b *box) running() (live []*execution) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.execs {
		select {
		case <-e.done:
		default:
			live = append(live, e)
		}
	}
	slices.SortFunc(live, func(a, b *execution) int { return cmp.Compare(a.pid, b.pid) })
	return live
}

// SignalProcess implements providers.Processes: every signal ends the process.
func (s *sandbox) SignalProcess(ctx context.Context, signal providers.ProcessSignal) error {
	return s.inside(ctx, OpBackground, func(b *box) error {
		b.mu.Lock()
		again := b.heard[signal.ID]
		b.mu.Unlock()
		if again {
			return nil
		}
		for _, e := range b.running() {
			if e.pid != signal.Pid || signal.Start != 0 && signal.Start != int64(e.pid) {
				continue
			}
			b.mu.Lock()
			b.heard[signal.ID], e.signalled = true, signal.Signal
			b.mu.Unlock()
			e.kill()
			return nil
		}
		return providers.NoProcess.Errorf("there is no process %d", signal.Pid)
	})
}
