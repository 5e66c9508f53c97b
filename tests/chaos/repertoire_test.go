//go:build chaos

package chaos

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// one submits the next operation on a sandbox.
func (c *client) one(ctx context.Context, b *box) (*op, error) {
	c.book.Lock()
	*c.count++
	n := *c.count
	c.book.Unlock()
	switch p := c.rng.IntN(100); {
	case p < 33:
		return c.command(ctx, b, n)
	case p < 38:
		return c.cell(ctx, b, n)
	case p < 70:
		return c.files(ctx, b, n)
	case p < 82:
		return c.background(ctx, b, n)
	default:
		return c.rest(ctx, b, n)
	}
}

// command runs one that leaves the line n behind.
func (c *client) command(ctx context.Context, b *box, n int) (*op, error) {
	o := &op{n: n, what: "exec", file: "log", stdout: fmt.Sprintf("out %d\n", n)}
	args := object{"timeout_seconds": 120}
	pause := ""
	switch p := c.rng.IntN(20); {
	case p < 4:
		o.what, o.parallel, o.file = "exec beside", true, "plog"
	case p < 6:
		o.what, o.exit, o.stdout = "exec that fails", 3, ""
	case p == 6:
		o.what, o.stdout = "exec that takes too long", ""
		args["timeout_seconds"] = 1
		pause = "sleep 100;"
	case p == 7:
		o.what = "expires"
	case p < 16 && c.long:
		pause = fmt.Sprintf("sleep %d;", 3*int(lease.Seconds())+c.rng.IntN(10))
	case p < 12:
		pause = fmt.Sprintf("sleep %d;", c.rng.IntN(6))
	}
	// The whole line in one write, so that what two of them did at once can be told apart.
	end := fmt.Sprintf("echo out %d", n)
	if o.exit != 0 {
		end = fmt.Sprintf("exit %d", o.exit)
	}
	args["command"] = fmt.Sprintf("echo %d >> %s; %s %s", n, o.file, pause, end)
	return c.onJob(ctx, b, o, "exec", args)
}

// cell runs code that leaves the line n behind, in an interpreter that may have a state or be new.
func (c *client) cell(ctx context.Context, b *box, n int) (*op, error) {
	switch c.rng.IntN(10) {
	case 0:
		return c.onJob(ctx, b, &op{n: n, what: "code_create"}, "code_create", object{"language": "bash", "context": "other"})
	case 1:
		return c.onJob(ctx, b, &op{n: n, what: "code_delete"}, "code_delete", object{"context": "other"})
	}
	o := &op{n: n, what: "cell", file: "log", stdout: fmt.Sprintf("out %d\n", n)}
	code := fmt.Sprintf("echo %d >> ~/log; sleep %d; echo out %d", n, c.rng.IntN(3), n)
	language := "bash"
	if c.rng.IntN(2) == 0 {
		language = "python"
		code = fmt.Sprintf("import os, time\nwith open(os.path.expanduser('~/log'), 'a') as f: f.write('%d\\n')\ntime.sleep(%d)\nprint('out', %d)",
			n, c.rng.IntN(3), n)
	}
	return c.onJob(ctx, b, o, "code", object{"language": language, "code": code})
}

// files calls one of the file tools.
func (c *client) files(ctx context.Context, b *box, n int) (*op, error) {
	path := fmt.Sprintf("f%d", c.rng.IntN(3))
	switch c.rng.IntN(15) {
	case 0, 1:
		return c.onJob(ctx, b, &op{n: n, what: "write", value: path + "=" + fmt.Sprint(n)}, "write", object{"path": path, "content": fmt.Sprint(n)})
	case 2, 3, 4:
		return c.onJob(ctx, b, &op{n: n, what: "read", reads: path}, "read", object{"path": path})
	case 5, 6:
		edits := []object{{"old_string": "END", "new_string": fmt.Sprintf("%d\nEND", n)}}
		return c.onJob(ctx, b, &op{n: n, what: "edit", file: "edits"}, "edit", object{"path": "edits", "edits": edits})
	case 7:
		return c.onJob(ctx, b, &op{n: n, what: "list"}, "list", object{"path": "."})
	case 8:
		return c.onJob(ctx, b, &op{n: n, what: "stat"}, "stat", object{"path": "edits"})
	case 9:
		return c.onJob(ctx, b, &op{n: n, what: "mkdir"}, "mkdir", object{"path": fmt.Sprintf("d%d/e", n)})
	case 10:
		return c.onJob(ctx, b, &op{n: n, what: "move"}, "move", object{"from": fmt.Sprintf("m%d", c.rng.IntN(3)), "to": fmt.Sprintf("m%d", c.rng.IntN(3))})
	case 11:
		files := []object{{"path": fmt.Sprintf("m%d", c.rng.IntN(3)), "content": fmt.Sprint(n)}, {"path": "many/b", "content": fmt.Sprint(n)}}
		return c.onJob(ctx, b, &op{n: n, what: "write_many"}, "write_many", object{"files": files})
	case 12:
		return c.onJob(ctx, b, &op{n: n, what: "remove"}, "remove", object{"path": fmt.Sprintf("m%d", c.rng.IntN(3))})
	case 13:
		return c.onJob(ctx, b, &op{n: n, what: "read_many"}, "read_many", object{"paths": []string{"f0", "f1", "nothing"}})
	default:
		if c.rng.IntN(2) == 0 {
			return c.onJob(ctx, b, &op{n: n, what: "glob"}, "glob", object{"pattern": "**/*"})
		}
		return c.onJob(ctx, b, &op{n: n, what: "grep"}, "grep", object{"pattern": "[0-9]+", "path": "."})
	}
}

