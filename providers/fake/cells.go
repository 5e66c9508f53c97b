package fake

import (
	"bytes"
	"encoding/json"
	"time"

	"sandyard/providers"
)

// fedAt is when an input came, and what the command had written by then.
type fedAt struct {
	since  time.Time
	before [3]int64
}

func (f fedAt) told() providers.Fed { return providers.Fed{Age: time.Since(f.since), Before: f.before} }

// totals are what the command has written. The caller holds the box's lock.
func (e *execution) totals() [3]int64 { return [3]int64{e.out.total, e.errs.total, e.report.total} }

// runCells stands for the driver of code cells: the code of each is statements, and its state is how many there were.
func (e *execution) runCells(string) error {
	if err := e.tell(map[string]any{"type": "ready"}); err != nil {
		return err
	}
	for count := 1; ; count++ {
		line, over := e.readLine()
		if over {
			return nil
		}
		var cell struct {
			ID, Code string
			Merge    bool
		}
		if err := json.Unmarshal(line, &cell); err != nil {
			return err
		}
		e.cmd.Merge = cell.Merge
		if err := e.tell(map[string]any{"id": cell.ID, "type": "begin", "count": count}); err != nil {
			return err
		}
		steps, err := parse(providers.Command{Shell: cell.Code})
		for i := 0; err == nil && i < len(steps); i++ {
			if err = verbs()[steps[i].verb](e, steps[i].arg); e.stopped || e.ctx.Err() != nil {
				return err // the context has ended
			}
		}
		done := map[string]any{"id": cell.ID, "type": "done", "count": count}
		if err != nil {
			done["error"] = map[string]string{"name": "ScriptError", "value": err.Error()}
		}
		if err := e.tell(done); err != nil {
			return err
		}
	}
}

func (e *execution) tell(frame map[string]any) error {
	line, err := json.Marshal(frame)
	if err != nil {
		return err
	}
	return e.print(&e.report, append(line, '\n'))
}

// readLine takes a line of what is fed; over says that there is none and the command has to end.
func (e *execution) readLine() (line []byte, over bool) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		e.box.mu.Lock()
		line, rest, whole := bytes.Cut(e.input, []byte("\n"))
		if whole {
			e.input = rest
		}
		over := e.inputOver
		e.box.mu.Unlock()
		if whole || over {
			return line, !whole
		}
		select {
		case <-tick.C:
		case <-e.ctx.Done():
			return nil, true
		case <-e.box.over:
			e.stopped = true
			return nil, true
		}
	}
}
