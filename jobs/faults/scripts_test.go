package faults_test

import (
	"encoding/json"
	"strings"

	"sandyard/dev/jobsrig"
	"sandyard/egress"
	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/providers"
)

// script is one run: what is made ready without faults, what is asked for while one call fails, and how it must end.
type script struct {
	name  string
	ready func(*run)
	act   func(*run)
	want  models.JobState // of the jobs that act submits; empty = succeeded
	check func(*run)      // what else must hold
	loops []string        // whose calls may fail, too
}

// scripts are the runs, at least one of each kind of job.
func scripts() []script {
	all := []script{
		{name: "create", act: func(u *run) { u.create(jobs.CreateSandbox{}) }},
		{name: "run", act: (*run).runOnce},
		{name: "exec", ready: ready, act: args(func(*run) kind.Args { return &kind.Exec{Command: "fake:append log x; fake:stdout out; fake:exit 3"} })},
		{name: "cancel", ready: readyRunning, act: (*run).cancel, want: models.Cancelled},
		{name: "delete", ready: ready, act: func(u *run) { u.remove(false) }},
		{name: "forced delete", ready: ready, act: func(u *run) { u.remove(true) }},
		{name: "resume", ready: readyPaused, act: args(func(*run) kind.Args { return &kind.Resume{} })},
		{name: "auto resume", ready: readyAsleep, act: args(func(*run) kind.Args { return &kind.Read{Path: "a"} })},
	}
	all = append(append(all, otherScripts()...), loopScripts()...)
	for name, make := range map[string]func(*run) kind.Args{
		"background":     func(*run) kind.Args { return &kind.Exec{Command: "fake:append log x; fake:sleep 1h", Background: true} },
		"exec_wait":      func(u *run) kind.Args { return &kind.ExecWait{ExecRef: jobsrig.Ref(u.over)} },
		"exec_stdin":     func(u *run) kind.Args { return &kind.ExecStdin{ExecRef: jobsrig.Ref(u.goes), Data: "x"} },
		"exec_signal":    func(u *run) kind.Args { return &kind.ExecSignal{ExecRef: jobsrig.Ref(u.goes), Signal: "INT"} },
		"process_list":   func(*run) kind.Args { return &kind.ListProcesses{} },
		"process_signal": func(u *run) kind.Args { return &kind.SignalProcess{Pid: u.pidOf(u.goes), Signal: "TERM"} },
		"exec_delete":    func(u *run) kind.Args { return &kind.ExecDelete{ExecRef: jobsrig.Ref(u.goes)} },
		"write":          func(*run) kind.Args { return &kind.Write{Path: "b", Content: "c"} },
		"write_many":     func(*run) kind.Args { return &kind.WriteMany{Files: []kind.Write{{Path: "b"}, {Path: "c"}}} },
		"read":           func(*run) kind.Args { return &kind.Read{Path: "a"} },
		"read_many":      func(*run) kind.Args { return &kind.ReadMany{Paths: []string{"a"}} },
		"list":           func(*run) kind.Args { return &kind.List{} },
		"stat":           func(*run) kind.Args { return &kind.Stat{Path: "a"} },
		"mkdir":          func(*run) kind.Args { return &kind.MakeDir{Path: "d"} },
		"move":           func(*run) kind.Args { return &kind.Move{From: "a", To: "b"} },
		"remove":         func(*run) kind.Args { return &kind.Remove{Path: "a"} },
		"edit": func(*run) kind.Args {
			return &kind.Edit{Path: "a", Edits: []kind.Replacement{{OldString: "1", NewString: "11"}}}
		},
		"glob":    func(*run) kind.Args { return &kind.Glob{Pattern: "*"} },
		"grep":    func(*run) kind.Args { return &kind.Grep{Pattern: "1"} },
		"pause":   func(*run) kind.Args { return &kind.Pause{} },
		"timeout": func(*run) kind.Args { return &kind.SetTimeout{TimeoutSeconds: 600} },
		"env":     func(*run) kind.Args { v := "1"; return &kind.SetEnv{Env: map[string]*string{"KEPT": &v}} },
		"egress":  func(*run) kind.Args { return &kind.SetEgress{Policy: egress.Policy{Allow: []string{"example.com"}}} },
	} {
		s := script{name: name, ready: readyWithFile, act: args(make)}
		if strings.HasPrefix(name, "exec_") || strings.HasPrefix(name, "process_") {
			s.ready = readyWithExecs
		}
		all = append(all, s)
	}
	return all
}

func args(make func(*run) kind.Args) func(*run) {
	return func(u *run) { u.submit(make(u)) }
}

func ready(u *run) { u.readyAs(jobs.CreateSandbox{}) }

// readyWithExecs also starts a command that goes on and one that is over.
func readyWithExecs(u *run) {
	ready(u)
	u.goes, u.over = u.r.Background(u.box, "fake:input"), u.r.Background(u.box, "fake:exit 4")
}

func readyWithFile(u *run) {
	ready(u)
	u.r.Wait(u.r.Submit(u.box, &kind.Write{Path: "a", Content: "1 2 3"}, jobsrig.Options()))
}

func readyPaused(u *run) {
	ready(u)
	u.r.Wait(u.r.Submit(u.box, &kind.Pause{}, jobsrig.Options()))
}

// readyAsleep is a sandbox that resumes by itself when a job finds it paused.
func readyAsleep(u *run) {
	u.readyAs(jobs.CreateSandbox{AutoResume: true})
	u.r.Wait(u.r.Submit(u.box, &kind.Write{Path: "a", Content: "1"}, jobsrig.Options()))
	u.r.Wait(u.r.Submit(u.box, &kind.Pause{}, jobsrig.Options()))
}

func readyRunning(u *run) {
	ready(u)
	u.goes = u.r.Exec(u.box, "fake:append log x; fake:sleep 1h")
	u.r.Eventually("the command runs", func() bool { return u.r.State.Starts(u.goes) == 1 })
}

// runOnce is a submission of several jobs.
func (u *run) runOnce() {
	u.insist(func(o jobs.Options) (models.Submitted, error) {
		return u.r.acts.Run(u.r.T.Context(), jobs.RunOnce{
			Files: []kind.Write{{Path: "in", Content: "x"}}, Exec: kind.Exec{Command: "fake:append log x; fake:stdout out"},
		}, o)
	})
}

func (u *run) cancel() {
	u.jobs = append(u.jobs, u.goes)
	u.again(func() error {
		_, err := u.r.acts.Cancel(u.r.T.Context(), jobsrig.Tenant, u.goes, "test")
		return err
	})
}

func (u *run) remove(force bool) {
	u.insist(func(o jobs.Options) (models.Submitted, error) {
		return u.r.acts.Delete(u.r.T.Context(), u.box, force, o)
	})
}

// pidOf is the process of a command that goes on.
func (u *run) pidOf(exec string) int {
	var started kind.BackgroundResult
	u.r.Must(json.Unmarshal(u.r.Job(exec).Result, &started))
	return started.Pid
}

// expire waits for the scheduler to end the sandbox.
func (u *run) expire() {
	u.r.Submit(u.box, &kind.SetTimeout{TimeoutSeconds: 1}, jobsrig.Options())
	u.r.Eventually("the sandbox has ended", func() bool { return u.r.Sandbox(u.box).EndedAt != nil })
}

// states that rows and provider may agree on.
func same(row models.SandboxState, found providers.State) bool { return string(row) == string(found) }