// background starts an exec that writes down its input, or does something to the last one.
func (c *client) background(ctx context.Context, b *box, n int) (*op, error) {
	if b.behind == "" || c.rng.IntN(5) == 0 {
		o, err := c.onJob(ctx, b, &op{n: n, what: "background"}, "exec", object{
			"background": true, "stdin_open": true, "timeout_seconds": 600,
			"command": `trap : USR1; while :; do if read -r l; then echo "$l" >> bglog; else [ $? -gt 128 ] || exit 0; fi; done`,
		})
		if o.job != "" {
			b.behind = o.job
			c.patient(ctx, o.job, 10*time.Second) // what follows stands outside the order
		}
		return o, err
	}
	exec := object{"exec_id": b.behind}
	switch c.rng.IntN(8) {
	case 0:
		exec["timeout_seconds"] = 1
		return c.onJob(ctx, b, &op{n: n, what: "exec_wait"}, "exec_wait", exec)
	case 1:
		exec["signal"] = "SIGUSR1"
		return c.onJob(ctx, b, &op{n: n, what: "exec_signal"}, "exec_signal", exec)
	case 2:
		b.behind = ""
		return c.onJob(ctx, b, &op{n: n, what: "exec_delete"}, "exec_delete", exec)
	default:
		exec["data"] = fmt.Sprintf("%d\n", n)
		return c.onJob(ctx, b, &op{n: n, what: "exec_stdin", file: "bglog"}, "exec_stdin", exec)
	}
}

// rest is everything else that can be submitted.
func (c *client) rest(ctx context.Context, b *box, n int) (*op, error) {
	switch c.rng.IntN(9) {
	case 0, 1:
		if o, err := c.onJob(ctx, b, &op{n: n, what: "pause"}, "pause", object{}); err != nil {
			return o, err
		}
		return c.onJob(ctx, b, &op{what: "resume"}, "resume", object{})
	case 2:
		return c.onJob(ctx, b, &op{n: n, what: "timeout"}, "timeout", object{"timeout_seconds": 3600})
	case 3:
		return c.onJob(ctx, b, &op{n: n, what: "port"}, "port", object{"port": 8000})
	case 4:
		policy := object{"allow": []string{"example.com:443"}}
		o := &op{n: n, what: "egress", box: b}
		_, err := c.submit(ctx, o, http.MethodPut, "/v1/sandboxes/"+b.id+"/egress", policy)
		return o, err
	case 5:
		o := &op{n: n, what: "run", stdout: fmt.Sprintf("out %d\n", n)}
		_, err := c.submit(ctx, o, http.MethodPost, "/v1/run?wait=1ms", object{
			"memory_mb": 64, "disk_mb": 16, "command": fmt.Sprintf("cat a; echo %d", n), "files": []object{{"path": "a", "content": "out "}},
		})
		return o, err
	default:
		o, err := c.command(ctx, b, n)
		if err == nil && o.job != "" && c.rng.IntN(2) == 0 { // a cancel that nobody hears of is as good as none
			_, _, _ = c.try(ctx, answerWait, http.MethodPost, "/v1/jobs/"+o.job+"/cancel", o.key+"-cancel", nil)
		}
		return o, err
	}
}
